package accounting

import (
	"cmp"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// A copyRow is a shared entity and the labels of a copy per owner.
type copyRow struct {
	row    int
	copies []ownerCopy
}

type ownerCopy struct {
	account *account // nil where the budget had no room
	labels  []gpu.Label
}

// A virtualSeries does what dcgm-exporter does under --kubernetes-virtual-gpus: every series of a
// shared GPU is repeated for each replica that a pod has, with the vgpu label. Utilization and
// frame buffer are then the owner's own, absent where they are not known, and stand beside the
// device's; everything else is the device's value, as often as there are owners. A sum counts it as
// often: that is why it is only done on request.
type virtualSeries struct {
	rows     []copyRow
	families []gpu.Family // per column of the plan
}

// assign takes the owners of the shared entities.
func (v *virtualSeries) assign(s *Accountant) {
	v.rows = nil
	for i := range s.entities {
		e := &s.entities[i]
		use := s.owners.UseOf(e.row)
		var list []ownerCopy
		for j := range use.Owners {
			o := &use.Owners[j]
			if o.Replica == "" || o.Pod == "" {
				continue
			}
			labels := []gpu.Label{
				{Name: "container", Value: o.Container}, {Name: "namespace", Value: o.Namespace},
				{Name: "pod", Value: o.Pod}, {Name: "vgpu", Value: o.Replica},
			}
			labels = append(labels, o.Labels...)
			slices.SortStableFunc(labels, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
			list = append(list, ownerCopy{account: s.accountOf(e, o), labels: labels})
		}
		if len(list) > 0 {
			v.rows = append(v.rows, copyRow{row: e.row, copies: list})
		}
	}
}

// copy puts a copy per owner in the place of the series of shared entities.
func (v *virtualSeries) copy(list []gpu.Family, c *snapshot.Cycle, s *Accountant) []gpu.Family {
	columns := c.Columns()
	if len(v.families) != len(columns) {
		v.families = make([]gpu.Family, len(columns))
	}
	for i := range columns {
		column, f := &columns[i], &v.families[i]
		f.Series = f.Series[:0]
		if column.Counter.Type == gpu.MetricLabel {
			continue
		}
		for _, r := range v.rows {
			device := column.Values[r.row]
			if device.IsAbsent() {
				continue
			}
			for _, o := range r.copies {
				value, labels := s.own(column.Counter, o.account, device), o.labels
				if value.IsAbsent() {
					continue
				}
				if column.Labels != nil {
					labels = slices.Concat(labels, column.Labels[r.row])
				}
				f.Series = append(f.Series, gpu.Series{Row: r.row, Labels: labels, Value: value})
			}
			if !s.isOwn(column.Counter) {
				column.Values[r.row] = gpu.Value{}
			}
		}
		if len(f.Series) > 0 {
			f.Name, f.Type, f.Help = column.Counter.Name, column.Counter.Type, column.Counter.Help
			list = append(list, *f)
		}
	}
	return list
}

// isOwn reports whether owners have values of their own of a counter.
func (s *Accountant) isOwn(c *gpu.Counter) bool {
	return c.Field == s.inputs.util || c.Field == s.inputs.memory
}

// own returns the owner's value of a counter: what its processes did, where the counter is of
// utilization or of memory in use, else the device's.
func (s *Accountant) own(c *gpu.Counter, a *account, device gpu.Value) gpu.Value {
	var value gpu.Value
	switch c.Field {
	case s.inputs.util:
		if a != nil {
			value = a.util.Scale(100) // the field is in percent
		}
	case s.inputs.memory:
		if a != nil {
			value = a.memory.Scale(1.0 / (1 << 20)) // the field is in MiB
		}
	default:
		return device
	}
	return value.Scale(c.Scale)
}
