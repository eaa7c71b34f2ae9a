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

	released context.Context // done after Release
	release  context.CancelFunc

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
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Start.IsZero() {
		o.Start = o.Now()
	}
	if _, err := rules(); err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	scenario := cmp.Or(o.Scenario, &Scenario{})
	world, err := newWorld(node, o.Seed, o.Start.UnixNano(), scenario)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	s := &Source{node: node, now: o.Now, start: world.start, scenario: scenario, world: world}
	s.released, s.release = context.WithCancel(context.Background())
	return s, nil
}

// Stats counts the open sessions and running calls of a Source.
type Stats struct {
	Open     int64 // number of sessions that are not closed
	InFlight int64 // number of calls of Open and Read that have not returned
}

// Stats returns the current counts.
func (s *Source) Stats() Stats { return Stats{Open: s.open.Load(), InFlight: s.inFlight.Load()} }

// Release ends all current and future hangs.
func (s *Source) Release() { s.release() }

// elapsed returns the time since the start of the simulation.
func (s *Source) elapsed(t int64) time.Duration { return time.Duration(t - s.start) }

// active reports whether a fault of a kind affects a device at a time since the start.
func (s *Source) active(kind string, d *gpu.Device, elapsed time.Duration) bool {
	for f := range s.faults(kind) {
		if f.within(elapsed) && f.on(d) {
			return true
		}
	}
	return false
}

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
	if err := s.hang(ctx, "open"); err != nil {
		return nil, err
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
	s.open.Add(1)
	return newSession(s, plan, at), nil
}

// hang blocks while the scenario makes calls hang: until the fault ends or is released, or until ctx is done unless the
// fault ignores that.
func (s *Source) hang(ctx context.Context, call string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sim: %s: %w", call, err)
	}
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
		case <-s.released.Done():
		case <-done:
			return fmt.Errorf("sim: %s: %w: %w", call, gpu.ErrTimeout, ctx.Err())
		}
	}
	return nil
}

// bind sets which GPUs are bound to the driver at a time since the start, and returns how often that has changed.
func (s *Source) bind(elapsed time.Duration) (changes int) {
	gpus := s.world.gpus
	for i := range gpus {
		gpus[i].gone = false
	}
	for f := range s.faults(faultUnbound) {
		changes += int(truth(f.At <= elapsed) + truth(f.until <= elapsed))
		for i := range gpus {
			gpus[i].gone = gpus[i].gone || f.within(elapsed) && f.onGPU(gpus[i].index)
		}
	}
	return changes
}
