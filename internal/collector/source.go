package collector

import (
	"context"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Source can be opened to read the planned fields. It has no driver state, and may be opened
// again and again.
type Source interface {
	// Open connects, discovers and starts watching. The error wraps one of gpu's errors:
	// gpu.ErrUnavailable where there is no library, engine or driver. Open releases everything it took
	// when it returns an error.
	Open(context.Context, *gpu.Plan) (Session, error)
}

// SourceOf makes a Source of a package's own open function, which returns its own session type:
// packages that read devices do not import this one.
func SourceOf[S Session](open func(context.Context, *gpu.Plan) (S, error)) Source {
	return sourceFunc[S](open)
}

type sourceFunc[S Session] func(context.Context, *gpu.Plan) (S, error)

func (open sourceFunc[S]) Open(ctx context.Context, plan *gpu.Plan) (Session, error) {
	s, err := open(ctx, plan)
	if err != nil {
		return nil, err // not s: a nil pointer in an interface is not nil
	}
	return s, nil
}

// A Session is one truth about the hardware. When the truth changes, Done is closed and the Loop
// opens another. The Loop owns it; Read and Close are never called concurrently.
type Session interface {
	// Topology is the same pointer for the life of the Session.
	Topology() *gpu.Topology
	// Read appends every current sample, and a fault for what could not be read. It returns an error
	// only if there is nothing to serve at all: one that wraps gpu.ErrLost ends the Session. A lost
	// GPU is a fault of its row, not an error.
	Read(context.Context, *gpu.Batch) error
	// Done is closed when the Session is no longer true: the topology changed, the engine or the
	// driver went away. Err says which.
	Done() <-chan struct{}
	// Err is nil until Done is closed; then it wraps gpu.ErrLost for a lost engine or driver, and
	// gpu.ErrTopology for a changed topology.
	Err() error
	// Close releases every handle. It is idempotent and safe after an error.
	Close() error
}

// An Attributor reports who is using what. It never sees samples.
type Attributor interface {
	// Name is the value of the attributor label of the health series.
	Name() string
	// Attribute returns the owners of the entities of t. The result is immutable.
	Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error)
}
