package collector

import (
	"context"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Source opens sessions, again and again. It has no driver state.
type Source interface {
	// Open connects, discovers and starts watching. The error wraps one of gpu's errors, gpu.ErrUnavailable where there
	// is no library, engine or driver; nothing stays open then.
	Open(context.Context, *gpu.Plan) (Session, error)
}

// SourceOf makes a Source of an open function with a session type of its own package, which need not import this one.
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

// A Session reads one state of the hardware. When that changes, Done is closed and the Loop opens another. The Loop owns
// it; Read and Close are never called concurrently.
type Session interface {
	// Topology is the same pointer for the life of the Session.
	Topology() *gpu.Topology
	// Read appends every current sample and a fault for each failure, such as a lost GPU. An error means that there is
	// nothing to serve at all; one that wraps gpu.ErrLost ends the Session.
	Read(context.Context, *gpu.Batch) error
	// Done is closed when the Session is over.
	Done() <-chan struct{}
	// Err is nil until Done is closed; then it wraps gpu.ErrLost for a lost engine or driver, gpu.ErrTopology for a
	// changed topology.
	Err() error
	// Close releases every handle. It is idempotent and safe after an error.
	Close() error
}

// An Attributor reports who uses the entities. It never sees samples.
type Attributor interface {
	// Name is the value of the attributor label of the health series.
	Name() string
	// Attribute returns the owners of the entities of t. The result is immutable.
	Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error)
}
