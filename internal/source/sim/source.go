package sim

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// DefaultNode is the node that is simulated if Options do not select one.
const DefaultNode = "demo"

// Options configure a Source. The zero value simulates the default node with seed 0, starting now, without faults.
type Options struct {
	// Node is the name of one of Nodes. If empty, it is DefaultNode.
	Node string
	// Model, if not nil, is simulated instead of Node.
	Model *Node
	// Seed determines all random values.
	Seed uint64
	// Now is the clock. Nil means time.Now. If the clock goes back, the simulation starts again.
	Now func() time.Time
	// Start is the start of the simulation: of its counters and of the scenario's times. Zero means the time at which
	// New is called.
	Start time.Time
	// Scenario holds the faults of the node. Nil means none.
	Scenario *Scenario
}

// A Source simulates one node. It may be opened any number of times, and is safe for concurrent use by its sessions.
type Source struct {
	node     *Node
	now      func() time.Time
	start    int64
	scenario *Scenario

	mu    sync.Mutex // guards world
	world *world

	// A separate lock, so that Attribute does not wait for a Read.
	owning sync.Mutex // guards the latest result of Attribute
	owners *gpu.Owners
	owned  *gpu.Topology // topology of owners

	released chan struct{} // closed by Release
	release  sync.Once

	open, inFlight atomic.Int64
}

// New returns a source that simulates the node of the options.
func New(o Options) (*Source, error) {
	node := o.Model
	if node == nil {
		var err error
		if node, err = LoadNode(cmp.Or(o.Node, DefaultNode)); err != nil {
			return nil, fmt.Errorf("sim: %w", err)
		}
	}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	start := o.Start
	if start.IsZero() {
		start = now()
	}
	if _, err := rules(); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	scenario := cmp.Or(o.Scenario, &Scenario{})
	world, err := newWorld(node, o.Seed, start.UnixNano(), scenario)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	return &Source{
		node: node, now: now, start: world.start, scenario: scenario, world: world, released: make(chan struct{}),
	}, nil
}

// Stats counts the open sessions and running calls of a Source.
type Stats struct {
	Open     int64 // number of sessions that are not closed
	InFlight int64 // number of calls of Open and Read that have not returned
}

// Stats returns the current counts.
func (s *Source) Stats() Stats { return Stats{Open: s.open.Load(), InFlight: s.inFlight.Load()} }

// Release ends all current and future hangs.
func (s *Source) Release() { s.release.Do(func() { close(s.released) }) }

// elapsed returns the time since the start of the simulation.
func (s *Source) elapsed(t int64) time.Duration { return time.Duration(t - s.start) }

// faults yields each fault of a kind.
func (s *Source) faults(kind string) iter.Seq[*fault] {
	return func(yield func(*fault) bool) {
		for i := range s.scenario.Faults {
			if f := &s.scenario.Faults[i]; f.Kind == kind && !yield(f) {
				return
			}
		}
	}
}

// engineBegan returns when the engine that runs at a given time was started: at the end of the latest engine-down
// fault.
func (s *Source) engineBegan(elapsed time.Duration) (began time.Duration) {
	for f := range s.faults(faultEngineDown) {
		if f.until <= elapsed {
			began = max(began, f.until)
		}
	}
	return began
}

// Open opens a session for the plan. It returns gpu.ErrUnavailable while the scenario's engine is down.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sim: open: %w", err)
	}
	if err := s.hang(ctx, "open"); err != nil {
		return nil, fmt.Errorf("sim: open: %w", err)
	}
	at := s.now().UnixNano()
	for f := range s.faults(faultEngineDown) {
		if f.within(s.elapsed(at)) {
			return nil, fmt.Errorf("sim: the engine is down in the scenario: %w", gpu.ErrUnavailable)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.advance(at)
	s.bind(s.elapsed(at))
	session := newSession(s, plan, at)
	s.open.Add(1)
	return session, nil
}

// hang blocks while the scenario makes calls hang: until the fault ends or is released, or until ctx is done unless the
// fault ignores that.
func (s *Source) hang(ctx context.Context, call string) error {
	for f := range s.faults(faultHang) {
		elapsed := s.elapsed(s.now().UnixNano())
		if cmp.Or(f.Call, "read") != call || !f.within(elapsed) {
			continue
		}
		over := time.NewTimer(f.until - elapsed)
		defer over.Stop()
		done := ctx.Done()
		if f.IgnoreCancel {
			done = nil
		}
		select {
		case <-over.C:
		case <-s.released:
		case <-done:
			return fmt.Errorf("%w: %w", gpu.ErrTimeout, ctx.Err())
		}
	}
	return nil
}

// bindings returns how often GPUs were unbound or bound until a time since the start.
func (s *Source) bindings(elapsed time.Duration) (n int) {
	for f := range s.faults(faultUnbound) {
		n += int(truth(f.At <= elapsed) + truth(f.until <= elapsed))
	}
	return n
}

// bind sets which GPUs are bound to the driver at a time since the start, according to the scenario.
func (s *Source) bind(elapsed time.Duration) {
	for i := range s.world.gpus {
		g := &s.world.gpus[i]
		g.gone = false
		for f := range s.faults(faultUnbound) {
			g.gone = g.gone || f.within(elapsed) && f.onGPU(g.index)
		}
	}
}
