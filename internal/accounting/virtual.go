package accounting

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// appendOwn appends series with the owners' shares to each utilization and used-memory counter of a shared GPU, as
// dcgm-exporter does with --kubernetes-virtual-gpus. The value of an unknown share is absent.
func (s *Accountant) appendOwn(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	for i := range c.Plan.Counters {
		counter := &c.Plan.Counters[i]
		field := c.Plan.Fields[counter.Field].ID
		m, unit := utilization, 100.0 // the field is in percent
		if field == catalog.FBUsed {
			m, unit = memory, 1.0/bytesPerMiB
		}
		if counter.Type == gpu.MetricLabel || field != catalog.GPUUtil && m == utilization {
			continue
		}
		f := gpu.Family{Name: counter.Name, Type: counter.Type, Help: counter.Help, OwnersOnly: true}
		for j := range s.entities {
			e := &s.entities[j]
			if c.Value(field, e.row).IsAbsent() {
				continue
			}
			use := s.owners.UseOf(e.row)
			for k := range use.Owners {
				o := &use.Owners[k]
				var value gpu.Value
				if a := s.accounts[keyOf(e, o)]; slices.Contains(e.accounts, a) {
					value = a.now[m].Scale(unit).Scale(counter.Scale)
				}
				if labels := o.VirtualGPULabels(); labels != nil {
					f.Series = append(f.Series, gpu.Series{Row: e.row, NoOwner: true, Owner: labels, Value: value})
				}
			}
		}
		list = append(list, f)
	}
	return list
}
