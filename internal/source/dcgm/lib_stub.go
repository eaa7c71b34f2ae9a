//go:build !linux || !cgo

package dcgm

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// newConnector returns a connector that always fails: DCGM needs Linux, and loading it needs cgo.
func newConnector() connector {
	return func(Options) (engine, error) {
		return nil, fmt.Errorf("%w: %w: this binary was built without cgo", gpu.ErrUnavailable, ErrLibrary)
	}
}

// Loadable returns false.
func Loadable() bool { return false }
