package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// DefaultNode is the node model that is played where none is named.
const DefaultNode = "demo"

// Options say what to simulate. The zero value plays the default node with seed 0, from now on,
// without faults.
type Options struct {
	// Node is the name of one of Nodes; empty means DefaultNode.
	Node string
	// Model is played instead of Node where it is set.
	Model *Node
	// Seed decides every value that is left to chance.
	Seed uint64
	// Now is the clock; nil means time.Now. It may go back, which starts the world again.
	Now func() time.Time
	// Start is when the world begins: the faults of the scenario count from there, and counters begin
	// there. Zero means Now() when New is called.
	Start time.Time
	// Scenario happens to the node; nil means that nothing does.
	Scenario *Scenario
}

// A Source plays one node. It may be opened again and again, and is safe for concurrent use by its
// sessions.
type Source struct {
	node     *Node
	now      func() time.Time
	start    int64
	scenario *Scenario

	mu    sync.Mutex // guards world
	world *world

	// Owners are queried while the world is read, and does not wait for it.
	owning sync.Mutex // guards owners
	owners ownership  // the latest answer of Attribute

	uids []string // of the node's pods

	released chan struct{} // closed by Release
	release  sync.Once

	opened, closed, reads, inFlight atomic.Int64
}

// New returns a source that plays the node of the options.
func New(o Options) (*Source, error) {
	node := o.Model
	if node == nil {
		name := o.Node
		if name == "" {
			name = DefaultNode
		}
		var err error
		if node, err = LoadNode(name); err != nil {
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
	plot, err := o.Scenario.check(node, start.UnixNano())
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	s := &Source{
		node: node, now: now, start: start.UnixNano(), scenario: o.Scenario,
		world:    newWorld(node, o.Seed, start.UnixNano(), plot),
		released: make(chan struct{}),
	}
	for i := range node.pods {
		s.uids = append(s.uids, s.world.podUID(node.pods[i].spec))
	}
	return s, nil
}

// Stats counts what was done with a Source since New.
type Stats struct {
	Opened   int64 // sessions
	Closed   int64 // sessions
	Reads    int64 // calls of Read that were begun
	InFlight int64 // calls of Open and Read that have not returned
}

// OpenHandles returns how many sessions are open.
func (s Stats) OpenHandles() int { return int(s.Opened - s.Closed) }

// Stats returns the counts so far.
func (s *Source) Stats() Stats {
	return Stats{Opened: s.opened.Load(), Closed: s.closed.Load(), Reads: s.reads.Load(), InFlight: s.inFlight.Load()}
}

// Release lets every call return that hangs or will hang by the scenario.
func (s *Source) Release() { s.release.Do(func() { close(s.released) }) }

// elapsed returns the time since the start of the world.
func (s *Source) elapsed(t int64) time.Duration { return time.Duration(t - s.start) }

// faults calls yield with each fault of a kind; nil scenarios have none.
func (s *Source) faults(kind string, yield func(*fault) bool) {
	if s.scenario == nil {
		return
	}
	for i := range s.scenario.faults {
		if f := &s.scenario.faults[i]; f.kind == kind && !yield(f) {
			return
		}
	}
}

// Open starts a session for the plan. It fails with gpu.ErrUnavailable while the scenario keeps the
// engine or the driver away.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("sim: open: %w", err)
	}
	if err := s.hang(ctx, func(f *fault) bool { return f.open }); err != nil {
		return nil, fmt.Errorf("sim: open: %w", err)
	}
	at := s.now().UnixNano()
	var refused error
	s.faults(faultEngineDown, func(f *fault) bool {
		if f.within(s.elapsed(at)) {
			refused = fmt.Errorf("sim: the scenario's engine is not there: %w", gpu.ErrUnavailable)
		}
		return refused == nil
	})
	if refused != nil {
		return nil, refused
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.world.advance(at)
	s.bind(s.elapsed(at))
	session := newSession(s, plan, at)
	s.opened.Add(1)
	return session, nil
}

// hang blocks while the scenario makes calls hang: until the fault ends or is released, or until
// ctx is done unless the fault is deaf to that.
func (s *Source) hang(ctx context.Context, concerns func(*fault) bool) error {
	var err error
	s.faults(faultHang, func(f *fault) bool {
		elapsed := s.elapsed(s.now().UnixNano())
		if !concerns(f) || !f.within(elapsed) {
			return true
		}
		var over <-chan time.Time // nil, and never ready, for a fault without end
		if left := f.until - elapsed; f.until != forever {
			timer := time.NewTimer(left)
			defer timer.Stop()
			over = timer.C
		}
		done := ctx.Done()
		if f.ignoresCancel {
			done = nil
		}
		select {
		case <-over:
		case <-s.released:
		case <-done:
			err = fmt.Errorf("%w: %w", gpu.ErrTimeout, ctx.Err())
		}
		return err == nil
	})
	return err
}
