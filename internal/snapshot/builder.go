package snapshot

import (
	"cmp"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// MaxAgeIntervals is how many sampling intervals a sample is served for.
const MaxAgeIntervals = 3

// Reasons of dcgm_exporter_field_unavailable beyond those of gpu.Reason.
const (
	reasonNoEntity = "no_entity" // nothing here has such a field
	// ReasonNoData: the engine gave no value.
	ReasonNoData = "no_data"
)

// Why a sample was dropped, as in dcgm_exporter_samples_dropped_total.
const (
	DroppedStale = "stale"
	DroppedRange = "out_of_range"
)

// cell is what one Read said of one field of one entity.
type cell struct {
	value gpu.Value
	time  int64
	// missing says why there is no value; "" while nothing was said.
	missing string
}

// A Builder turns batches into snapshots. It is made for one topology and one
// plan, and owns all the memory of the snapshots it fills, so that a cycle in
// steady state allocates nothing.
type Builder struct {
	topology *gpu.Topology
	plan     *gpu.Plan
	derivers []Deriver
	cycle    Cycle
	cells    []cell   // per field, then per row
	spreadAt []int    // field → its first spread, -1 for none
	spreads  []spread // per field with bursts, then per row
	gpus     []int    // row → ordinal of the GPU (or other root) it belongs to
	roots    []int    // ordinal → row of the root
	wants    []int    // row → number of planned fields at its level, events apart
	got      []int    // row → number of fields with a value in this cycle
	parts    bool     // some rows are compute instances
	snap     gpu.Snapshot

	// Stale and OutOfRange are the numbers of samples dropped by the latest Build.
	Stale, OutOfRange int
}

// NewBuilder returns a Builder for a session, and binds the derivers to it.
func NewBuilder(t *gpu.Topology, plan *gpu.Plan, derivers []Deriver) *Builder {
	rows := len(t.Devices)
	tab := &Builder{
		topology: t, plan: plan, derivers: derivers,
		cells: make([]cell, len(plan.Fields)*rows),
		gpus:  make([]int, rows),
		wants: make([]int, rows),
		got:   make([]int, rows),
	}
	for row := range rows {
		tab.parts = tab.parts || t.Devices[row].Entity.Kind == gpu.KindComputeInstance
		if p := t.ParentRow(row); p >= 0 {
			tab.gpus[row] = tab.gpus[p]
		} else {
			tab.gpus[row] = len(tab.roots)
			tab.roots = append(tab.roots, row)
		}
		for i := range plan.Fields {
			if !plan.Fields[i].Events && t.Serves(&plan.Fields[i], row) {
				tab.wants[row]++
			}
		}
	}
	spreads := 0
	tab.spreadAt, spreads = spreadAt(plan, rows)
	tab.spreads = make([]spread, spreads)
	values := make([]gpu.Value, len(plan.Counters)*rows)
	tab.snap.Topology = t
	tab.snap.Columns = make([]gpu.Column, len(plan.Counters))
	for i := range plan.Counters {
		tab.snap.Columns[i] = gpu.Column{Counter: &plan.Counters[i], Values: values[i*rows : (i+1)*rows : (i+1)*rows]}
	}
	tab.snap.Health.Entities = make([]gpu.EntityHealth, rows)
	tab.cycle = Cycle{Topology: t, Plan: plan, builder: tab}
	for _, d := range derivers {
		d.Bind(t, plan)
	}
	return tab
}

func (tab *Builder) cell(field, row int) *cell {
	return &tab.cells[field*len(tab.topology.Devices)+row]
}

// Prepare lets the derivers ask the next Read for what they need.
func (tab *Builder) Prepare(b *gpu.Batch) {
	for _, d := range tab.derivers {
		d.Prepare(b)
	}
}

// Build makes the snapshot of a reading. The result is valid until the next
// Build.
func (tab *Builder) Build(r Reading) *gpu.Snapshot {
	clear(tab.cells)
	clear(tab.got)
	clear(tab.spreads)
	tab.Stale, tab.OutOfRange = 0, 0
	health := &tab.snap.Health
	health.Err = nil
	clear(health.Entities)

	for i := range r.Batch.Faults {
		tab.applyFault(&r.Batch.Faults[i])
	}
	for i := range r.Batch.Samples {
		tab.addSample(&r.Batch.Samples[i], r.Now)
	}
	tab.applyTrails()
	for row := range tab.wants {
		e := &health.Entities[row]
		if e.Err == nil && tab.wants[row] > 0 && tab.got[row] == 0 {
			e.Err = gpu.ErrUnavailable // a GPU that answers only blanks is not up
		}
	}
	for i := range tab.snap.Columns {
		for row := range tab.topology.Devices {
			tab.show(&tab.snap.Columns[i], row)
		}
	}
	tab.snap.Time, tab.snap.Owners = r.Now, r.Owners
	tab.cycle.Reading = r
	tab.snap.Families = tab.snap.Families[:0]
	for _, d := range tab.derivers {
		tab.snap.Families = d.Derive(tab.snap.Families, &tab.cycle)
	}
	health.Unavailable = tab.unavailable(health.Unavailable[:0])
	return &tab.snap
}

// show fills in what a column shows of a row, in the column's unit.
func (tab *Builder) show(c *gpu.Column, row int) {
	v := tab.counterValue(c.Counter, row)
	if c.Counter.Scale != 1 {
		v = v.Scale(c.Counter.Scale)
	}
	c.Values[row] = v
}

// showRow is show for all columns of a field.
func (tab *Builder) showRow(field, row int) {
	for i := range tab.snap.Columns {
		if c := &tab.snap.Columns[i]; c.Counter.Field == field {
			tab.show(c, row)
		}
	}
}

// applyFault notes a fault: of an entity, or of fields of entities.
func (tab *Builder) applyFault(f *gpu.Fault) {
	first, last := f.Row, f.Row
	if f.Row == gpu.AllRows {
		first, last = 0, len(tab.topology.Devices)-1
	}
	for row := first; row <= last; row++ {
		switch f.Field {
		case gpu.AllFields:
			tab.snap.Health.Entities[row].Err = f.Err
			continue
		case gpu.FieldProcesses, gpu.FieldProcessBusy, gpu.FieldHealthChecks, gpu.FieldPeerStates:
			continue // the derivers'
		}
		tab.cell(f.Field, row).missing = gpu.Reason(f.Err)
	}
}

// addSample puts a sample into its cell if it is fresh and plausible.
func (tab *Builder) addSample(s *gpu.Sample, now time.Time) {
	field := &tab.plan.Fields[s.Field]
	if !tab.topology.Serves(field, s.Row) || tab.snap.Health.Entities[s.Row].Err != nil {
		return // of what the source calls lost the engine's cache may still have the values of before
	}
	c := tab.cell(s.Field, s.Row)
	if !inRange(field, s.Value) {
		tab.OutOfRange++
		c.missing = DroppedRange
		return
	}
	first := tab.spreadAt[s.Field]
	interval := tab.plan.IntervalOf(s.Field)
	if first >= 0 { // a Read reports what was sampled since the previous one
		interval = max(interval, tab.plan.Interval)
	}
	if now.UnixNano()-s.Time > int64(MaxAgeIntervals*interval) {
		if !field.Events {
			tab.Stale++
			c.missing = DroppedStale
		}
		return
	}
	if first >= 0 {
		tab.spreads[first+s.Row].add(s.Value)
		c.value, c.time = s.Value, s.Time
		return
	}
	tab.set(s.Field, s.Row, s.Value, s.Time)
}

// inRange reports whether a value is plausible for a field.
func inRange(field *gpu.Field, v gpu.Value) bool {
	n, ok := v.Number()
	return !ok || !field.Bounded() || n >= field.Min && n <= field.Max
}

// set serves a value, and lets it count for the health of its entity.
func (tab *Builder) set(field, row int, v gpu.Value, at int64) {
	c := tab.cell(field, row)
	c.value, c.time = v, at
	if tab.plan.Fields[field].Events {
		return // as old as the event, which says nothing about the entity now
	}
	tab.got[row]++
	if e := &tab.snap.Health.Entities[row]; e.OldestSample == 0 || at < e.OldestSample {
		e.OldestSample = at
	}
}

// unavailable lists what was asked for and is not served: once per counter
// where nothing serves it for one and the same reason, else once per GPU, or per
// compute instance where the rest of the GPU has it. What only lost entities
// lack is not listed: their own health says it.
func (tab *Builder) unavailable(list []gpu.FieldHealth) []gpu.FieldHealth {
	for i := range tab.plan.Counters {
		counter := &tab.plan.Counters[i]
		start, found := len(list), 0
		exists := false
		for root, first := range tab.roots {
			reason, parts := "", len(list)
			for row := first; row < len(tab.gpus) && (reason != served || tab.parts); row++ {
				if tab.gpus[row] != root || !tab.topology.Serves(&tab.plan.Fields[counter.Field], row) {
					continue
				}
				exists = true
				if tab.snap.Health.Entities[row].Err != nil {
					continue
				}
				why, whole := tab.whyMissing(counter.Field, row), tab.topology.Devices[row].Entity.Kind != gpu.KindComputeInstance
				switch {
				case why == "" && whole:
					found++
					reason = served
				case why == "":
					found++
				case whole && reason != served:
					reason = why
				case !whole:
					list = append(list, gpu.FieldHealth{Field: counter.Name, Row: row, Reason: why})
				}
			}
			if reason != "" && reason != served {
				list = append(list[:parts], gpu.FieldHealth{Field: counter.Name, Row: first, Reason: reason})
			}
		}
		if !exists {
			list = append(list, gpu.FieldHealth{Field: counter.Name, Row: gpu.AllRows, Reason: reasonNoEntity})
			continue
		}
		if found == 0 && len(list) > start && sameReason(list[start:]) {
			list[start].Row = gpu.AllRows
			list = list[:start+1]
		}
	}
	for _, d := range tab.derivers {
		list = d.Unavailable(list, &tab.cycle)
	}
	return list
}

// served stands for the reason of a field that is there.
const served = "served"

// whyMissing returns why a field of a row has no value, "" where it has one.
func (tab *Builder) whyMissing(field, row int) string {
	c := tab.cell(field, row)
	if !c.value.IsAbsent() {
		return ""
	}
	return cmp.Or(c.missing, ReasonNoData)
}

func sameReason(list []gpu.FieldHealth) bool {
	for i := range list {
		if list[i].Reason != list[0].Reason {
			return false
		}
	}
	return true
}
