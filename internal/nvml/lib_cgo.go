//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Source opens sessions at the driver of this machine. It is no session: it
// keeps nothing but the way to the library.
type Source struct {
	opt Options
	api gonvml.Interface
	// probe says in words why the library cannot be used, before anything in
	// it is called; nil if it can.
	probe func() error
}

// New returns a Source over the library that the options name. Nothing is
// loaded before Open.
func New(opt Options) *Source {
	opt = opt.withDefaults()
	return &Source{
		opt:   opt,
		api:   gonvml.New(gonvml.WithLibraryPath(opt.Library)),
		probe: func() error { return probeLibrary(opt.Library) },
	}
}

// probeLibrary loads the library for a moment. go-nvml alone would not say why
// a library cannot be loaded, and would crash on one that is no NVML.
func probeLibrary(path string) error {
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := lib.Open(); err != nil {
		return fmt.Errorf("%w: %w (is the NVIDIA driver installed, and visible to this container?)", gpu.ErrUnavailable, err)
	}
	defer lib.Close()
	return checkRequired(path, lib.Lookup)
}

// Open loads the library, initialises it and finds the GPUs and instances that
// the plan selects. The error wraps gpu.ErrUnavailable if there is no library,
// no driver or no GPU, gpu.ErrVersion if the library does not fit the driver
// or lacks what every driver has, and gpu.ErrLost or gpu.ErrPermission if no
// GPU can be talked to.
func (src *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nvml: %w", err)
	}
	if err := src.probe(); err != nil {
		return nil, fmt.Errorf("nvml: %w", err)
	}
	if ret := src.api.Init(); ret != gonvml.SUCCESS {
		if ret == gonvml.ERROR_DRIVER_NOT_LOADED {
			return nil, fmt.Errorf("nvml: %w: the NVIDIA driver is not loaded", gpu.ErrUnavailable)
		}
		return nil, fmt.Errorf("nvml: %w", &driverError{"nvmlInit_v2", ret})
	}
	s := &Session{
		api:     src.api,
		symbols: symbols{lookup: src.api.Extensions().LookupSymbol, known: map[string]bool{}},
		plan:    plan,
		reprobe: src.opt.Reprobe,
		done:    make(chan struct{}),
	}
	if err := s.start(); err != nil {
		_ = s.Close() // the reason why there is no session is the one to tell
		return nil, fmt.Errorf("nvml: %w", err)
	}
	return s, nil
}
