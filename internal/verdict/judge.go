// Package verdict rates how fit each GPU is for work: ok, watch, unknown, drain or replace. The rules are in one table,
// which docs/verdict.md prints. They test the values of a cycle and the families that earlier derivers made. The
// package only reports.
package verdict

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// NoCounters is the reason for Unknown if the counters file lacks a family that the table needs.
const NoCounters = "no_counters"

const (
	// forgetAfter is how long a GPU must be absent before its state is dropped. It exceeds the memory of every rule.
	forgetAfter = 48 * time.Hour
	// maxGPUs is the maximum number of GPUs whose state is kept, whatever UUIDs an engine reports.
	maxGPUs = 256
)

// A Judge is a snapshot.Deriver that computes verdicts. It must be the last Deriver of a cycle. The states of GPUs
// outlive sessions and reloads. The zero value is ready to use.
type Judge struct {
	topology *gpu.Topology
	derived  *gpu.Derived     // nil if the family is not requested
	lacking  bool             // the plan lacks a family that the table needs
	gpus     []int            // rows of the GPUs
	root     []int            // by row: the row of its GPU; its own row if it has none
	past     map[string]*past // by UUID
	numbers  map[key]float64  // numbers of one rule and GPU; reused
}

// A past holds the state of one GPU.
type past struct {
	rules  [len(table)]state
	levels map[key]float64 // latest values of growing counters
	events map[key]event   // latest event of each XID
	read   bool            // whether there was a previous reading
	at     time.Duration   // Elapsed of the latest cycle with the GPU
}

// A state holds the state of one rule for one GPU. Times are values of Reading.Elapsed.
type state struct {
	holds  bool          // the latest number satisfies the signal
	active bool          // the signal has held for as long as the rule requires
	since  time.Duration // when the signal started to hold
	until  time.Duration // end of the rule's memory, which begins with the latest cycle in which it was active
}

// A key names a number of a GPU.
type key struct {
	rule   int
	field  gpu.FieldID // 0 for a series of the family
	entity gpu.Entity
	value  string // value of the signal's label
}

// An event is the time of an XID, by the wall clock in Unix seconds and by Reading.Elapsed.
type event struct {
	wall float64
	at   time.Duration
}

// Bind implements snapshot.Deriver. It creates the state of each GPU of the session. If there are more than maxGPUs, it
// drops the states of the GPUs that have been absent longest.
func (j *Judge) Bind(t *gpu.Topology, plan *gpu.Plan) {
	j.topology, j.derived, j.gpus = t, nil, t.RowsOf(gpu.KindsOf(gpu.KindGPU))
	requested := map[string]bool{}
	for i := range plan.Derived {
		requested[plan.Derived[i].Name] = true
		if plan.Derived[i].Name == catalog.GPUVerdict {
			j.derived = &plan.Derived[i]
		}
	}
	j.lacking = slices.ContainsFunc(Families(), func(name string) bool { return !requested[name] })
	j.root = make([]int, len(t.Devices))
	for row := range t.Devices {
		j.root[row] = row
		if p := t.ParentRow(row); p >= 0 {
			j.root[row] = j.root[p] // parents precede their children
		}
	}
	if j.past == nil {
		j.past, j.numbers = map[string]*past{}, map[key]float64{}
	}
	absent := maps.Clone(j.past)
	for _, row := range j.gpus {
		id := t.Devices[row].UUID
		delete(absent, id)
		if j.past[id] == nil {
			j.past[id] = &past{levels: map[key]float64{}, events: map[key]event{}}
		}
	}
	longestFirst := func(a, b string) int { return cmp.Compare(absent[a].at, absent[b].at) }
	for _, id := range slices.SortedFunc(maps.Keys(absent), longestFirst) {
		if len(j.past) > maxGPUs {
			delete(j.past, id)
		}
	}
}

// Derive implements snapshot.Deriver. It appends one series per GPU with its verdict and reason. The reason is empty
// for OK.
func (j *Judge) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Final || j.derived == nil {
		return list
	}
	f := gpu.Family{Name: j.derived.Name, Type: j.derived.Type, Help: j.derived.Help}
	for _, row := range j.gpus {
		verdict, reason := j.judge(&reading{c, list, row, j.past[j.topology.Devices[row].UUID]})
		labels := []gpu.Label{{Name: "verdict", Value: verdict}, {Name: "reason", Value: reason}}
		f.Series = append(f.Series, gpu.Series{Row: row, NoOwner: true, Labels: labels, Value: gpu.Int(1)})
	}
	maps.DeleteFunc(j.past, func(_ string, p *past) bool { return c.Elapsed-p.at > forgetAfter })
	return append(list, f)
}

// Unavailable implements snapshot.Deriver. The verdict is unavailable only if the machine has no GPU.
func (j *Judge) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	if j.derived != nil && len(j.gpus) == 0 {
		list = append(list, gpu.FieldHealth{Field: j.derived.Name, Row: gpu.AllRows, Reason: snapshot.ReasonNoEntity})
	}
	return list
}

// A reading is the input of all rules about one GPU in one cycle.
type reading struct {
	*snapshot.Cycle
	families []gpu.Family
	row      int
	past     *past
}

// judge returns the verdict on a GPU and its reason. The reason is empty for OK.
func (j *Judge) judge(r *reading) (verdict, reason string) {
	verdict = OK
	for i := range table {
		rule := &table[i]
		holds, known := j.holds(r, i)
		active := r.past.rules[i].update(rule, holds, known, r.Elapsed, r.past.read)
		if active && Severity(rule.Verdict) > Severity(verdict) {
			verdict, reason = rule.Verdict, rule.Reason
		}
	}
	down := r.Down(r.row)
	r.past.at, r.past.read = r.Elapsed, r.past.read || down == nil
	switch {
	case Severity(verdict) > Severity(Unknown):
		return verdict, reason
	case down != nil:
		return Unknown, gpu.Reason(down)
	case j.lacking:
		return Unknown, NoCounters
	default:
		return verdict, reason
	}
}

// update records whether the signal holds and reports whether the rule is in effect. If the signal is not known,
// nothing changes: an active rule stays active.
func (h *state) update(rule *Rule, holds, known bool, now time.Duration, readBefore bool) bool {
	if known {
		if holds && !h.holds {
			h.since = now
		}
		h.holds = holds
		h.active = holds && (h.active || now-h.since >= rule.After || rule.Signal.Kept && !readBefore)
	}
	if h.active {
		h.until = now + rule.Memory
	}
	return h.active || rule.Signal.Test != Recent && now < h.until
}

// holds reports whether a reading satisfies the signal of a rule. Known is false if there is no number.
func (j *Judge) holds(r *reading, i int) (holds, known bool) {
	s, memory := &table[i].Signal, table[i].Memory
	if s.Test == Lost {
		down := r.Down(r.row)
		holds = errors.Is(down, gpu.ErrLost)
		return holds, holds || down == nil
	}
	if s.Count != 0 {
		if n, ok := r.Value(s.Count, r.row).Number(); !ok || n < 1 {
			return false, ok
		}
	}
	partial, highest := j.collect(r, i), 0.0
	for k, n := range j.numbers {
		known, highest = true, max(highest, n)
		switch s.Test {
		case Grows:
			before, seen := r.past.levels[k]
			r.past.levels[k] = n
			holds = holds || seen && n > before
		case Recent:
			age := r.Elapsed - r.timeOf(k, n, memory)
			holds = holds || age < memory
		}
	}
	if s.Test == Within {
		holds = known && highest >= s.Least && (!s.Exact || highest == s.Least)
		known = known && (holds || !partial) // a partial sum can satisfy the lower bound, but it cannot fail it
	}
	return holds, known
}

// timeOf returns when an event happened, as a value of Elapsed. Its time is converted when it is first seen, so later
// steps of the wall clock have no effect.
func (r *reading) timeOf(k key, wall float64, memory time.Duration) time.Duration {
	e, known := r.past.events[k]
	if !known || e.wall != wall {
		age := r.Now.Sub(time.Unix(0, int64(wall*1e9)))
		if age < -memory { // the event was dated by a clock far ahead, so its age is unknown
			age = memory
		}
		e = event{wall, r.Elapsed - max(age, 0)}
		r.past.events[k] = e
	}
	return e.at
}

// collect sets the numbers that a rule tests: the fields of the GPU or their sum, and the series of the family that are
// about the GPU. If several series have the same key, the highest counts. It reports whether a field is missing.
func (j *Judge) collect(r *reading, i int) (partial bool) {
	s := &table[i].Signal
	clear(j.numbers)
	for _, id := range s.Fields {
		n, ok := r.Value(id, r.row).Number()
		k := key{rule: i, field: id}
		if s.Test == Within {
			k.field = s.Fields[0]
		}
		if ok {
			j.numbers[k] += n
		}
		partial = partial || !ok
	}
	at := slices.IndexFunc(r.families, func(f gpu.Family) bool { return f.Name == s.Family })
	if at < 0 {
		return partial
	}
	for _, x := range r.families[at].Series {
		if x.Row < 0 || j.root[x.Row] != r.row {
			continue
		}
		value, selected := s.selects(x.Labels)
		if n, ok := x.Value.Number(); ok && selected {
			k := key{rule: i, entity: j.topology.Devices[x.Row].Entity, value: value}
			if before, twice := j.numbers[k]; !twice || n > before {
				j.numbers[k] = n
			}
		}
	}
	return partial
}

// selects reports whether the signal uses a series with these labels, and returns the value of the signal's label.
func (s *Signal) selects(labels []gpu.Label) (value string, selected bool) {
	selected = s.Label == ""
	for _, l := range labels {
		if s.Untreated && l.Name == catalog.TreatmentLabel {
			return "", false
		}
		if s.Label != "" && l.Name == s.Label {
			value, selected = l.Value, slices.Contains(s.Values, l.Value) != s.Except
		}
	}
	return value, selected
}
