package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Replay is a source that plays a recording over and over. A Read finds what
// the recording's latest Read before that time of its round found. Gauges are
// as recorded; counters go on growing from round to round, at the pace of the
// recording; events befall anew at the same time of every round, as do faults.
//
// What was recorded is all there is: a field that was not recorded is not
// supported, and an entity that was not there is not there.
type Replay struct {
	rec    *Recording
	now    func() time.Time
	start  int64
	round  int64 // its length in nanoseconds
	growth map[recordedCell]growth

	opened, closed atomic.Int64
}

// recordedCell is a row and a field of a recording.
type recordedCell struct{ row, field int }

// growth is what a counter gains in a round.
type growth struct {
	integer int64
	float   float64
}

// NewReplay returns a source that plays rec on the clock of the options and
// from their start on. Their other members are not used.
func NewReplay(rec *Recording, o Options) *Replay {
	r := &Replay{rec: rec, now: o.Now, round: rec.Reads[len(rec.Reads)-1].At + int64(rec.Interval)}
	if r.now == nil {
		r.now = time.Now
	}
	if o.Start.IsZero() {
		o.Start = r.now()
	}
	r.start = o.Start.UnixNano()
	r.grow()
	return r
}

// grow finds out what every counter gains in a round.
func (r *Replay) grow() {
	type span struct{ first, last gpu.Sample }
	spans := map[recordedCell]*span{}
	for i := range r.rec.Reads {
		for _, s := range r.rec.Reads[i].Batch.Samples {
			e, known := catalog.ByID(r.rec.Fields[s.Field].ID)
			if !known || !e.Monotonic {
				continue
			}
			s.Time = r.rec.Reads[i].At
			cell := recordedCell{s.Row, s.Field}
			if spans[cell] == nil {
				spans[cell] = &span{first: s}
			}
			spans[cell].last = s
		}
	}
	r.growth = map[recordedCell]growth{}
	for cell, s := range spans {
		elapsed := s.last.Time - s.first.Time
		if elapsed <= 0 {
			continue
		}
		more := float64(r.round-elapsed) / float64(elapsed)
		from, ok := s.first.Value.Int64()
		to, also := s.last.Value.Int64()
		if ok && also {
			if gain := to - from; to > from && gain > 0 {
				rest := math.Min(float64(gain)*more, 1<<62)
				r.growth[cell] = growth{integer: saturated(gain, int64(rest))}
			}
			continue
		}
		a, _ := s.first.Value.Number()
		b, _ := s.last.Value.Number()
		if gain := b - a; gain > 0 {
			r.growth[cell] = growth{float: gain * (1 + more)}
		}
	}
}

// saturated is a+b for numbers of which b is not negative, and the largest
// number that is no sentinel of DCGM's where that is too large.
func saturated(a, b int64) int64 {
	const largest = math.MaxInt64 - 0xff
	if a > largest-b {
		return max(a, largest)
	}
	return a + b
}

// after returns the value of a counter in a later round.
func (g growth) after(v gpu.Value, rounds int64) gpu.Value {
	n, integer := v.Int64()
	if !integer {
		x, _ := v.Number()
		if grown := x + (g.float+float64(g.integer))*float64(rounds); !math.IsInf(grown, 0) {
			return gpu.Float(grown)
		}
		return v
	}
	each := saturated(g.integer, int64(math.Min(g.float, 1<<62)))
	if each > 0 && rounds > math.MaxInt64/each {
		return gpu.Int(saturated(n, math.MaxInt64/2))
	}
	return gpu.Int(saturated(n, each*rounds))
}

// OpenHandles returns how many sessions are open.
func (r *Replay) OpenHandles() int { return int(r.opened.Load() - r.closed.Load()) }

// Open starts a session for the plan.
func (r *Replay) Open(ctx context.Context, plan *gpu.Plan) (*ReplaySession, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sim: open: %w", err)
	}
	s := &ReplaySession{src: r, plan: plan, last: r.now().UnixNano(), done: make(chan struct{})}
	s.choose()
	s.relate()
	s.gather()
	r.opened.Add(1)
	return s, nil
}

// A ReplaySession plays the entities and fields of a recording that a plan
// asks for. Read and Close are not safe for concurrent use with each other.
type ReplaySession struct {
	src      *Replay
	plan     *gpu.Plan
	topology *gpu.Topology
	rows     []int        // of the recording → ours, -1 for none
	fields   [][]fieldUse // of the recording → the plan's
	missing  []int        // fields of the plan that were not recorded
	events   []*eventCell // in the order of their cells
	of       map[recordedCell]*eventCell
	last     int64          // when it was read last
	read     bool           // it was
	newest   map[[2]int]int // scratch: cell → its place in the batch
	down     map[int]bool   // scratch: rows that are lost
	closed   atomic.Bool
	done     chan struct{}
}

// A fieldUse is a field of the plan that a recorded field serves.
type fieldUse struct {
	field  int
	factor float64
}

// An eventCell has the samples of a field of which every sample matters.
type eventCell struct {
	row, field int // ours
	factor     float64
	events     []recordedEvent // in the order of their times, which count from the start of the recording
	isXID      bool
	growth     growth
	grows      bool

	seen  bool       // in the present Read
	state gpu.Sample // the newest of it; not of XIDs
}

// A recordedEvent is a sample of a Read.
type recordedEvent struct {
	gpu.Sample
	read int // index of the recording's Reads
}

// choose selects the entities as the other sources do.
func (s *ReplaySession) choose() {
	all := s.src.rec.Topology
	var levels gpu.Kinds
	for i := range s.plan.Fields {
		levels |= s.plan.Fields[i].Levels
	}
	var devices []gpu.Device
	s.rows = make([]int, len(all.Devices))
	for row := range all.Devices {
		d := all.Devices[row]
		s.rows[row] = -1
		if !selected(s.plan, levels, all, row) {
			continue
		}
		if !s.plan.Placement {
			d.Place = nil
		}
		s.rows[row] = len(devices)
		devices = append(devices, d)
	}
	t := gpu.NewTopology(devices)
	t.Source, t.Driver, t.Library, t.Engine, t.Host = "sim", all.Driver, all.Library, all.Engine, all.Host
	for _, c := range all.Divided {
		if c.Instance = s.rows[c.Instance]; c.Instance >= 0 {
			t.Divided = append(t.Divided, c)
		}
	}
	if s.plan.Placement {
		for _, p := range all.Pairs {
			if p.A, p.B = s.rows[p.A], s.rows[p.B]; p.A >= 0 && p.B >= 0 {
				t.Pairs = append(t.Pairs, p)
			}
		}
	}
	s.topology = t
}

// selected reports whether the plan selects the entity of a row of t.
func selected(p *gpu.Plan, levels gpu.Kinds, t *gpu.Topology, row int) bool {
	e := t.Devices[row].Entity
	switch e.Kind {
	case gpu.KindGPU:
		return p.Devices.HasMajor(e.ID)
	case gpu.KindGPUInstance:
		return p.Devices.HasMinor(e.ID)
	case gpu.KindNVSwitch:
		return levels.Has(e.Kind) && p.Switches.HasMajor(e.ID)
	case gpu.KindCPU:
		return levels.Has(e.Kind) && p.CPUs.HasMajor(e.ID)
	case gpu.KindCPUCore:
		return levels.Has(e.Kind) && p.CPUs.HasMinor(e.ID)
	case gpu.KindNVLink:
		if e.ParentKind == gpu.KindNVSwitch {
			return levels.Has(e.Kind) && p.Switches.HasMinor(e.ID)
		}
		return levels.Has(e.Kind) && p.Devices.HasMajor(e.Parent)
	case gpu.KindComputeInstance:
		up := t.InstanceRow(row)
		return levels.Has(e.Kind) && p.Devices.Compute && up >= 0 && p.Devices.HasMinor(t.Devices[up].Entity.ID)
	default:
		return levels.Has(e.Kind)
	}
}

// relate finds the recorded field of every field of the plan: that of its id,
// or the older one of the same measurement.
func (s *ReplaySession) relate() {
	recorded := map[gpu.FieldID]int{}
	for i, f := range s.src.rec.Fields {
		recorded[f.ID] = i
	}
	s.fields = make([][]fieldUse, len(recorded))
	for i := range s.plan.Fields {
		f := &s.plan.Fields[i]
		at, ok := recorded[f.ID]
		if e, known := catalog.ByID(f.ID); !ok && known && e.BaseOf != 0 {
			at, ok = recorded[e.BaseOf]
		}
		if !ok {
			s.missing = append(s.missing, i)
			continue
		}
		s.fields[at] = append(s.fields[at], fieldUse{i, conversion(s.src.rec.Fields[at].Unit, f.Unit)})
	}
}

// gather collects the events of the recording.
func (s *ReplaySession) gather() {
	s.of = map[recordedCell]*eventCell{}
	s.newest, s.down = map[[2]int]int{}, map[int]bool{}
	for i := range s.src.rec.Reads {
		for _, x := range s.src.rec.Reads[i].Batch.Samples {
			row := s.rows[x.Row]
			for _, u := range s.fields[x.Field] {
				f := &s.plan.Fields[u.field]
				if row < 0 || !f.EverySample() || f.Text != x.Value.IsText() || !f.Levels.Has(s.topology.Devices[row].Entity.Kind) {
					continue
				}
				key := recordedCell{row, u.field}
				c := s.of[key]
				if c == nil {
					c = &eventCell{row: row, field: u.field, factor: u.factor, isXID: f.ID == catalog.XIDErrors}
					c.growth, c.grows = s.src.growth[recordedCell{x.Row, x.Field}]
					s.of[key] = c
					s.events = append(s.events, c)
				}
				if n, number := x.Value.Number(); c.isXID && (n == 0 || !number) {
					continue // nothing had happened
				}
				c.events = append(c.events, recordedEvent{x, i})
			}
		}
	}
	for _, c := range s.events {
		c.dropRepeated()
	}
}

// dropRepeated puts the events into the order of their times. A Read that found
// nothing new may have reported the latest event again; equal ones of one Read
// are as many.
func (c *eventCell) dropRepeated() {
	slices.SortStableFunc(c.events, func(a, b recordedEvent) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(a.Value.String(), b.Value.String()), cmp.Compare(a.read, b.read))
	})
	kept, best := c.events[:0], 0
	for i := 0; i < len(c.events); {
		same, first := i, i
		for ; same < len(c.events) && c.events[same].Time == c.events[i].Time && c.events[same].Value == c.events[i].Value; same++ {
			if c.events[same].read != c.events[first].read {
				first = same
			}
			best = max(best, same-first+1)
		}
		kept = append(kept, c.events[i:i+best]...)
		i, best = same, 0
	}
	c.events = kept
}

// Topology returns the entities of the session.
func (s *ReplaySession) Topology() *gpu.Topology { return s.topology }

// Done is never closed: a recording has one topology.
func (s *ReplaySession) Done() <-chan struct{} { return s.done }

// Err returns nil.
func (s *ReplaySession) Err() error { return nil }

// Close lets go of the session.
func (s *ReplaySession) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.src.closed.Add(1)
	}
	return nil
}

// Read appends what was recorded of this time of the round.
func (s *ReplaySession) Read(ctx context.Context, b *gpu.Batch) error {
	if s.closed.Load() {
		return fmt.Errorf("sim: read: %w", errClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sim: read: %w", err)
	}
	now := s.src.now().UnixNano()
	elapsed := max(now-s.src.start, 0)
	rounds, at := elapsed/s.src.round, elapsed%s.src.round
	reads := s.src.rec.Reads
	next, exact := slices.BinarySearchFunc(reads, at, func(r RecordedRead, at int64) int { return cmp.Compare(r.At, at) })
	if exact {
		next++
	}
	r := &reads[next-1] // the first is at 0
	s.faults(r, b)
	s.samples(r, b, now, rounds)
	for _, c := range s.events {
		if c.isXID {
			s.playXIDs(c, r, b, now, elapsed)
		} else {
			s.play(c, b, now, elapsed)
		}
	}
	s.others(r, b, now)
	s.last, s.read = now, true
	return nil
}

var errNotRecorded = errors.New("sim: the recording does not have it")

func (s *ReplaySession) faults(r *RecordedRead, b *gpu.Batch) {
	clear(s.down)
	for _, field := range s.missing {
		b.Fail(gpu.AllRows, field, fmt.Errorf("%w: %w", errNotRecorded, gpu.ErrNotSupported))
	}
	for _, f := range r.Batch.Faults {
		row := gpu.AllRows
		if f.Row != gpu.AllRows {
			if row = s.rows[f.Row]; row < 0 {
				continue
			}
		}
		switch f.Field {
		case gpu.AllFields:
			s.down[row] = true
			b.Fail(row, f.Field, f.Err)
		case gpu.FieldProcesses, gpu.FieldProcessBusy:
			if row >= 0 && row < len(b.WantProcesses) && b.WantProcesses[row] {
				b.Fail(row, f.Field, f.Err)
			}
		case gpu.FieldHealthChecks:
			if s.plan.Health {
				b.Fail(row, f.Field, f.Err)
			}
		case gpu.FieldPeerStates:
			if s.plan.Peers {
				b.Fail(row, f.Field, f.Err)
			}
		default:
			for _, u := range s.fields[f.Field] {
				if row == gpu.AllRows || s.plan.Fields[u.field].Levels.Has(s.topology.Devices[row].Entity.Kind) {
					b.Fail(row, u.field, f.Err)
				}
			}
		}
	}
}

// age returns how old something of the recording is now. Where the plan reads
// more often than the recording did, ages shrink with the interval: what was
// fresh there is fresh here.
func (s *ReplaySession) age(r *RecordedRead, t int64, field int) int64 {
	age := r.At - t
	interval := s.plan.Interval
	if field >= 0 {
		interval = s.plan.IntervalOf(field)
	}
	if interval > 0 && interval < s.src.rec.Interval {
		age = int64(float64(age) * float64(interval) / float64(s.src.rec.Interval))
	}
	return age
}

// samples reports the newest sample of every cell; the events are played apart.
func (s *ReplaySession) samples(r *RecordedRead, b *gpu.Batch, now, rounds int64) {
	clear(s.newest)
	for _, c := range s.events {
		c.seen = false
	}
	for _, x := range r.Batch.Samples {
		row := s.rows[x.Row]
		if row < 0 || s.down[row] || s.down[gpu.AllRows] {
			continue
		}
		for _, u := range s.fields[x.Field] {
			f := &s.plan.Fields[u.field]
			if !f.Levels.Has(s.topology.Devices[row].Entity.Kind) || f.Text != x.Value.IsText() {
				continue
			}
			v := x.Value
			if g, grows := s.src.growth[recordedCell{x.Row, x.Field}]; grows {
				v = g.after(v, rounds)
			}
			if u.factor != 1 {
				v = v.Scale(u.factor)
			}
			out := gpu.Sample{Row: row, Field: u.field, Value: v, Time: now - s.age(r, x.Time, u.field)}
			if c := s.of[recordedCell{row, u.field}]; c != nil {
				if !c.seen || out.Time >= c.state.Time {
					c.seen, c.state = true, out
				}
				continue
			}
			cell := [2]int{row, u.field}
			if i, dup := s.newest[cell]; dup {
				if b.Samples[i].Time <= out.Time {
					b.Samples[i] = out
				}
				continue
			}
			if v.IsAbsent() {
				continue
			}
			s.newest[cell] = len(b.Samples)
			b.Samples = append(b.Samples, out)
		}
	}
}

// play reports the samples of a state since the last Read, oldest first, of one
// round at most, and where there is none the state that was recorded.
func (s *ReplaySession) play(c *eventCell, b *gpu.Batch, now, elapsed int64) {
	if !c.seen {
		return // lost, or not served at this time of the round
	}
	from := max(s.last, now-s.src.round)
	first := len(b.Samples)
	s.each(c, now, elapsed, func(v gpu.Value, at int64) {
		if at > from {
			b.Samples = append(b.Samples, gpu.Sample{Row: c.row, Field: c.field, Value: v, Time: at})
		}
	})
	if len(b.Samples) == first || b.Samples[len(b.Samples)-1].Time < c.state.Time {
		b.Samples = append(b.Samples, c.state)
	}
}

// playXIDs reports the XIDs since the last Read, of one round at most. The first
// Read reports the latest one of before, if there was none since the session
// began.
func (s *ReplaySession) playXIDs(c *eventCell, r *RecordedRead, b *gpu.Batch, now, elapsed int64) {
	if s.down[c.row] || s.down[gpu.AllRows] || s.fails(c, r) {
		return
	}
	from := max(s.last, now-s.src.round)
	first := len(b.XIDs)
	var last gpu.XID
	s.each(c, now, elapsed, func(v gpu.Value, at int64) {
		n, _ := v.Number()
		last = gpu.XID{Row: c.row, Code: int64(n), ID: at, Time: at}
		if at > from {
			b.XIDs = append(b.XIDs, last)
		}
	})
	if !s.read && len(b.XIDs) == first && last.Time > 0 {
		b.XIDs = append(b.XIDs, last)
	}
}

// fails reports whether the Read of the recording could not read a cell.
func (s *ReplaySession) fails(c *eventCell, r *RecordedRead) bool {
	for _, f := range r.Batch.Faults {
		if f.Field >= 0 && (f.Row == gpu.AllRows || s.rows[f.Row] == c.row) &&
			slices.ContainsFunc(s.fields[f.Field], func(u fieldUse) bool { return u.field == c.field }) {
			return true
		}
	}
	return false
}

// each yields what happened until now in the order of the times, of the present
// round and the one before it.
func (s *ReplaySession) each(c *eventCell, now, elapsed int64, yield func(v gpu.Value, at int64)) {
	round, start := s.src.round, s.src.start
	happened := func(e *recordedEvent, n int64) {
		v := e.Value
		if c.grows {
			v = c.growth.after(v, n)
		}
		yield(v.Scale(c.factor), start+n*round+e.Time)
	}
	for i := range c.events {
		if e := &c.events[i]; e.Time <= 0 && start+e.Time <= now { // before the recording began
			happened(e, 0)
		}
	}
	for n := max(elapsed/round-1, 0); n <= elapsed/round; n++ {
		for i := range c.events {
			if e := &c.events[i]; e.Time > 0 && start+n*round+e.Time <= now {
				happened(e, n)
			}
		}
	}
}

// others reports processes, health and peers as they were recorded.
func (s *ReplaySession) others(r *RecordedRead, b *gpu.Batch, now int64) {
	for _, p := range r.Batch.Processes {
		if p.Row = s.rows[p.Row]; p.Row >= 0 && p.Row < len(b.WantProcesses) && b.WantProcesses[p.Row] {
			p.Time = now - s.age(r, p.Time, -1)
			b.Processes = append(b.Processes, p)
		}
	}
	for _, u := range r.Batch.Utilizations {
		if u.Row = s.rows[u.Row]; u.Row >= 0 && u.Row < len(b.WantProcesses) && b.WantProcesses[u.Row] {
			b.Utilizations = append(b.Utilizations, u)
		}
	}
	if s.plan.Health {
		for _, h := range r.Batch.Health {
			if h.Row = s.rows[h.Row]; h.Row >= 0 {
				h.Time = now - s.age(r, h.Time, -1)
				b.Health = append(b.Health, h)
			}
		}
	}
	if s.plan.Peers {
		for _, p := range r.Batch.Peers {
			if p.Row, p.Peer = s.rows[p.Row], s.rows[p.Peer]; p.Row >= 0 && p.Peer >= 0 {
				b.Peers = append(b.Peers, p)
			}
		}
	}
}

// PodOf returns the UID of the pod that a recorded process belongs to, "" where
// it belongs to none.
func (r *Replay) PodOf(pid uint32) (string, error) { return r.rec.Pods[pid], nil }

// Owners returns what each recorded attributor said.
func (r *Replay) Owners() []*ReplayOwners {
	list := make([]*ReplayOwners, len(r.rec.Owners))
	for i := range list {
		list[i] = &ReplayOwners{rec: r.rec, said: &r.rec.Owners[i]}
	}
	return list
}

// ReplayOwners is an attributor that says what a recorded one said.
type ReplayOwners struct {
	rec  *Recording
	said *RecordedOwners

	mu       sync.Mutex // guards what follows, the latest answer
	topology *gpu.Topology
	owners   *gpu.Owners
	count    uint64
}

// Name returns the name of the recorded attributor.
func (o *ReplayOwners) Name() string { return o.said.Attributor }

// Attribute returns the recorded owners of the entities of t.
func (o *ReplayOwners) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.topology == t {
		return o.owners, nil
	}
	o.count++
	owners := &gpu.Owners{Generation: o.count, Labels: make([][]gpu.Label, len(t.Devices)), Uses: make([]gpu.Use, len(t.Devices))}
	for row := range t.Devices {
		from, ok := o.rec.Topology.Row(t.Devices[row].Entity)
		if ok && from < len(o.said.Labels) {
			owners.Labels[row] = o.said.Labels[from]
		}
		if ok && from < len(o.said.Uses) {
			owners.Uses[row] = o.said.Uses[from]
		}
	}
	o.topology, o.owners = t, owners
	return owners, nil
}
