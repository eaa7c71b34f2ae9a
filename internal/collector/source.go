package collector

import (
	"context"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Source opens sessions, one after another. It holds no driver state.
type Source interface {
	// Open connects, discovers the entities and starts watching. An error wraps one of gpu's errors, for example
	// gpu.ErrUnavailable if there is no library, engine or driver. After an error nothing stays open.
	Open(context.Context, *gpu.Plan) (Session, error)
}

// SourceOf makes a Source of an open function. S is the session type of another package, which need not import this
// one.
func SourceOf[S Session](open func(context.Context, *gpu.Plan) (S, error)) Source {
	return sourceFunc[S](open)
}

type sourceFunc[S Session] func(context.Context, *gpu.Plan) (S, error)

func (open sourceFunc[S]) Open(ctx context.Context, plan *gpu.Plan) (Session, error) {
	s, err := open(ctx, plan)
	if err != nil {
		return nil, err // not s: an interface that holds a nil pointer is not nil
	}
	return s, nil
}

// Session reads one state of the hardware. When that state changes, Done is closed and the Loop opens another session.
// The Loop never calls Read and Close concurrently.
type Session interface {
	// Topology returns the same pointer for the life of the Session.
	Topology() *gpu.Topology
	// Read appends every current sample, and a fault for each failure, such as a lost GPU. It returns an error only if
	// there is nothing to serve. An error that wraps gpu.ErrLost ends the Session.
	Read(context.Context, gpu.ReadRequest, *gpu.Batch) error
	// Done is closed when the Session is over.
	Done() <-chan struct{}
	// Err returns nil until Done is closed. Then its error wraps gpu.ErrLost if the engine or driver was lost, or
	// gpu.ErrTopology if the topology changed.
	Err() error
	// Close releases every handle. It is idempotent and may be called after an error.
	Close() error
}

// Attributor reports the owners of entities. It never sees samples.
type Attributor interface {
	// Name returns the value of the attributor label of the health series.
	Name() string
	// Attribute returns the owners of the entities of t. The result is immutable.
	Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error)
}
