package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Session reads the entities that the plan selected when it was opened. Read and Close must not be called
// concurrently.
type Session struct {
	src      *Source
	plan     *gpu.Plan
	topology *gpu.Topology
	opened   int64
	last     int64 // time of the latest Read, or of Open
	wasRead  bool
	epoch    int // number of repartitions before Open
	resets   int // resets of the world when the views were made

	views         []view
	cells         []cell
	down          []bool     // by row: lost in the current Read
	active        []activity // by row, whole GPUs only: activity until the latest Read
	closed        bool
	gpu.Lifecycle // ended by a Read

	bindings int // bindings before Open
}

// A cell is a field of a row, with the generator of its value and the faults that affect it.
type cell struct {
	row, field int
	gen        generator // empty if there is no value; err says why
	integer    bool      // an integer in the catalog's unit
	factor     float64
	whole      bool // an integer in the plan's unit
	err        error
	events     func(s *Session, c *cell, b *gpu.Batch, from, to int64)
	faults     []cellFault
	trailed    int64 // time of the latest sample of its trail
	interval   int64 // for fields that are sampled less often than the plan is read
	kept       gpu.Sample
}

// A cellFault is a fault that affects a cell.
type cellFault struct {
	*fault
	unit gpu.Unit // unit of its value
}

func newSession(src *Source, plan *gpu.Plan, at int64) *Session {
	w := src.world
	bindings := src.bind(src.elapsed(at))
	s := &Session{
		src: src, plan: plan, topology: w.topology(plan),
		opened: at, last: at, epoch: w.applied, Lifecycle: gpu.NewLifecycle(),
		bindings: bindings,
	}
	s.views = make([]view, len(s.topology.Devices))
	s.down = make([]bool, len(s.views))
	s.observe()
	for row := range s.views {
		for field := range plan.Fields {
			if plan.Fields[field].Levels.Has(s.topology.Devices[row].Entity.Kind) {
				s.cells = append(s.cells, s.newCell(row, field))
			}
		}
	}
	return s
}

// observe makes the views of the rows.
func (s *Session) observe() {
	w := s.src.world
	s.resets = w.resets
	s.active = make([]activity, len(s.views))
	for row := range s.views {
		s.views[row] = w.view(&s.topology.Devices[row])
		if v := &s.views[row]; v.dev.Entity.Kind == gpu.KindGPU && v.slot != nil {
			s.active[row].advance(w, v.slot)
		}
	}
}

// newCell returns the cell of a field and a row.
func (s *Session) newCell(row, field int) cell {
	f, v := &s.plan.Fields[field], &s.views[row]
	c := cell{row: row, field: field, factor: 1}
	if d := s.plan.IntervalOf(field); d > s.plan.Interval {
		c.interval = int64(d)
	}
	entry, known := catalog.ByID(f.ID)
	id, unit := cmp.Or(entry.BaseOf, f.ID), f.Unit
	switch r := ruleFor(id, v.dev.Entity.Kind); {
	case v.board != nil && v.board.lacking[id]:
	case r != nil:
		gen := r.gen
		gen.n += int(id - r.first)
		in := input{v, gen.args}
		if !slices.ContainsFunc(r.needs, func(met func(input) bool) bool { return !met(in) }) {
			c.gen, unit = gen, r.unit
		}
	case known && entry.Exportable() && !(f.Profiling && v.board != nil && !v.board.Profiling):
		c.gen = fallback(f)
	}
	if c.gen.none() {
		c.err = fmt.Errorf("sim: %s of %v: %w", f.Name, v.dev.Entity, gpu.ErrNotSupported)
	}
	if factor, ok := catalog.Conversion(unit, f.Unit); ok {
		c.factor = factor
	}
	c.integer = known && entry.Type == catalog.Integer
	c.whole = c.integer && entry.Unit == f.Unit
	if id == catalog.XIDErrors {
		c.events = xidEvents
	} else if f.AllSamples {
		c.events = reasonEvents
	}
	for i := range s.src.scenario.Faults {
		x := &s.src.scenario.Faults[i]
		unit, changes := x.fields[f.ID]
		if !changes { // a fault may name the same measurement of older engines
			unit, changes = x.fields[id]
		}
		if changes && x.on(v.dev) {
			c.faults = append(c.faults, cellFault{x, unit})
		}
	}
	return c
}

// Topology returns the entities of the session.
func (s *Session) Topology() *gpu.Topology { return s.topology }

// Close releases the session.
func (s *Session) Close() error {
	if !s.closed {
		s.closed = true
		s.src.open.Add(-1)
	}
	return nil
}

// Read appends the current samples and faults.
func (s *Session) Read(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	s.src.inFlight.Add(1)
	defer s.src.inFlight.Add(-1)
	switch {
	case s.closed:
		return fmt.Errorf("sim: read: session is closed: %w", gpu.ErrUnavailable)
	case s.Err() != nil:
		return s.Err()
	}
	if err := s.src.hang(ctx, "read"); err != nil {
		return err
	}
	s.src.mu.Lock()
	defer s.src.mu.Unlock()
	now := s.src.now().UnixNano()
	s.src.world.advance(now)
	elapsed := s.src.elapsed(now)
	if err := s.endIfOver(elapsed); err != nil {
		return err
	}
	if s.resets != s.src.world.resets {
		s.observe()
	}
	s.read(req, b, now, elapsed)
	s.last, s.wasRead = now, true
	return nil
}

// endIfOver ends the session if its engine went away or the topology changed.
func (s *Session) endIfOver(elapsed time.Duration) error {
	since := s.src.elapsed(s.opened)
	for f := range s.src.faults(faultEngineDown) {
		// a restarted engine does not have this session
		if f.At <= elapsed && f.At > since {
			_ = s.End(fmt.Errorf("sim: the engine stopped: %w", gpu.ErrLost))
		}
	}
	if s.src.world.applied != s.epoch {
		_ = s.End(fmt.Errorf("sim: MIG was repartitioned: %w", gpu.ErrTopology))
	}
	if s.src.bind(elapsed) != s.bindings {
		_ = s.End(fmt.Errorf("sim: GPUs were unbound or bound: %w", gpu.ErrTopology))
	}
	return s.Err()
}

// read appends the current values. Samples of lost GPUs are dropped.
func (s *Session) read(req gpu.ReadRequest, b *gpu.Batch, now int64, elapsed time.Duration) {
	clear(s.down)
	for row := range s.down {
		d := &s.topology.Devices[row]
		ofGPU := d.Entity.Kind == gpu.KindGPU || d.Entity.ParentKind == gpu.KindGPU
		for f := range s.src.faults(faultLost) {
			if ofGPU && !s.down[row] && f.within(elapsed) && f.onGPU(d.GPU) {
				b.FailPart(row, gpu.PartEntity, fmt.Errorf("sim: %v: %w", d.Entity, gpu.ErrLost))
				s.down[row] = true
			}
		}
	}
	b.DropSamples(s.down)
	for i := range s.cells {
		c := &s.cells[i]
		first := len(b.Samples)
		switch {
		case s.down[c.row]:
		case c.faults != nil:
			s.readFaulty(c, b, now, elapsed)
		default:
			s.readCell(c, b, now)
		}
		if s.plan.Fields[c.field].AllSamples && len(b.Samples) > first {
			c.trail(b, b.Samples[first].Value, b.Samples[first].Time)
		}
	}
	s.readProcesses(req, b, now)
	s.readHealth(b, now, elapsed)
	if s.plan.Peers {
		s.readPeers(b)
	}
}

// readCell appends the value of a cell without faults.
func (s *Session) readCell(c *cell, b *gpu.Batch, now int64) {
	switch {
	case c.gen.none():
		b.Fail(c.row, c.field, c.err)
	case c.events != nil:
		c.events(s, c, b, s.last, now)
	case c.interval > 0:
		if c.kept.Time == 0 || now-c.kept.Time >= c.interval || now < c.kept.Time {
			c.kept = gpu.Sample{Value: s.value(c), Time: now}
		}
		b.AddAt(c.row, c.field, c.kept.Value, c.kept.Time)
	default:
		b.AddAt(c.row, c.field, s.value(c), now)
	}
}

// trail appends a sample to the trail of its cell unless it is there already.
func (c *cell) trail(b *gpu.Batch, v gpu.Value, at int64) {
	if at > c.trailed {
		c.trailed = at
		b.TrailAt(c.row, c.field, v, at)
	}
}

func (s *Session) value(c *cell) gpu.Value {
	in := input{&s.views[c.row], c.gen.args}
	if c.gen.text != nil {
		return gpu.Text(c.gen.text(in))
	}
	v := gpu.Float(c.gen.number(in))
	if c.integer {
		v = floor(v)
	}
	if c.factor != 1 {
		v = v.Scale(c.factor)
	}
	if c.whole {
		v = floor(v)
	}
	return v
}

// floor rounds a number down to an integer.
func floor(v gpu.Value) gpu.Value {
	if n, ok := v.Number(); ok {
		return gpu.Int(int64(math.Floor(n)))
	}
	return v
}

// readFaulty appends the value of a cell with faults.
func (s *Session) readFaulty(c *cell, b *gpu.Batch, now int64, elapsed time.Duration) {
	for _, f := range c.faults {
		if !f.within(elapsed) {
			continue
		}
		switch {
		case f.Kind != faultAbsent:
			s.add(c, b, f.value(&s.plan.Fields[c.field], f.unit, elapsed), now)
		case f.Reason == "stale" && c.kept.Time != 0:
			b.AddAt(c.row, c.field, c.kept.Value, c.kept.Time)
		case absentReasons[f.Reason] != nil:
			b.Fail(c.row, c.field, absentReasons[f.Reason])
		}
		return
	}
	first := len(b.Samples)
	s.readCell(c, b, now)
	if len(b.Samples) > first {
		c.kept = b.Samples[first]
	}
}

// add appends a value of the scenario.
func (s *Session) add(c *cell, b *gpu.Batch, v gpu.Value, at int64) {
	if s.plan.Fields[c.field].ID != catalog.XIDErrors {
		b.AddAt(c.row, c.field, v, at)
	} else if n, ok := v.Number(); ok && n != 0 {
		b.XIDs = append(b.XIDs, gpu.XID{Row: c.row, Code: int64(n), ID: at, Time: at})
	}
}

// xidEvents appends the XIDs since the previous Read, oldest first. If there was none since Open, the first Read
// appends the latest one from before.
func xidEvents(s *Session, c *cell, b *gpu.Batch, from, to int64) {
	var past []gpu.XID
	for f := range s.src.faults(faultXID) {
		if !f.seenBy("engine") || !f.on(s.views[c.row].dev) {
			continue
		}
		for i, xid := range f.XIDs {
			if at := s.src.start + int64(f.occurs(i)); at <= to {
				past = append(past, gpu.XID{Row: c.row, Code: xid, ID: at, Time: at})
			}
		}
	}
	slices.SortStableFunc(past, func(a, b gpu.XID) int { return cmp.Compare(a.Time, b.Time) })
	old := len(past)
	for old > 0 && past[old-1].Time > from {
		old--
	}
	if !s.wasRead && old > 0 && old == len(past) {
		old--
	}
	b.XIDs = append(b.XIDs, past[old:]...)
}

// reasonEvents appends the current clock event reasons, and every change since the previous Read.
func reasonEvents(s *Session, c *cell, b *gpu.Batch, from, to int64) {
	if to < from { // the clock was set back
		c.trailed = 0
	}
	g := s.views[c.row].gpu
	for _, at := range g.reasonEdges(from, to) {
		c.trail(b, gpu.Int(g.reasonsAt(at)), at)
	}
	b.AddAt(c.row, c.field, s.value(c), to)
}
