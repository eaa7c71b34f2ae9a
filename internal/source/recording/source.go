package recording

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Options say how to play.
type Options struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Start is when the first round begins; zero means Now() when NewSource is called.
	Start time.Time
}

// A Source plays a recording over and over. A Read finds what the recording's latest Read before
// that time of its round found. Gauges are as recorded; counters go on growing from round to round,
// at the pace of the recording; events happen again at the same time of every round, as do faults.
//
// What was recorded is all there is: a field that was not recorded is not supported, and an entity
// that was not there is not there.
type Source struct {
	topology *gpu.Topology
	fields   []Field
	moments  []moment
	interval time.Duration
	pods     map[uint32]string
	owners   []*Attributor

	now    func() time.Time
	start  int64
	round  int64 // its length in nanoseconds
	growth map[cell]growth

	opened, closed atomic.Int64
}

// A cell is a row and a field, of the recording or of a session.
type cell struct{ row, field int }

// NewSource returns a source that plays rec, which has a Read at least, on the clock of the options
// and from their start on.
func NewSource(rec *Recording, o Options) *Source {
	s := &Source{topology: rec.Topology(), fields: rec.Fields, interval: rec.interval(), pods: rec.Pods, now: o.Now}
	for i := range rec.Reads {
		s.moments = append(s.moments, rec.Reads[i].moment())
	}
	for i := range rec.Owners {
		s.owners = append(s.owners, &Attributor{name: rec.Owners[i].Attributor, of: s.topology, recorded: rec.Owners[i].owners(len(rec.Devices))})
	}
	s.round = s.moments[len(s.moments)-1].at + int64(s.interval)
	if s.now == nil {
		s.now = time.Now
	}
	if o.Start.IsZero() {
		o.Start = s.now()
	}
	s.start = o.Start.UnixNano()
	s.growth = s.grown()
	return s
}

// OpenHandles returns how many sessions are open.
func (s *Source) OpenHandles() int { return int(s.opened.Load() - s.closed.Load()) }

// Open starts a session for the plan.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("recording: open: %w", err)
	}
	session := newSession(s, plan)
	s.opened.Add(1)
	return session, nil
}

// PodOf returns the UID of the pod that a recorded process belongs to, "" where it belongs to none.
func (s *Source) PodOf(pid uint32) (string, error) { return s.pods[pid], nil }

// Attributors returns those that were recorded.
func (s *Source) Attributors() []*Attributor { return s.owners }

// An Attributor answers what a recorded one answered.
type Attributor struct {
	name     string
	of       *gpu.Topology
	recorded *gpu.Owners // by row of it

	mu       sync.Mutex // guards what follows, the latest answer
	topology *gpu.Topology
	owners   *gpu.Owners
	count    uint64
}

// Name returns the name of the recorded attributor.
func (a *Attributor) Name() string { return a.name }

// Attribute returns the recorded owners of the entities of t.
func (a *Attributor) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.topology == t {
		return a.owners, nil
	}
	a.count++
	owners := &gpu.Owners{Generation: a.count, Labels: make([][]gpu.Label, len(t.Devices)), Uses: make([]gpu.Use, len(t.Devices))}
	for row := range t.Devices {
		if from, ok := a.of.Row(t.Devices[row].Entity); ok {
			owners.Labels[row], owners.Uses[row] = a.recorded.Labels[from], a.recorded.Uses[from]
		}
	}
	a.topology, a.owners = t, owners
	return owners, nil
}

// growth is what a counter gains in a round.
type growth struct {
	integer int64
	float   float64
}

// grown returns what every counter gains in a round.
func (s *Source) grown() map[cell]growth {
	first, last := map[cell]gpu.Sample{}, map[cell]gpu.Sample{}
	for i := range s.moments {
		for _, x := range s.moments[i].batch.Samples {
			if e, known := catalog.ByID(s.fields[x.Field].ID); !known || !e.Monotonic {
				continue
			}
			x.Time = s.moments[i].at
			c := cell{x.Row, x.Field}
			if _, seen := first[c]; !seen {
				first[c] = x
			}
			last[c] = x
		}
	}
	all := map[cell]growth{}
	for c, from := range first {
		if g := between(from, last[c], s.round); g != (growth{}) {
			all[c] = g
		}
	}
	return all
}

// between returns what a counter gains in a round, of which two samples are known.
func between(from, to gpu.Sample, round int64) growth {
	elapsed := to.Time - from.Time
	if elapsed <= 0 {
		return growth{}
	}
	more := float64(round-elapsed) / float64(elapsed)
	a, isInteger := from.Value.Int64()
	b, also := to.Value.Int64()
	if isInteger && also {
		gain := b - a
		if b <= a || gain <= 0 { // it may overflow
			return growth{}
		}
		return growth{integer: saturated(gain, int64(math.Min(float64(gain)*more, 1<<62)))}
	}
	x, _ := from.Value.Number()
	y, _ := to.Value.Number()
	if y <= x {
		return growth{}
	}
	return growth{float: (y - x) * (1 + more)}
}

// saturated is a+b for numbers of which b is not negative, and the largest number that is no
// sentinel of DCGM's where that is too large.
func saturated(a, b int64) int64 {
	const largest = math.MaxInt64 - 0xff
	if a > largest-b {
		return max(a, largest)
	}
	return a + b
}

// after returns the value of a counter in a later round.
func (g growth) after(v gpu.Value, rounds int64) gpu.Value {
	if g == (growth{}) {
		return v
	}
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
