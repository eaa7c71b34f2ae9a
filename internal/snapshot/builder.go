package snapshot

import (
	"cmp"
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
	// ReasonNoEntity: no entity has the field.
	ReasonNoEntity = "no_entity"
	// ReasonNoData: the engine returned no value.
	ReasonNoData = "no_data"
)

// Reasons of dcgm_exporter_samples_dropped_total.
const (
	DroppedStale = "stale"
	DroppedRange = "out_of_range"
	// DroppedContradicted: a profiling field reads 0 while the GPU works.
	DroppedContradicted = "contradicted"
)

// A cell holds one field of one entity in one Read.
type cell struct {
	value   gpu.Value
	at      int64  // time of the sample in Unix nanoseconds
	missing string // why there is no value; "" if no reason was reported
}

// A Builder turns batches into snapshots, for one topology and one plan.
type Builder struct {
	topology *gpu.Topology
	plan     *gpu.Plan
	derivers []Deriver
	cycle    Cycle
	cells    []cell       // by field, then by row
	maxAge   []int64      // by field: maximum age of a served sample in nanoseconds
	roots    [][]int      // rows of each GPU or other root, including its instances and links
	expected []int        // by row: number of planned fields that the entity has
	got      []int        // by row: number of fields with a value in this cycle
	snap     gpu.Snapshot // of this cycle; the next one reuses its memory
	doubts   doubts

	// Stale, OutOfRange and InDoubt count the samples that the latest Build dropped. InDoubt counts contradicted
	// samples.
	Stale, OutOfRange, InDoubt int
	// Contradicted lists the rows with contradicted fields, for gpu.ReadRequest.
	Contradicted []int
}

// NewBuilder returns a Builder for a session and binds the derivers to it.
func NewBuilder(t *gpu.Topology, plan *gpu.Plan, derivers []Deriver) *Builder {
	rows := len(t.Devices)
	b := &Builder{
		topology: t, plan: plan, derivers: derivers,
		cells:    make([]cell, len(plan.Fields)*rows),
		expected: make([]int, rows),
		got:      make([]int, rows),
		maxAge:   make([]int64, len(plan.Fields)),
	}
	for i := range plan.Fields {
		b.maxAge[i] = int64(max(MaxAgeIntervals*plan.IntervalOf(i), minMaxAge))
		if plan.Fields[i].AllSamples { // a Read reports all samples since the previous Read
			b.maxAge[i] = max(b.maxAge[i], int64(MaxAgeIntervals*plan.Interval))
		}
	}
	root := make([]int, rows) // index in roots
	for row := range rows {
		if p := t.ParentRow(row); p >= 0 {
			root[row] = root[p] // parents precede their children
			b.roots[root[p]] = append(b.roots[root[p]], row)
		} else {
			root[row] = len(b.roots)
			b.roots = append(b.roots, []int{row})
		}
		for i := range plan.Fields {
			// XID events are not samples; a GPU without XIDs is complete
			if f := &plan.Fields[i]; f.ID != catalog.XIDErrors && t.Serves(f, row) {
				b.expected[row]++
			}
		}
	}
	b.snap = gpu.Snapshot{Topology: t, Columns: newColumns(plan.Counters, rows)}
	b.snap.Health.Entities = make([]gpu.EntityHealth, rows)
	b.doubts = newDoubts(t, plan)
	b.cycle = Cycle{Topology: t, Plan: plan, builder: b}
	for _, d := range derivers {
		d.Bind(t, plan)
	}
	return b
}

func (b *Builder) cell(field, row int) *cell {
	return &b.cells[field*len(b.topology.Devices)+row]
}

// newColumns returns columns without values.
func newColumns(counters []gpu.Counter, rows int) []gpu.Column {
	columns := make([]gpu.Column, len(counters))
	values := make([]gpu.Value, len(columns)*rows)
	for i := range columns {
		columns[i] = gpu.Column{Counter: &counters[i], Values: values[i*rows : (i+1)*rows : (i+1)*rows]}
	}
	return columns
}

// Build returns the snapshot of a reading. It is valid until the next Build.
func (b *Builder) Build(r Reading) *gpu.Snapshot {
	clear(b.cells)
	clear(b.got)
	b.Stale, b.OutOfRange, b.InDoubt = 0, 0, 0
	clear(b.snap.Health.Entities)
	b.snap.Time, b.snap.Owners = r.Now, r.Owners
	for i := range r.Batch.Faults {
		b.applyFault(&r.Batch.Faults[i])
	}
	for i := range r.Batch.Samples {
		b.addSample(&r.Batch.Samples[i], r.Now)
	}
	for row := range b.expected {
		e := &b.snap.Health.Entities[row]
		if e.Err == nil && b.expected[row] > 0 && b.got[row] == 0 && !b.isOldLink(row) {
			e.Err = gpu.ErrUnavailable // a GPU that reports only blank values is not up
		}
	}
	b.contradict()
	b.fillColumns()
	b.snap.Families = b.snap.Families[:0]
	b.cycle.Reading = r
	for _, d := range b.derivers {
		b.snap.Families = d.Derive(b.snap.Families, &b.cycle)
	}
	b.snap.Health.Unavailable = b.unavailable()
	return &b.snap
}

// isOldLink reports whether the row is an NVLink without any of the planned fields. For example, links before NVLink 5
// have none of its counters.
func (b *Builder) isOldLink(row int) bool {
	if b.topology.Devices[row].Entity.Kind != gpu.KindNVLink {
		return false
	}
	for i := range b.plan.Fields {
		if b.topology.Serves(&b.plan.Fields[i], row) && b.cell(i, row).missing != gpu.Reason(gpu.ErrNotSupported) {
			return false
		}
	}
	return true
}

// fillColumns sets the values of the counters, in the counter's unit.
func (b *Builder) fillColumns() {
	for i := range b.snap.Columns {
		c := &b.snap.Columns[i]
		for row := range c.Values {
			v := b.cell(c.Counter.Field, row).value
			if c.Counter.Scale != 1 {
				v = v.Scale(c.Counter.Scale)
			}
			c.Values[row] = v
		}
	}
}

// applyFault records a fault of an entity, or of fields of entities.
func (b *Builder) applyFault(f *gpu.Fault) {
	first, last := f.Row, f.Row
	if f.Row == gpu.AllRows {
		first, last = 0, len(b.topology.Devices)-1
	}
	for row := first; row <= last; row++ {
		switch f.Part { // the derivers handle the other parts
		case gpu.PartEntity:
			b.snap.Health.Entities[row].Err = f.Err
		case gpu.PartField:
			b.cell(f.Field, row).missing = gpu.Reason(f.Err)
		}
	}
}

// addSample stores a sample in its cell. A stale or implausible sample is counted instead. A sample is ignored if its
// entity does not have the field or is lost.
func (b *Builder) addSample(s *gpu.Sample, now time.Time) {
	if !b.serves(s) {
		return
	}
	c := b.cell(s.Field, s.Row)
	switch {
	case !inRange(&b.plan.Fields[s.Field], s.Value):
		c.missing = DroppedRange
		b.OutOfRange++
		return
	case now.UnixNano()-s.Time > b.maxAge[s.Field]:
		c.missing = DroppedStale
		b.Stale++
		return
	}
	c.value, c.at = s.Value, s.Time
	b.got[s.Row]++
	if e := &b.snap.Health.Entities[s.Row]; e.OldestSample == 0 || s.Time < e.OldestSample {
		e.OldestSample = s.Time
	}
}

// serves reports whether the entity has the sample's field and is not lost. The engine may still return old values of a
// lost entity.
func (b *Builder) serves(s *gpu.Sample) bool {
	return b.topology.Serves(&b.plan.Fields[s.Field], s.Row) && b.snap.Health.Entities[s.Row].Err == nil
}

// inRange reports whether a value is plausible for a field.
func inRange(field *gpu.Field, v gpu.Value) bool {
	n, ok := v.Number()
	return !ok || field.Range.Contains(n)
}

// unavailable lists the counters that are not served. A counter missing everywhere for the same reason is listed once,
// otherwise once per GPU. Lost entities are skipped because their own health reports them.
func (b *Builder) unavailable() []gpu.FieldHealth {
	list := b.snap.Health.Unavailable[:0]
	for i := range b.plan.Counters {
		counter := &b.plan.Counters[i]
		start := len(list)
		exists, found := false, false
		for _, rows := range b.roots {
			reason, hasField, hasValue := b.missingBelow(counter, rows)
			exists, found = exists || hasField, found || hasValue
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

// missingBelow returns why a counter has no value in the rows of one root: a GPU with its instances and links. The
// reason is empty if a row has a value, or if all rows with the field are down. It also returns whether any row has the
// field, and whether any has a value.
func (b *Builder) missingBelow(counter *gpu.Counter, rows []int) (reason string, hasField, hasValue bool) {
	field := &b.plan.Fields[counter.Field]
	for _, row := range rows {
		if !b.topology.Serves(field, row) {
			continue
		}
		hasField = true
		if b.snap.Health.Entities[row].Err != nil {
			continue
		}
		if reason = b.whyMissing(counter.Field, row); reason == "" {
			return "", true, true
		}
	}
	return reason, hasField, false
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

// whyMissing returns why a field of a row has no value, or "" if it has one.
func (b *Builder) whyMissing(field, row int) string {
	c := b.cell(field, row)
	if !c.value.IsAbsent() || c.missing == "" && b.plan.Fields[field].ID == catalog.XIDErrors {
		return "" // XID events are not samples; without an XID nothing is missing
	}
	return cmp.Or(c.missing, ReasonNoData)
}
