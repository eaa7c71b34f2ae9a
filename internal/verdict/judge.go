package verdict

import (
	"errors"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// A Judge is a snapshot.Deriver, the last of all. What it remembers of a GPU outlives sessions and reloads. Its zero value
// is ready.
type Judge struct {
	topology *gpu.Topology
	derived  *gpu.Derived // nil where the family is not requested
	gpus     []int        // rows
	root     []int        // per row, that of its GPU, its own where there is none
	fields   [len(table)][]int
	past     map[string]*past // by UUID
}

// A past is the state of the rules for one GPU.
type past [len(table)]struct {
	since time.Time // when the signal began to hold; zero while it does not
	last  time.Time // when the rule last counted without memory
	level float64   // of grows, the number of the reading before
	known bool      // whether there is a level
}

// A reading is the input of the rules.
type reading struct {
	*snapshot.Cycle
	families map[string]*gpu.Family
}

// Bind implements snapshot.Deriver.
func (j *Judge) Bind(t *gpu.Topology, plan *gpu.Plan) {
	j.topology, j.derived, j.gpus = t, nil, t.RowsOf(gpu.KindsOf(gpu.KindGPU))
	for i := range plan.Derived {
		if plan.Derived[i].Name == catalog.GPUVerdict {
			j.derived = &plan.Derived[i]
		}
	}
	j.root = make([]int, len(t.Devices))
	for row := range t.Devices {
		j.root[row] = row
		if p := t.ParentRow(row); p >= 0 {
			j.root[row] = j.root[p] // parents come first
		}
	}
	for i := range table {
		j.fields[i] = nil
		for f := range plan.Fields {
			if slices.Contains(table[i].signal.fields, plan.Fields[f].ID) {
				j.fields[i] = append(j.fields[i], f)
			}
		}
	}
	if j.past == nil {
		j.past = map[string]*past{}
	}
}

// Derive implements snapshot.Deriver: a series per GPU with its verdict and, unless that is OK, the reason.
func (j *Judge) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Kind != snapshot.Served || j.derived == nil {
		return list
	}
	r := reading{c, make(map[string]*gpu.Family, len(list))}
	for i := range list {
		r.families[list[i].Name] = &list[i]
	}
	f := gpu.Family{Name: j.derived.Name, Type: j.derived.Type, Help: j.derived.Help}
	for _, row := range j.gpus {
		verdict, reason := j.judge(&r, row)
		labels := []gpu.Label{{Name: "verdict", Value: verdict}, {Name: "reason", Value: reason}}
		f.Series = append(f.Series, gpu.Series{Row: row, NoOwner: true, Labels: labels, Value: gpu.Int(1)})
	}
	return append(list, f)
}

// Unavailable implements snapshot.Deriver: only a machine without a GPU goes without a verdict.
func (j *Judge) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	if j.derived != nil && len(j.gpus) == 0 {
		list = append(list, gpu.FieldHealth{Field: j.derived.Name, Row: gpu.AllRows, Reason: snapshot.ReasonNoEntity})
	}
	return list
}

// judge returns the verdict on a GPU and its reason, "" for OK.
func (j *Judge) judge(r *reading, row int) (verdict, reason string) {
	id := j.topology.Devices[row].UUID
	p := j.past[id]
	if p == nil {
		p = &past{}
		j.past[id] = p
	}
	verdict = OK
	for i := range table {
		rule, h := &table[i], &p[i]
		switch {
		case !j.holds(r, i, row, p):
			h.since = time.Time{}
		case h.since.IsZero():
			h.since = r.Now
			fallthrough
		default:
			if r.Now.Sub(h.since) >= rule.after {
				h.last = r.Now
			}
		}
		counts := h.last.Equal(r.Now) || rule.signal.test != recent && !h.last.IsZero() && r.Now.Sub(h.last) < rule.memory
		if counts && Gravity(rule.verdict) > Gravity(verdict) {
			verdict, reason = rule.verdict, rule.reason
		}
	}
	return verdict, reason
}

// holds reports whether the signal of a rule holds for a GPU.
func (j *Judge) holds(r *reading, i, row int, p *past) bool {
	s, h := &table[i].signal, &p[i]
	if s.down {
		err := r.Down(row)
		return err != nil && errors.Is(err, gpu.ErrLost) != s.others
	}
	n, ok := j.number(r, i, row)
	switch {
	case !ok:
		return false
	case s.test == recent:
		return r.Now.Sub(time.Unix(0, int64(n*1e9))) < table[i].memory
	case s.test == grows:
		before, known := h.level, h.known
		h.level, h.known = n, true
		return known && n > before
	default:
		return n >= s.least && n <= s.most
	}
}

// number returns the number of a rule's signal, and whether there is one.
func (j *Judge) number(r *reading, i, row int) (sum float64, ok bool) {
	s := &table[i].signal
	for _, f := range j.fields[i] {
		if n, has := r.Value(f, row).Number(); has {
			sum, ok = sum+n, true
		}
	}
	f := r.families[s.family]
	if f == nil {
		return sum, ok
	}
	for k := range f.Series {
		x := &f.Series[k]
		if x.Row < 0 || j.root[x.Row] != row || !s.selects(x.Labels) {
			continue
		}
		n, has := x.Value.Number()
		switch {
		case !has:
		case s.test == grows:
			sum, ok = sum+n, true
		default:
			sum, ok = max(sum, n), true
		}
	}
	return sum, ok
}

// selects reports whether a series with the labels counts for the signal.
func (s *signal) selects(labels []gpu.Label) bool {
	if s.active && slices.ContainsFunc(labels, func(l gpu.Label) bool { return l.Name == catalog.TreatmentLabel }) {
		return false
	}
	return s.label == "" || slices.ContainsFunc(labels, func(l gpu.Label) bool {
		return l.Name == s.label && slices.Contains(s.values, l.Value) != s.except
	})
}
