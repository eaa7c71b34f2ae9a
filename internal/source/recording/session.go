package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Session plays the entities and fields of a recording that a plan requests. Read and Close are
// not safe for concurrent use with each other.
type Session struct {
	src      *Source
	plan     *gpu.Plan
	topology *gpu.Topology
	rows     []int     // of the recording → ours, -1 for none
	targets  [][]match // field of the recording → fields of the plan
	missing  []int     // fields of the plan that were not recorded
	events   []*trail  // in the order of their cells
	of       map[cell]*trail
	last     int64 // when it was read last
	read     bool  // it was
	closed   atomic.Bool

	gpu.Lifecycle // never over: a recording has one topology

	newest map[cell]int // scratch: its place in the batch
	down   map[int]bool // scratch: rows that are lost
}

var (
	errClosed      = fmt.Errorf("session is closed: %w", gpu.ErrUnavailable)
	errNotRecorded = errors.New("the recording does not have it")
)

// A match is a field of the plan that a recorded field serves.
type match struct {
	field  int
	factor float64 // from the recorded unit
}

func newSession(src *Source, plan *gpu.Plan) *Session {
	s := &Session{
		src: src, plan: plan, last: src.now().UnixNano(), Lifecycle: gpu.NewLifecycle(),
		of: map[cell]*trail{}, newest: map[cell]int{}, down: map[int]bool{},
	}
	s.selectDevices()
	s.matchFields()
	s.collectEvents()
	return s
}

// selectDevices selects the entities as the other sources do.
func (s *Session) selectDevices() {
	all := s.src.topology
	var devices []gpu.Device
	s.rows = make([]int, len(all.Devices))
	for row, d := range all.Devices {
		if s.rows[row] = -1; selected(s.plan, all, row) {
			s.rows[row] = len(devices)
			devices = append(devices, d)
		}
	}
	if !s.plan.Placement {
		for i := range devices {
			devices[i].Place = nil
		}
	}
	t := gpu.NewTopology(devices)
	t.Source, t.Driver, t.Library, t.Engine, t.Host = "sim", all.Driver, all.Library, all.Engine, all.Host
	for _, c := range all.ComputeInstances {
		if c.Instance = s.rows[c.Instance]; c.Instance >= 0 {
			t.ComputeInstances = append(t.ComputeInstances, c)
		}
	}
	for _, p := range all.Pairs {
		if p.A, p.B = s.rows[p.A], s.rows[p.B]; s.plan.Placement && p.A >= 0 && p.B >= 0 {
			t.Pairs = append(t.Pairs, p)
		}
	}
	s.topology = t
}

// selected reports whether the plan selects the entity of a row of t.
func selected(p *gpu.Plan, t *gpu.Topology, row int) bool {
	e := t.Devices[row].Entity
	if e.Kind != gpu.KindComputeInstance {
		return p.Selects(e)
	}
	up := t.InstanceRow(row)
	return p.Selects(e) && up >= 0 && p.Selects(t.Devices[up].Entity)
}

// matchFields finds the recorded field of every field of the plan: that of its id, or the older one
// of the same measurement.
func (s *Session) matchFields() {
	recorded := map[gpu.FieldID]int{}
	for i, f := range s.src.fields {
		recorded[f.ID] = i
	}
	s.targets = make([][]match, len(s.src.fields))
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
		factor, ok := catalog.Conversion(s.src.fields[at].Unit, f.Unit)
		if !ok {
			factor = 1
		}
		s.targets[at] = append(s.targets[at], match{i, factor})
	}
}

// matches yields the row and the fields of the plan that a recorded sample serves.
func (s *Session) matches(x *gpu.Sample, yield func(row int, m match)) {
	row := s.rows[x.Row]
	if row < 0 {
		return
	}
	kind := s.topology.Devices[row].Entity.Kind
	for _, m := range s.targets[x.Field] {
		if f := &s.plan.Fields[m.field]; f.Levels.Has(kind) && f.Text == x.Value.IsText() {
			yield(row, m)
		}
	}
}

// Topology returns the entities of the session.
func (s *Session) Topology() *gpu.Topology { return s.topology }

// Close releases the session.
func (s *Session) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.src.closed.Add(1)
	}
	return nil
}

// Read appends what was recorded of this time of the round.
func (s *Session) Read(ctx context.Context, b *gpu.Batch) error {
	if s.closed.Load() {
		return fmt.Errorf("recording: read: %w", errClosed)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("recording: read: %w", err)
	}
	now := s.src.now().UnixNano()
	elapsed := max(now-s.src.start, 0)
	rounds, at := elapsed/s.src.round, elapsed%s.src.round
	next, exact := slices.BinarySearchFunc(s.src.moments, at, func(m moment, at int64) int { return cmp.Compare(m.at, at) })
	if exact {
		next++
	}
	m := &s.src.moments[next-1] // the first is at 0
	s.faults(m, b)
	s.samples(m, b, now, rounds)
	for _, c := range s.events {
		if c.isXID {
			s.playXIDs(c, m, b, now, elapsed)
		} else {
			s.play(c, b, now, elapsed, now-at+m.at)
		}
	}
	s.others(m, b, now)
	s.last, s.read = now, true
	return nil
}

func (s *Session) faults(m *moment, b *gpu.Batch) {
	clear(s.down)
	for _, field := range s.missing {
		b.Fail(gpu.AllRows, field, fmt.Errorf("recording: %w: %w", errNotRecorded, gpu.ErrNotSupported))
	}
	for _, f := range m.batch.Faults {
		row := gpu.AllRows
		if f.Row != gpu.AllRows {
			if row = s.rows[f.Row]; row < 0 {
				continue
			}
		}
		if f.Field == gpu.AllFields {
			s.down[row] = true
		}
		if f.Field < 0 {
			if s.requested(b, row, f.Field) {
				b.Fail(row, f.Field, f.Err)
			}
			continue
		}
		for _, u := range s.targets[f.Field] {
			if row == gpu.AllRows || s.plan.Fields[u.field].Levels.Has(s.topology.Devices[row].Entity.Kind) {
				b.Fail(row, u.field, f.Err)
			}
		}
	}
}

// requested reports whether a Read has what a fault of no field is of.
func (s *Session) requested(b *gpu.Batch, row, field int) bool {
	switch field {
	case gpu.FieldProcesses, gpu.FieldProcessBusy:
		return requestsProcesses(b, row)
	case gpu.FieldHealthChecks:
		return s.plan.Health
	case gpu.FieldPeerStates:
		return s.plan.Peers
	default:
		return true
	}
}

func requestsProcesses(b *gpu.Batch, row int) bool {
	return row >= 0 && row < len(b.RequestProcesses) && b.RequestProcesses[row]
}

// age returns how old something of the recording is now. Where the plan reads more often than the
// recording did, ages shrink with the interval: what was fresh there is fresh here.
func (s *Session) age(m *moment, t int64, field int) int64 {
	age := m.at - t
	interval := s.plan.Interval
	if field >= 0 {
		interval = s.plan.IntervalOf(field)
	}
	if interval > 0 && interval < s.src.interval {
		age = int64(float64(age) * float64(interval) / float64(s.src.interval))
	}
	return age
}

// samples reports the newest sample of every cell; the events are played apart.
func (s *Session) samples(m *moment, b *gpu.Batch, now, rounds int64) {
	clear(s.newest)
	for _, c := range s.events {
		c.seen = false
	}
	for i := range m.batch.Samples {
		x := &m.batch.Samples[i]
		v := s.src.growth[cell{x.Row, x.Field}].after(x.Value, rounds)
		s.matches(x, func(row int, u match) {
			if !s.down[row] && !s.down[gpu.AllRows] {
				s.sample(b, gpu.Sample{Row: row, Field: u.field, Value: v.Scale(u.factor), Time: now - s.age(m, x.Time, u.field)})
			}
		})
	}
}

// sample reports a sample unless there is a newer one of its cell.
func (s *Session) sample(b *gpu.Batch, x gpu.Sample) {
	at := cell{x.Row, x.Field}
	if c := s.of[at]; c != nil {
		if !c.seen || x.Time >= c.state.Time {
			c.seen, c.state = true, x
		}
		return
	}
	i, again := s.newest[at]
	switch {
	case !again && !x.Value.IsAbsent():
		s.newest[at] = len(b.Samples)
		b.Samples = append(b.Samples, x)
	case again && b.Samples[i].Time <= x.Time:
		b.Samples[i] = x
	}
}

// others reports processes, health and peers as they were recorded.
func (s *Session) others(m *moment, b *gpu.Batch, now int64) {
	for _, p := range m.batch.Processes {
		if p.Row = s.rows[p.Row]; requestsProcesses(b, p.Row) {
			p.Time = now - s.age(m, p.Time, -1)
			b.Processes = append(b.Processes, p)
		}
	}
	for _, u := range m.batch.Utilizations {
		if u.Row = s.rows[u.Row]; requestsProcesses(b, u.Row) {
			b.Utilizations = append(b.Utilizations, u)
		}
	}
	for _, h := range m.batch.Health {
		if h.Row = s.rows[h.Row]; s.plan.Health && h.Row >= 0 {
			h.Time = now - s.age(m, h.Time, -1)
			b.Health = append(b.Health, h)
		}
	}
	for _, p := range m.batch.Peers {
		if p.Row, p.Peer = s.rows[p.Row], s.rows[p.Peer]; s.plan.Peers && p.Row >= 0 && p.Peer >= 0 {
			b.Peers = append(b.Peers, p)
		}
	}
}

// A trail has the samples of a cell of which every sample matters.
type trail struct {
	cell   // ours
	factor float64
	events []event // in the order of their times, which count from the start of the recording
	isXID  bool
	growth growth

	seen    bool       // in the present Read
	state   gpu.Sample // the newest of it; not of XIDs
	trailed int64      // the time of the latest sample that was reported in the trail
}

// An event is a sample of a moment.
type event struct {
	gpu.Sample
	moment int
}

// collectEvents collects the events of the recording.
func (s *Session) collectEvents() {
	for i := range s.src.moments {
		samples := s.src.moments[i].batch.Samples
		for j := range samples {
			x := &samples[j]
			s.matches(x, func(row int, m match) {
				if f := &s.plan.Fields[m.field]; f.Every || f.ID == catalog.XIDErrors {
					s.trail(row, m, x).add(event{*x, i})
				}
			})
		}
	}
	for _, c := range s.events {
		c.dropRepeated()
	}
}

// trail returns the trail of the cell that a recorded sample serves.
func (s *Session) trail(row int, m match, x *gpu.Sample) *trail {
	at := cell{row, m.field}
	if s.of[at] == nil {
		s.of[at] = &trail{
			cell: at, factor: m.factor, growth: s.src.growth[cell{x.Row, x.Field}],
			isXID: s.plan.Fields[m.field].ID == catalog.XIDErrors,
		}
		s.events = append(s.events, s.of[at])
	}
	return s.of[at]
}

// add adds an event, unless it says that there was no XID.
func (c *trail) add(e event) {
	if n, number := e.Value.Number(); !c.isXID || number && n != 0 {
		c.events = append(c.events, e)
	}
}

// dropRepeated puts the events into the order of their times. A Read that found nothing new may
// have reported the latest event again; equal ones of one Read are as many.
func (c *trail) dropRepeated() {
	slices.SortStableFunc(c.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), strings.Compare(a.Value.String(), b.Value.String()), cmp.Compare(a.moment, b.moment))
	})
	kept, best := c.events[:0], 0
	for i := 0; i < len(c.events); {
		same, first := i, i
		for ; same < len(c.events) && c.events[same].Time == c.events[i].Time && c.events[same].Value == c.events[i].Value; same++ {
			if c.events[same].moment != c.events[first].moment {
				first = same
			}
			best = max(best, same-first+1)
		}
		kept = append(kept, c.events[i:i+best]...)
		i, best = same, 0
	}
	c.events = kept
}

// play reports the newest sample of a state, and as its trail those since the last Read, oldest
// first, of one round at most. Between recorded samples the state is sampled by each Read. The
// state of the recorded Read was that of its time; what was sampled after it is newer.
func (s *Session) play(c *trail, b *gpu.Batch, now, elapsed, recorded int64) {
	if !c.seen {
		return // lost, or not served at this time of the round
	}
	from := max(s.last, now-s.src.round)
	newest := c.state
	s.each(c, now, elapsed, func(v gpu.Value, at int64) {
		if at > from {
			c.report(b, v, at)
		}
		if at > recorded {
			newest.Value, newest.Time = v, max(at, newest.Time)
		}
	})
	c.report(b, newest.Value, newest.Time)
	b.AddAt(newest.Row, newest.Field, newest.Value, newest.Time)
}

// report reports a sample in the trail, unless it was before.
func (c *trail) report(b *gpu.Batch, v gpu.Value, at int64) {
	if at > c.trailed {
		c.trailed = at
		b.TrailAt(c.row, c.field, v, at)
	}
}

// playXIDs reports the XIDs since the last Read, of one round at most. The first Read reports the
// latest one of before, if there was none since the session began.
func (s *Session) playXIDs(c *trail, m *moment, b *gpu.Batch, now, elapsed int64) {
	if s.down[c.row] || s.down[gpu.AllRows] || s.fails(c, m) {
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
func (s *Session) fails(c *trail, m *moment) bool {
	return slices.ContainsFunc(m.batch.Faults, func(f gpu.Fault) bool {
		return f.Field >= 0 && (f.Row == gpu.AllRows || s.rows[f.Row] == c.row) &&
			slices.ContainsFunc(s.targets[f.Field], func(u match) bool { return u.field == c.field })
	})
}

// each yields what happened until now in the order of the times, of the present round and the one
// before it.
func (s *Session) each(c *trail, now, elapsed int64, yield func(v gpu.Value, at int64)) {
	round, start := s.src.round, s.src.start
	happened := func(e *event, n int64) {
		if at := start + n*round + e.Time; at <= now {
			yield(c.growth.after(e.Value, n).Scale(c.factor), at)
		}
	}
	before := 0 // before the recording began
	for before < len(c.events) && c.events[before].Time <= 0 {
		happened(&c.events[before], 0)
		before++
	}
	for n := max(elapsed/round-1, 0); n <= elapsed/round; n++ {
		for i := before; i < len(c.events); i++ {
			happened(&c.events[i], n)
		}
	}
}
