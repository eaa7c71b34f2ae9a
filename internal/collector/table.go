package collector

import (
	"cmp"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxAgeIntervals is how many sampling intervals a sample is served for.
const maxAgeIntervals = 3

// Reasons of dcgm_exporter_field_unavailable beyond those of gpu.Reason.
const (
	reasonNoEntity = "no_entity" // nothing here has such a field
	reasonNoData   = "no_data"   // the engine gave no value
)

// cell is what one Read said of one field of one entity.
type cell struct {
	value gpu.Value
	time  int64
	// missing says why there is no value; "" while nothing was said.
	missing string
}

// A table turns batches into snapshots. It is made for one topology and one
// plan, and owns all the memory of the snapshots it fills, so that a cycle in
// steady state allocates nothing.
type table struct {
	topology *gpu.Topology
	plan     *gpu.Plan
	cells    []cell // per field, then per row
	events   *eventLog
	teller   *teller
	spreadAt []int    // field → its first spread, -1 for none
	spreads  []spread // per field with bursts, then per row
	gpus     []int    // row → ordinal of the GPU (or other root) it belongs to
	roots    []int    // ordinal → row of the root
	wants    []int    // row → number of planned fields at its level, events apart
	got      []int    // row → number of fields with a value in this cycle
	parts    bool     // some rows are compute instances
	snap     gpu.Snapshot

	stale, outOfRange int // dropped in the latest fill
}

func newTable(t *gpu.Topology, plan *gpu.Plan, events *eventLog) *table {
	rows := len(t.Devices)
	tab := &table{
		topology: t, plan: plan, events: events, teller: newTeller(t, plan),
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
	events.bind(t, plan)
	return tab
}

func (tab *table) cell(field, row int) *cell {
	return &tab.cells[field*len(tab.topology.Devices)+row]
}

// fill makes the snapshot of a batch. The result is valid until the next fill.
func (tab *table) fill(b *gpu.Batch, now time.Time) *gpu.Snapshot {
	clear(tab.cells)
	clear(tab.got)
	clear(tab.spreads)
	tab.teller.forget()
	tab.stale, tab.outOfRange = 0, 0
	health := &tab.snap.Health
	health.Err = nil
	clear(health.Entities)

	for i := range b.Faults {
		if !tab.teller.blame(&b.Faults[i]) {
			tab.blame(&b.Faults[i])
		}
	}
	tab.events.begin()
	for i := range b.Samples {
		tab.place(&b.Samples[i], now)
	}
	tab.settle()
	for row := range tab.wants {
		e := &health.Entities[row]
		if e.Err == nil && tab.wants[row] > 0 && tab.got[row] == 0 {
			e.Err = gpu.ErrUnavailable // a GPU that answers only blanks is not up
		}
	}
	tab.events.restore(tab, now)
	for i := range tab.snap.Columns {
		c := &tab.snap.Columns[i]
		for row := range c.Values {
			v := tab.show(c.Counter, row)
			if c.Counter.Scale != 1 {
				v = v.Scale(c.Counter.Scale)
			}
			c.Values[row] = v
		}
	}
	tab.snap.Time = now
	tab.snap.Families = tab.events.families(tab.snap.Families[:0], now)
	tab.snap.Families = tab.teller.families(tab.snap.Families, b)
	health.Unavailable = tab.unavailable(health.Unavailable[:0])
	return &tab.snap
}

// blame notes a fault: of an entity, or of fields of entities.
func (tab *table) blame(f *gpu.Fault) {
	first, last := f.Row, f.Row
	if f.Row == gpu.AllRows {
		first, last = 0, len(tab.topology.Devices)-1
	}
	for row := first; row <= last; row++ {
		switch f.Field {
		case gpu.AllFields:
			tab.snap.Health.Entities[row].Err = f.Err
			continue
		case gpu.FieldProcesses, gpu.FieldProcessBusy:
			continue
		}
		tab.cell(f.Field, row).missing = gpu.Reason(f.Err)
	}
}

// place puts a sample into its cell if it is fresh and plausible.
func (tab *table) place(s *gpu.Sample, now time.Time) {
	field := &tab.plan.Fields[s.Field]
	if !tab.topology.Serves(field, s.Row) {
		return
	}
	c := tab.cell(s.Field, s.Row)
	if field.Bounded() {
		if n, ok := s.Value.Number(); ok && (n < field.Min || n > field.Max) {
			tab.outOfRange++
			c.missing = droppedRange
			return
		}
	}
	tab.events.add(s, now)
	first := tab.spreadAt[s.Field]
	interval := tab.plan.IntervalOf(s.Field)
	if first >= 0 { // a Read reports what was sampled since the previous one
		interval = max(interval, tab.plan.Interval)
	}
	if now.UnixNano()-s.Time > int64(maxAgeIntervals*interval) {
		if !field.Events {
			tab.stale++
			c.missing = droppedStale
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

// set serves a value, and lets it count for the health of its entity.
func (tab *table) set(field, row int, v gpu.Value, at int64) {
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
func (tab *table) unavailable(list []gpu.FieldHealth) []gpu.FieldHealth {
	for i := range tab.plan.Counters {
		counter := &tab.plan.Counters[i]
		start, served := len(list), 0
		exists := false
		for root, first := range tab.roots {
			reason, parts := "", len(list)
			for row := first; row < len(tab.gpus) && (reason != reasonServed || tab.parts); row++ {
				if tab.gpus[row] != root || !tab.topology.Serves(&tab.plan.Fields[counter.Field], row) {
					continue
				}
				exists = true
				if tab.snap.Health.Entities[row].Err != nil {
					continue
				}
				lack, whole := tab.lack(counter.Field, row), tab.topology.Devices[row].Entity.Kind != gpu.KindComputeInstance
				switch {
				case lack == "" && whole:
					served++
					reason = reasonServed
				case lack == "":
					served++
				case whole && reason != reasonServed:
					reason = lack
				case !whole:
					list = append(list, gpu.FieldHealth{Field: counter.Name, Row: row, Reason: lack})
				}
			}
			if reason != "" && reason != reasonServed {
				list = append(list[:parts], gpu.FieldHealth{Field: counter.Name, Row: first, Reason: reason})
			}
		}
		if !exists {
			list = append(list, gpu.FieldHealth{Field: counter.Name, Row: gpu.AllRows, Reason: reasonNoEntity})
			continue
		}
		if served == 0 && len(list) > start && sameReason(list[start:]) {
			list[start].Row = gpu.AllRows
			list = list[:start+1]
		}
	}
	for i := range tab.plan.Derived {
		if tab.teller.tells(i) {
			list = tab.teller.unavailable(list, i, tab.snap.Health.Entities)
			continue
		}
		if d := &tab.plan.Derived[i]; labelsOf(d) == nil && !counts(d) {
			list = append(list, gpu.FieldHealth{Field: d.Name, Row: gpu.AllRows, Reason: gpu.Reason(gpu.ErrNotSupported)})
		}
	}
	return list
}

// reasonServed is no reason: the field is there.
const reasonServed = "served"

// lack returns why a field of a row has no value, "" where it has one.
func (tab *table) lack(field, row int) string {
	c := tab.cell(field, row)
	if !c.value.IsAbsent() {
		return ""
	}
	return cmp.Or(c.missing, reasonNoData)
}

func sameReason(list []gpu.FieldHealth) bool {
	for i := range list {
		if list[i].Reason != list[0].Reason {
			return false
		}
	}
	return true
}
