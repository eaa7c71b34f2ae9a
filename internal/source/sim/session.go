package sim

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Session reads the entities that the plan selected when it was opened. Read and Close must not be called
// concurrently.
type Session struct {
	src      *Source
	world    *world
	plan     *gpu.Plan
	topology *gpu.Topology
	opened   int64
	last     int64 // time of the latest Read, or of Open
	wasRead  bool
	closed   bool

	applied, bindings, resets int // counters of the world at the time when the topology and the views were made

	views         []view
	cells         []cell
	down          []bool      // by row: lost in the current Read
	busy          [][]float64 // by row, whole GPUs only: busy seconds of the GPU and its pods until the latest Read
	gpu.Lifecycle             // ended by a Read
}

// A cell is a field of a row, with the generator of its value and the faults that affect it.
type cell struct {
	row, field int
	base       gpu.FieldID // the same measurement of older engines, or the field itself
	rule       *rule       // empty if there is no value; err says why
	n          int         // index of the field within the rule
	err        error
	integer    bool // an integer in the catalog's unit
	factor     float64
	whole      bool // an integer in the plan's unit
	faults     []*fault
	trailed    int64      // time of the latest sample of its trail
	interval   int64      // sampling interval of fields that are sampled less often than the plan is read; otherwise 0
	kept       gpu.Sample // the latest sample without a fault
}

func newSession(src *Source, plan *gpu.Plan, at int64) *Session {
	w := src.world
	s := &Session{
		src: src, world: w, plan: plan, topology: w.topology(plan), opened: at, last: at,
		applied: w.applied, bindings: w.bindings, Lifecycle: gpu.NewLifecycle(),
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
	s.resets = s.world.resets
	s.busy = make([][]float64, len(s.views))
	for row := range s.views {
		s.views[row] = s.world.view(&s.topology.Devices[row])
		if v := &s.views[row]; v.dev.Entity.Kind == gpu.KindGPU && v.slot != nil {
			s.busy[row] = []float64{v.track.total[levelGraphics]}
			for _, p := range v.slot.pods {
				s.busy[row] = append(s.busy[row], p.total[levelGraphics])
			}
		}
	}
}

func (s *Session) newCell(row, field int) cell {
	f, v := &s.plan.Fields[field], &s.views[row]
	entry, known := catalog.ByID(f.ID)
	c := cell{row: row, field: field, base: cmp.Or(entry.BaseOf, f.ID), factor: 1}
	if d := s.plan.IntervalOf(field); d > s.plan.Interval && !f.AllSamples {
		c.interval = int64(d)
	}
	unit := f.Unit
	switch r := ruleFor(c.base, v.dev.Entity.Kind); {
	case v.board != nil && slices.Contains(v.board.lacking, c.base):
	case r != nil:
		c.n = r.index + int(c.base-r.first)
		in := input{v, r, c.n}
		if !slices.ContainsFunc(r.needs, func(met func(input) bool) bool { return !met(in) }) {
			c.rule, unit = r, r.unit
		}
	case known && entry.Exportable() && !(f.Profiling && v.board != nil && !v.board.has("profiling")):
		c.rule = fallback(f)
	}
	if c.rule.isEmpty() {
		c.err = fmt.Errorf("sim: %s of %v: %w", f.Name, v.dev.Entity, gpu.ErrNotSupported)
	}
	if factor, ok := catalog.Conversion(unit, f.Unit); ok {
		c.factor = factor
	}
	c.integer = known && entry.Type == catalog.Integer
	c.whole = c.integer && entry.Unit == f.Unit
	for i := range s.world.faults {
		x := &s.world.faults[i]
		if _, changes := x.unitOf(f.ID, c.base); changes && x.on(v.dev) {
			c.faults = append(c.faults, x)
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
	now := s.src.now()
	s.world.advance(now)
	if err := s.endIfOver(now); err != nil {
		return err
	}
	if s.resets != s.world.resets {
		s.observe()
	}
	s.read(req, b, now)
	s.last, s.wasRead = now, true
	return nil
}

// endIfOver ends the session if its engine went away or the topology changed.
func (s *Session) endIfOver(now int64) error {
	for f := range s.world.faultsOf(faultEngineDown) {
		if f.from <= now && f.from > s.opened { // a restarted engine does not have this session
			_ = s.End(fmt.Errorf("sim: the engine stopped: %w", gpu.ErrLost))
		}
	}
	if s.world.applied != s.applied || s.world.bindings != s.bindings {
		_ = s.End(fmt.Errorf("sim: MIG was repartitioned, or GPUs were bound or unbound: %w", gpu.ErrTopology))
	}
	return s.Err()
}

// read appends the current values. Samples of lost GPUs are dropped.
func (s *Session) read(req gpu.ReadRequest, b *gpu.Batch, now int64) {
	clear(s.down)
	for row := range s.down {
		d := &s.topology.Devices[row]
		ofGPU := d.Entity.Kind == gpu.KindGPU || d.Entity.ParentKind == gpu.KindGPU
		for f := range s.world.faultsOf(faultLost) {
			if ofGPU && !s.down[row] && f.within(now) && f.names(d.GPU) {
				b.FailPart(row, gpu.PartEntity, fmt.Errorf("sim: %v: %w", d.Entity, gpu.ErrLost))
				s.down[row] = true
			}
		}
	}
	b.DropSamples(s.down)
	for i := range s.cells {
		c := &s.cells[i]
		if s.down[c.row] {
			continue
		}
		first := len(b.Samples)
		s.readCell(c, b, now)
		if s.plan.Fields[c.field].AllSamples && len(b.Samples) > first {
			c.trail(b, b.Samples[first].Value, b.Samples[first].Time)
		}
	}
	s.readProcesses(req, b, now)
	s.readHealth(b, now)
	if s.plan.Peers {
		s.readPeers(b)
	}
}

// readCell appends the value of a cell under its first active fault, or its own value.
func (s *Session) readCell(c *cell, b *gpu.Batch, now int64) {
	i := slices.IndexFunc(c.faults, func(f *fault) bool { return f.within(now) })
	if i < 0 {
		s.readOwn(c, b, now)
		return
	}
	f, field := c.faults[i], &s.plan.Fields[c.field]
	unit, _ := f.unitOf(field.ID, c.base)
	v := f.value(field, unit, now)
	switch n, _ := v.Number(); {
	case absentReasons[f.Reason] != nil:
		b.Fail(c.row, c.field, absentReasons[f.Reason])
	case f.Reason == "stale":
		b.AddAt(c.row, c.field, c.kept.Value, c.kept.Time)
	case field.ID != catalog.XIDErrors:
		b.AddAt(c.row, c.field, v, now) // v is absent if the fault has no value
	case n != 0:
		b.XIDs = append(b.XIDs, gpu.XID{Row: c.row, Code: int64(n), ID: now, Time: now})
	}
}

// readOwn appends the value of a cell without a fault.
func (s *Session) readOwn(c *cell, b *gpu.Batch, now int64) {
	switch {
	case c.rule.isEmpty():
		b.Fail(c.row, c.field, c.err)
		return
	case c.base == catalog.XIDErrors:
		s.readXIDs(c, b, now)
		return
	case s.plan.Fields[c.field].AllSamples:
		s.trailReasons(c, b, now)
	}
	if c.kept.Time == 0 || now-c.kept.Time >= c.interval || now < c.kept.Time {
		c.kept = gpu.Sample{Value: s.value(c), Time: now}
	}
	b.AddAt(c.row, c.field, c.kept.Value, c.kept.Time)
}

// trail appends a sample to the trail of its cell unless it is there already.
func (c *cell) trail(b *gpu.Batch, v gpu.Value, at int64) {
	if at > c.trailed {
		c.trailed = at
		b.TrailAt(c.row, c.field, v, at)
	}
}

func (s *Session) value(c *cell) gpu.Value {
	in := input{&s.views[c.row], c.rule, c.n}
	if c.rule.text != nil {
		return gpu.Text(c.rule.text(in))
	}
	n := c.rule.number(in)
	v := gpu.Float(n)
	if c.integer {
		v = gpu.Int(int64(math.Floor(n)))
	}
	v = v.Scale(c.factor)
	if n, ok := v.Number(); ok && c.whole {
		v = gpu.Int(int64(math.Floor(n)))
	}
	return v
}

// readXIDs appends the XIDs since the previous Read, oldest first. If there was none since Open, the first Read appends
// the latest one from before.
func (s *Session) readXIDs(c *cell, b *gpu.Batch, now int64) {
	var past []gpu.XID
	for f := range s.world.faultsOf(faultXID) {
		for i, xid := range f.XIDs {
			if at := f.occurs(i); at <= now && f.seenBy("engine") && f.on(s.views[c.row].dev) {
				past = append(past, gpu.XID{Row: c.row, Code: xid, ID: at, Time: at})
			}
		}
	}
	slices.SortStableFunc(past, func(a, b gpu.XID) int { return cmp.Compare(a.Time, b.Time) })
	fresh := slices.IndexFunc(past, func(x gpu.XID) bool { return x.Time > s.last })
	if fresh < 0 && s.wasRead {
		return
	}
	if fresh < 0 {
		fresh = max(len(past)-1, 0)
	}
	b.XIDs = append(b.XIDs, past[fresh:]...)
}

// trailReasons appends every change of the clock event reasons since the previous Read.
func (s *Session) trailReasons(c *cell, b *gpu.Batch, now int64) {
	if now < s.last { // the clock was set back
		c.trailed = 0
	}
	g := s.views[c.row].gpu
	for _, at := range g.reasonEdges(s.last, now) {
		c.trail(b, gpu.Int(g.reasonsAt(at)), at)
	}
}

// readProcesses reports the processes of the requested rows like NVML: memory in bytes and, outside of MIG, utilization
// in whole percent since the previous Read. It also reports the GPU's mean utilization over that time, since the
// utilization field is a momentary value.
func (s *Session) readProcesses(req gpu.ReadRequest, b *gpu.Batch, now int64) {
	seconds := float64(now-s.last) / 1e9
	mean := func(k *track, before *float64) float64 {
		since := k.total[levelGraphics] - *before
		*before = k.total[levelGraphics]
		if seconds <= 0 {
			return min(k.now[levelGraphics], 1)
		}
		return min(since/seconds, 1)
	}
	for row := range s.views {
		v, busy := &s.views[row], s.busy[row]
		isWanted := req.WantsProcesses(row) && !s.down[row]
		switch {
		case busy != nil:
			if m := mean(&v.slot.track, &busy[0]); isWanted {
				b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(m)})
			}
		case !isWanted:
		case v.slot == nil:
			b.FailPart(row, gpu.PartProcesses, gpu.ErrNotSupported)
		default:
			b.FailPart(row, gpu.PartProcessBusy, errNoBusy)
		}
		if v.slot == nil {
			continue
		}
		for i, p := range v.slot.pods {
			process := gpu.Process{
				Row: row, PID: firstPID + uint32(p.index), Time: now, Memory: gpu.Int(int64(p.now[levelMemory]) << 20),
			}
			if busy != nil {
				process.Busy = gpu.Float(math.Round(100*mean(&p.track, &busy[1+i])) / 100)
			}
			if isWanted {
				b.Processes = append(b.Processes, process)
			}
		}
	}
}

// errNoBusy is what NVML returns for the utilization of processes on MIG devices.
var errNoBusy = fmt.Errorf("sim: the utilization of processes under MIG: %w", gpu.ErrNotSupported)

// readPeers reports the state of NVLink from every GPU to every other.
func (s *Session) readPeers(b *gpu.Batch) {
	rows := slices.DeleteFunc(s.topology.RowsOf(gpu.KindsOf(gpu.KindGPU)), func(row int) bool { return s.down[row] })
	for _, row := range rows {
		for _, peer := range rows {
			if row == peer {
				continue
			}
			from, to := s.views[row].gpu, s.views[peer].gpu
			status := "NotSupported" // a GPU in MIG mode has no peers
			if s.world.linked(from, to) && !from.partitioned && !to.partitioned {
				status = "OK"
			}
			b.Peers = append(b.Peers, gpu.PeerState{Row: row, Peer: peer, Status: status})
		}
	}
}
