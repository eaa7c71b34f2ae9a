// Package sim is a source without hardware. A node is described by data files. A seeded model simulates it with an
// injected clock, and a scenario adds faults. The same seed, node, start, scenario and time always produce the same
// values, and the values of a board are consistent with each other.
//
// A Source simulates one node. Open returns a Session for the entities of a plan, which the collector reads like a
// session of any other source. The simulation advances when a Session reads it. XIDs are also in the simulated kernel
// log.
//
// The package does not access drivers, files or the network, and starts no goroutines.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// DefaultNode is the node that is simulated if Options do not select one.
const DefaultNode = "demo"

// Options configure a Source. The zero value simulates the default node with seed 0, starting now, without faults.
type Options struct {
	Node     string           // one of Nodes; empty means DefaultNode
	Model    *Node            // simulated instead of Node, if not nil
	Seed     uint64           // determines all random values
	Now      func() time.Time // nil means time.Now; if the clock goes back, the simulation starts again
	Start    time.Time        // origin of counters and scenario times; zero means the time of the call of New
	Scenario *Scenario        // faults of the node; nil means none
}

// A Source simulates one node. It may be opened any number of times, and is safe for concurrent use by its sessions.
type Source struct {
	clock func() time.Time

	mu    sync.Mutex // guards world, except for what does not change
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
	world, err := newWorld(node, o.Seed, o.Start.UnixNano(), cmp.Or(o.Scenario, &Scenario{}))
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	s := &Source{clock: o.Now, world: world}
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

// now returns the time of the clock in Unix nanoseconds.
func (s *Source) now() int64 { return s.clock().UnixNano() }

// Open opens a session for the plan. It returns gpu.ErrUnavailable while the scenario's engine is down.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	s.inFlight.Add(1)
	defer s.inFlight.Add(-1)
	if err := s.hang(ctx, "open"); err != nil {
		return nil, err
	}
	at := s.now()
	for f := range s.world.faultsOf(faultEngineDown) {
		if f.within(at) {
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
	for f := range s.world.faultsOf(faultHang) {
		now := s.now()
		if cmp.Or(f.Call, "read") != call || !f.within(now) {
			continue
		}
		done := ctx.Done()
		if f.IgnoreCancel {
			done = nil
		}
		select {
		case <-time.After(time.Duration(f.to - now)):
		case <-s.released.Done():
		case <-done:
			return fmt.Errorf("sim: %s: %w: %w", call, gpu.ErrTimeout, ctx.Err())
		}
	}
	return nil
}

// Name returns "sim", the source's name as an attributor.
func (s *Source) Name() string { return "sim" }

// Attribute returns the pods and jobs that own the GPUs and instances of t. A device with one pod has the labels
// container, namespace and pod. A device with one job has the label hpc_job. Free and shared devices have no labels.
func (s *Source) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.owning.Lock()
	defer s.owning.Unlock()
	if s.owned == t {
		return s.owners, nil
	}
	o := &gpu.Owners{Uses: make([]gpu.Use, len(t.Devices))}
	for row := range t.Devices {
		o.Uses[row] = s.world.use(&t.Devices[row])
	}
	o.Labels = attribution.ExclusiveLabels(t, o.Uses, (*gpu.Owner).AllLabels)
	s.owned, s.owners = t, o
	return o, nil
}

// use returns the owners of a device and how they share it.
func (w *world) use(d *gpu.Device) gpu.Use {
	var u gpu.Use
	for i := range w.node.Pods {
		p := &w.node.Pods[i]
		if !slices.Contains(p.devices, refOf(d)) || p.Host && p.Job == "" {
			continue
		}
		u.Sharing, u.Replicas = w.node.GPUs[d.GPU].sharing, w.node.GPUs[d.GPU].Replicas
		if p.Job != "" {
			u.Owners = append(u.Owners, gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: p.Job}}})
			continue
		}
		owner := gpu.Owner{
			Namespace: p.Namespace, Pod: p.Pod, Container: p.Container,
			PodUID: w.podUID(p), Resource: "nvidia.com/gpu",
		}
		if d.Profile != "" {
			owner.Resource = "nvidia.com/mig-" + d.Profile
		}
		if u.Sharing == gpu.SharingDRA {
			owner.Resource = "gpu.nvidia.com"
		} else if u.Sharing != gpu.SharingNone {
			owner.Replica = strconv.Itoa(len(u.Owners))
		}
		u.Owners = append(u.Owners, owner)
	}
	return u
}

// firstPID is the process ID of the node's first pod. Each pod has one process.
const firstPID = 4000

// PodOf returns the UID of the pod of a simulated process. It returns nil for processes of the host and for unknown
// IDs.
func (s *Source) PodOf(pid uint32) ([]string, error) {
	pods, i := s.world.node.Pods, int(pid)-firstPID
	if i < 0 || i >= len(pods) || pods[i].Host {
		return nil, nil
	}
	return []string{s.world.podUID(&pods[i])}, nil
}
