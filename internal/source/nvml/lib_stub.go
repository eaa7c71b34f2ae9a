//go:build !linux || !cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Source replaces the real one in builds that cannot load NVML.
type Source struct{}

// New returns a Source whose Open always fails, since NVML needs Linux and cgo.
func New(string) *Source { return &Source{} }

// Open returns an error that wraps gpu.ErrUnavailable.
func (*Source) Open(context.Context, *gpu.Plan) (*Session, error) {
	return nil, fmt.Errorf("nvml: %w: %s cannot be loaded: this binary was built without cgo",
		gpu.ErrUnavailable, defaultLibrary)
}

// Loadable returns false.
func Loadable() bool { return false }

// Reads returns false: this build reads nothing.
func Reads(*gpu.Plan) bool { return false }

// A Session cannot be created in this build.
type Session struct{ gpu.Lifecycle }

// Topology returns nil.
func (*Session) Topology() *gpu.Topology { return nil }

// Read returns an error that wraps gpu.ErrUnavailable.
func (*Session) Read(context.Context, gpu.ReadRequest, *gpu.Batch) error { return gpu.ErrUnavailable }

// Close returns nil.
func (*Session) Close() error { return nil }
