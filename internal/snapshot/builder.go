package snapshot

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A sample is served for MaxAgeIntervals sampling intervals, but at least for minMaxAge. With intervals of
// milliseconds, a busy machine reads later than that.
const (
	MaxAgeIntervals = 3
	minMaxAge       = time.Second
)

// More reasons of dcgm_exporter_field_unavailable, in addition to those of gpu.Reason.
const (
	ReasonNoEntity = "no_entity" // no entity has the field
	ReasonNoData   = "no_data"   // the engine returned no value
)

// Reasons of dcgm_exporter_samples_dropped_total.
const (
	DroppedStale        = "stale"
	DroppedRange        = "out_of_range"
	DroppedContradicted = "contradicted" // a profiling field reads 0 while the GPU works
)

// A cell holds one field of one entity in one Read.
type cell struct {
	value   gpu.Value
	at      int64  // time of the sample in Unix nanoseconds
	missing string // why there is no value; "" if no reason was reported
}

// A Builder turns batches into snapshots, for one topology and one plan.
type Builder struct {
	derivers []Deriver
	cycle    Cycle
	fields   map[gpu.FieldID]int // index in the plan; that of the GPUs if their links have a field of the same ID
	cells    []cell              // by field, then by row
	maxAge   []int64             // by field: maximum age of a served sample in nanoseconds
	roots    [][]int             // rows of each GPU or other root, including its instances and links
	snap     gpu.Snapshot        // result of this cycle; the next cycle reuses its memory
	doubts   doubts

	// Dropped counts the samples that the latest Build dropped, by reason.
	Dropped map[string]int
	// Contradicted lists the rows with contradicted fields, for gpu.ReadRequest.
	Contradicted []int
}

// NewBuilder returns a Builder for a session and binds the derivers to it.
func NewBuilder(t *gpu.Topology, plan *gpu.Plan, derivers []Deriver) *Builder {
	rows := len(t.Devices)
	b := &Builder{
		derivers: derivers, fields: map[gpu.FieldID]int{}, doubts: newDoubts(t, plan), Dropped: map[string]int{},
		cells: make([]cell, len(plan.Fields)*rows), maxAge: make([]int64, len(plan.Fields)),
		snap: gpu.Snapshot{Topology: t, Columns: make([]gpu.Column, len(plan.Counters))},
	}
	b.cycle = Cycle{Topology: t, Plan: plan, builder: b}
	for i, f := range slices.Backward(plan.Fields) {
		if _, other := b.fields[f.ID]; !other || !f.Levels.Has(gpu.KindNVLink) {
			b.fields[f.ID] = i
		}
		interval := plan.IntervalOf(i)
		if f.AllSamples { // a Read reports all samples since the previous Read
			interval = max(interval, plan.Interval)
		}
		b.maxAge[i] = int64(max(MaxAgeIntervals*interval, minMaxAge))
	}
	root := make([]int, rows) // index in roots
	for row := range rows {
		root[row] = len(b.roots)
		if p := t.ParentRow(row); p >= 0 {
			root[row] = root[p] // parents precede their children
		} else {
			b.roots = append(b.roots, nil)
		}
		b.roots[root[row]] = append(b.roots[root[row]], row)
	}
	for i := range plan.Counters {
		b.snap.Columns[i] = gpu.Column{Counter: &plan.Counters[i], Values: make([]gpu.Value, rows)}
	}
	b.snap.Health.Entities = make([]gpu.EntityHealth, rows)
	for _, d := range derivers {
		d.Bind(t, plan)
	}
	return b
}

func (b *Builder) cell(field, row int) *cell {
	return &b.cells[field*len(b.snap.Topology.Devices)+row]
}

// Build returns the snapshot of a reading. It is valid until the next Build.
func (b *Builder) Build(r Reading) *gpu.Snapshot {
	clear(b.cells)
	clear(b.Dropped)
	entities := b.snap.Health.Entities
	clear(entities)
	b.cycle.Reading, b.snap.Time, b.snap.Owners = r, r.Now, r.Owners
	for i := range r.Batch.Faults {
		b.applyFault(&r.Batch.Faults[i])
	}
	for i := range r.Batch.Samples {
		b.addSample(&r.Batch.Samples[i])
	}
	for row := range entities {
		if entities[row].Err == nil && b.isSilent(row) {
			entities[row].Err = gpu.ErrUnavailable
		}
	}
	b.contradict()
	for i := range b.snap.Columns {
		c := &b.snap.Columns[i]
		for row := range c.Values {
			c.Values[row] = b.cell(c.Counter.Field, row).value
			if c.Counter.Scale != 1 {
				c.Values[row] = c.Values[row].Scale(c.Counter.Scale)
			}
		}
	}
	b.snap.Families = b.snap.Families[:0]
	for _, d := range b.derivers {
		b.snap.Families = d.Derive(b.snap.Families, &b.cycle)
	}
	b.snap.Health.Unavailable = b.unavailable()
	return &b.snap
}

// applyFault records a fault of an entity, or of fields of entities. The derivers handle the other parts.
func (b *Builder) applyFault(f *gpu.Fault) {
	first, last := f.Row, f.Row
	if f.Row == gpu.AllRows {
		first, last = 0, len(b.snap.Health.Entities)-1
	}
	for row := first; row <= last; row++ {
		switch f.Part {
		case gpu.PartEntity:
			b.snap.Health.Entities[row].Err = f.Err
		case gpu.PartField:
			b.cell(f.Field, row).missing = gpu.Reason(f.Err)
		}
	}
}

// addSample stores a sample in its cell. A stale or implausible sample is counted instead. A sample is ignored if its
// entity does not have the field, or is lost: the engine may still return its old values.
func (b *Builder) addSample(s *gpu.Sample) {
	c, health := b.cell(s.Field, s.Row), &b.snap.Health.Entities[s.Row]
	switch {
	case !b.serves(s.Field, s.Row) || health.Err != nil:
	case !b.cycle.Plausible(s):
		b.drop(c, DroppedRange)
	case b.cycle.Now.UnixNano()-s.Time > b.maxAge[s.Field]:
		b.drop(c, DroppedStale)
	default:
		c.value, c.at = s.Value, s.Time
		if health.OldestSample == 0 || s.Time < health.OldestSample {
			health.OldestSample = s.Time
		}
	}
}

// drop counts a sample that is not served.
func (b *Builder) drop(c *cell, reason string) {
	c.missing = reason
	b.Dropped[reason]++
}

// serves reports whether an entity has a field of the plan.
func (b *Builder) serves(field, row int) bool {
	return b.snap.Topology.Serves(&b.cycle.Plan.Fields[field], row)
}

// isSilent reports whether an entity has none of the values that it should have. A GPU that reports only blank values
// is not up. An NVLink that has none of the planned fields is up, because links before NVLink 5 have no counters.
func (b *Builder) isSilent(row int) bool {
	silent, supported := false, b.snap.Topology.Devices[row].Entity.Kind != gpu.KindNVLink
	for i := range b.cycle.Plan.Fields {
		c := b.cell(i, row)
		if !c.value.IsAbsent() {
			return false
		}
		if b.serves(i, row) && b.cycle.Plan.Fields[i].ID != catalog.XIDErrors { // a GPU without XIDs is complete
			silent = true
			supported = supported || c.missing != gpu.Reason(gpu.ErrNotSupported)
		}
	}
	return silent && supported
}

// unavailable lists the counters that are not served. A counter missing everywhere for the same reason is listed once.
// Otherwise it is listed for each GPU if neither the GPU nor any of its instances and links has a value. Lost entities
// are skipped because their own health reports them.
func (b *Builder) unavailable() []gpu.FieldHealth {
	list := b.snap.Health.Unavailable[:0]
	for i := range b.cycle.Plan.Counters {
		counter := &b.cycle.Plan.Counters[i]
		start, exists, found := len(list), false, false
		for _, rows := range b.roots {
			reason := ""
			for _, row := range rows {
				exists = exists || b.serves(counter.Field, row)
				if !b.serves(counter.Field, row) || b.snap.Health.Entities[row].Err != nil {
					continue
				}
				if reason = b.whyMissing(counter.Field, row); reason == "" {
					found = true
					break
				}
			}
			if reason != "" {
				list = append(list, gpu.FieldHealth{Field: counter.Name, Row: rows[0], Reason: reason})
			}
		}
		if !exists {
			list = append(list, gpu.FieldHealth{Field: counter.Name, Row: gpu.AllRows, Reason: ReasonNoEntity})
		} else if !found {
			list = onceIfEqual(list, start)
		}
	}
	for _, d := range b.derivers {
		list = d.Unavailable(list, &b.cycle)
	}
	return list
}

// whyMissing returns why a field of a row has no value, or "" if it has one.
func (b *Builder) whyMissing(field, row int) string {
	c := b.cell(field, row)
	if !c.value.IsAbsent() || c.missing == "" && b.cycle.Plan.Fields[field].ID == catalog.XIDErrors {
		return "" // without an XID nothing is missing
	}
	return cmp.Or(c.missing, ReasonNoData)
}

// onceIfEqual merges the elements from start on into one for all rows if their reasons are the same.
func onceIfEqual(list []gpu.FieldHealth, start int) []gpu.FieldHealth {
	for i := start; i < len(list); i++ {
		if list[i].Reason != list[start].Reason {
			return list
		}
	}
	if start < len(list) {
		list[start].Row = gpu.AllRows
		list = list[:start+1]
	}
	return list
}
