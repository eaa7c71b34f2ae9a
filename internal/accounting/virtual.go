package accounting

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// appendOwn appends, for each counter of utilization or of memory in use, the parts of the owners of
// shared GPUs under their labels, as dcgm-exporter shows them under --kubernetes-virtual-gpus. A part
// that is not known is absent; 0 under Strict.
func (s *Accountant) appendOwn(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	for i := range c.Plan.Counters {
		counter := &c.Plan.Counters[i]
		if counter.Type == gpu.MetricLabel || counter.Field != s.inputs.util && counter.Field != s.inputs.memory {
			continue
		}
		f := gpu.Family{Name: counter.Name, Type: counter.Type, Help: counter.Help, OwnersOnly: true}
		for j := range s.entities {
			e := &s.entities[j]
			if c.Value(counter.Field, e.row).IsAbsent() {
				continue
			}
			use := s.owners.UseOf(e.row)
			for k := range use.Owners {
				o := &use.Owners[k]
				labels, value := o.VirtualGPULabels(), s.own(counter, s.accountOf(e, o))
				if value.IsAbsent() && s.opt.Strict {
					value = gpu.Int(0)
				}
				if labels != nil && !value.IsAbsent() {
					f.Series = append(f.Series, gpu.Series{Row: e.row, NoOwner: true, Owner: labels, Value: value})
				}
			}
		}
		list = append(list, f)
	}
	return list
}

// own returns what an owner's processes did, in the unit of the counter; absent where the budget had
// no room for an account.
func (s *Accountant) own(c *gpu.Counter, a *ownerUsage) gpu.Value {
	switch {
	case a == nil:
		return gpu.Value{}
	case c.Field == s.inputs.util:
		return a.util.Scale(100).Scale(c.Scale) // the field is in percent
	default:
		return a.memory.Scale(1.0 / (1 << 20)).Scale(c.Scale) // the field is in MiB
	}
}
