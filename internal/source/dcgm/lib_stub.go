//go:build !linux || !cgo

package dcgm

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// newLib returns a library that is never there: DCGM exists for Linux alone, and loading it needs
// cgo.
func newLib() lib { return noLib{} }

type noLib struct{}

func (noLib) connect(gpu.EngineAddress, Options) (engine, error) {
	return nil, fmt.Errorf("%w: %w: this binary was built without cgo", gpu.ErrUnavailable, ErrLibrary)
}
