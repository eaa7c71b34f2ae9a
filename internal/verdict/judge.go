package verdict

import (
	"errors"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// NoCounters is the reason for Unknown if the counters file lacks a family that the table needs.
const NoCounters = "no_counters"

const (
	// forgetAfter is how long a GPU must be absent before its state is dropped. It exceeds the memory of every
	// rule.
	forgetAfter = 48 * time.Hour
	// maxGPUs is the maximum number of GPUs whose state is kept, whatever UUIDs an engine reports.
	maxGPUs = 256
)

// A Judge is a snapshot.Deriver that computes verdicts. It must be the last Deriver of a cycle. The states of
// GPUs outlive sessions and reloads. The zero value is ready to use.
type Judge struct {
	topology *gpu.Topology
	derived  *gpu.Derived // nil if the family is not requested
	lacking  bool         // the plan lacks a family that the table needs
	gpus     []int        // rows
	root     []int        // by row: the row of its GPU; its own row if it has none
	fields   [len(table)][]int
	count    [len(table)]int  // by rule: index of the field that must be at least 1; -1 if there is none
	past     map[string]*past // by UUID
	bound    int              // number of sessions
}

// A past holds what the Judge remembers about one GPU.
type past struct {
	rules  [len(table)]state
	levels map[key]float64 // latest values of growing counters
	seen   map[key]event   // XIDs
	read   bool            // whether there was a previous reading
	at     time.Duration   // Elapsed of the latest cycle with the GPU
	bound  int             // number of the latest session with the GPU
}

// A state holds what the Judge remembers about one rule. Times are values of Reading.Elapsed.
type state struct {
	holds  bool          // the latest number satisfies the signal
	active bool          // the signal has held for as long as the rule requires
	since  time.Duration // when the signal started to hold
	known  bool          // whether last is set
	last   time.Duration // when the rule was last active
}

// A key names a series of a GPU.
type key struct {
	rule   int
	field  int // index in the rule's fields; -1 for a series of the family
	entity gpu.Entity
	value  string // value of the signal's label
}

// An event is the time of an XID, by the wall clock in Unix seconds and by Reading.Elapsed.
type event struct {
	wall float64
	at   time.Duration
}

// An answer says whether a reading satisfies a signal.
type answer uint8

const (
	missing answer = iota // there is no number, so the state of the rule does not change
	no
	yes
)

// A reading is the input of all rules in one cycle.
type reading struct {
	*snapshot.Cycle
	families map[string]*gpu.Family
}

// Bind implements snapshot.Deriver.
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
	indexOf := func(id gpu.FieldID) int {
		return slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == id })
	}
	for i := range table {
		j.fields[i], j.count[i] = nil, -1
		for _, id := range table[i].signal.fields {
			j.fields[i] = append(j.fields[i], indexOf(id))
		}
		if id := table[i].signal.count; id != 0 {
			j.count[i] = indexOf(id)
		}
	}
	j.remember()
}

// remember creates the past of each GPU of the session. If there are too many, it drops those of GPUs that have
// been absent longest.
func (j *Judge) remember() {
	if j.past == nil {
		j.past = map[string]*past{}
	}
	j.bound++
	for _, row := range j.gpus {
		j.pastOf(row).bound = j.bound
	}
	for len(j.past) > maxGPUs {
		oldest, bound := "", j.bound
		for id, p := range j.past {
			if p.bound < bound {
				oldest, bound = id, p.bound
			}
		}
		if bound == j.bound {
			return
		}
		delete(j.past, oldest)
	}
}

// pastOf returns the past of the GPU in a row. It creates an empty one for a new GPU.
func (j *Judge) pastOf(row int) *past {
	id := j.topology.Devices[row].UUID
	p := j.past[id]
	if p == nil {
		p = &past{levels: map[key]float64{}, seen: map[key]event{}}
		j.past[id] = p
	}
	return p
}

// Derive implements snapshot.Deriver. It appends one series per GPU with its verdict and reason. The reason is
// empty for OK.
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
	for id, p := range j.past {
		if p.bound < j.bound && c.Elapsed-p.at > forgetAfter {
			delete(j.past, id)
		}
	}
	return append(list, f)
}

// Unavailable implements snapshot.Deriver. The verdict is unavailable only if the machine has no GPU.
func (j *Judge) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	if j.derived != nil && len(j.gpus) == 0 {
		list = append(list, gpu.FieldHealth{Field: j.derived.Name, Row: gpu.AllRows, Reason: snapshot.ReasonNoEntity})
	}
	return list
}

// judge returns the verdict on a GPU and its reason. The reason is empty for OK.
func (j *Judge) judge(r *reading, row int) (verdict, reason string) {
	p := j.pastOf(row)
	verdict = OK
	for i := range table {
		rule := &table[i]
		active := p.rules[i].update(rule, j.answer(r, i, row, p), r.Elapsed, p.read)
		if active && Severity(rule.verdict) > Severity(verdict) {
			verdict, reason = rule.verdict, rule.reason
		}
	}
	down := r.Down(row)
	p.at, p.read = r.Elapsed, p.read || down == nil
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

// update records the answer of a reading and reports whether the rule is in effect. A missing answer changes
// nothing: an active rule stays active.
func (h *state) update(rule *rule, a answer, now time.Duration, readBefore bool) bool {
	switch a {
	case no:
		h.holds, h.active = false, false
	case yes:
		if !h.holds {
			h.holds, h.since = true, now
		}
		h.active = h.active || now-h.since >= rule.after || rule.signal.kept && !readBefore
	}
	if h.active {
		h.known, h.last = true, now
		return true
	}
	return h.known && rule.signal.test != recent && now-h.last < rule.memory
}

// answer reports whether the reading of a GPU satisfies the signal of a rule.
func (j *Judge) answer(r *reading, i, row int, p *past) answer {
	s := &table[i].signal
	switch {
	case s.lost:
		return lostAnswer(r.Down(row))
	case s.count != 0:
		n, ok := j.value(r, j.count[i], row)
		if !ok {
			return missing
		} else if n < 1 {
			return no
		}
	}
	switch s.test {
	case recent:
		return j.recent(r, i, row, p)
	case grows:
		return j.grows(r, i, row, p)
	default:
		return j.within(r, i, row)
	}
}

// lostAnswer reports whether an entity is lost. If it cannot be read for another reason, the answer is missing.
func lostAnswer(down error) answer {
	switch {
	case down == nil:
		return no
	case errors.Is(down, gpu.ErrLost):
		return yes
	default:
		return missing
	}
}

func (j *Judge) value(r *reading, field, row int) (float64, bool) {
	if field < 0 {
		return 0, false
	}
	return r.Value(field, row).Number()
}

// within compares the sum of the fields, or the highest value of the family, with the bounds of the signal. If
// a field is missing, the sum can be too low. It can then satisfy a lower bound, but it cannot fail one.
func (j *Judge) within(r *reading, i, row int) answer {
	s, n, found, partial := &table[i].signal, 0.0, false, false
	for _, f := range j.fields[i] {
		v, ok := j.value(r, f, row)
		n, found, partial = n+v, found || ok, partial || !ok
	}
	j.eachSeries(r, i, row, func(_ key, v float64) {
		n, found = max(n, v), true
	})
	switch {
	case !found:
		return missing
	case n >= s.least && n <= s.most:
		return yes
	case partial:
		return missing
	default:
		return no
	}
}

// grows compares each counter with its previous value.
func (j *Judge) grows(r *reading, i, row int, p *past) answer {
	result := missing
	compare := func(k key, n float64) {
		before, known := p.levels[k]
		p.levels[k] = n
		if known && n > before {
			result = yes
		}
		result = max(result, no)
	}
	for at, f := range j.fields[i] {
		if n, ok := j.value(r, f, row); ok {
			compare(key{rule: i, field: at}, n)
		}
	}
	j.eachSeries(r, i, row, compare)
	return result
}

// recent reports whether the family has an event within the memory of the rule. The time of an event is
// converted to Elapsed when it is first seen, so later steps of the wall clock have no effect.
func (j *Judge) recent(r *reading, i, row int, p *past) answer {
	result, memory := missing, table[i].memory
	j.eachSeries(r, i, row, func(k key, n float64) {
		e, known := p.seen[k]
		if !known || e.wall != n {
			age := r.Now.Sub(time.Unix(0, int64(n*1e9)))
			if age < -memory { // the event was dated by a clock far ahead, so its age is unknown
				age = memory
			}
			e = event{n, r.Elapsed - max(age, 0)}
			p.seen[k] = e
		}
		if r.Elapsed-e.at < memory {
			result = yes
		}
		result = max(result, no)
	})
	return result
}

// eachSeries calls f for each series of the signal's family that is about a GPU. If several series have the
// same key, f gets the highest value.
func (j *Judge) eachSeries(r *reading, i, row int, f func(key, float64)) {
	s := &table[i].signal
	family := r.families[s.family]
	if family == nil {
		return
	}
	highest := map[key]float64{}
	for at := range family.Series {
		x := &family.Series[at]
		if x.Row < 0 || j.root[x.Row] != row || !s.selects(x.Labels) {
			continue
		}
		if n, ok := x.Value.Number(); ok {
			k := key{rule: i, field: -1, entity: j.topology.Devices[x.Row].Entity, value: s.valueIn(x.Labels)}
			if before, twice := highest[k]; !twice || n > before {
				highest[k] = n
			}
		}
	}
	for k, n := range highest {
		f(k, n)
	}
}

// selects reports whether the signal uses a series with these labels.
func (s *signal) selects(labels []gpu.Label) bool {
	if s.active && slices.ContainsFunc(labels, func(l gpu.Label) bool { return l.Name == catalog.TreatmentLabel }) {
		return false
	}
	return s.label == "" || slices.ContainsFunc(labels, func(l gpu.Label) bool {
		return l.Name == s.label && slices.Contains(s.values, l.Value) != s.except
	})
}

// valueIn returns the value of the signal's label.
func (s *signal) valueIn(labels []gpu.Label) string {
	for _, l := range labels {
		if l.Name == s.label {
			return l.Value
		}
	}
	return ""
}
