//go:build linux && cgo

package nvml

import (
	"cmp"
	"context"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Source opens sessions of this machine's driver. It holds no handle between sessions.
type Source struct {
	api gonvml.Interface
	// probe returns why the library cannot be used. It runs before any other call to the library.
	probe  func() error
	queues queues
	// resident reports whether this process has loaded the library.
	resident func() bool
}

// New returns a Source with the NVML library of the given name or path. If it is empty, the dynamic linker finds
// libnvidia-ml.so.1. New loads nothing; Open does.
func New(library string) *Source {
	library = cmp.Or(library, defaultLibrary)
	return &Source{
		api:      gonvml.New(gonvml.WithLibraryPath(library)),
		probe:    func() error { return probeLibrary(library) },
		resident: func() bool { return resident(library) },
	}
}

// probeLibrary loads the library for a moment. go-nvml does not say why a library cannot be loaded, and crashes if the
// library is not NVML.
func probeLibrary(path string) error {
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL)
	if err := lib.Open(); err != nil {
		return fmt.Errorf("%w: %w (is the NVIDIA driver installed and visible in this container?)", ErrNoLibrary, err)
	}
	defer lib.Close()
	found := symbols{lookup: lib.Lookup, known: map[string]bool{}}
	if name := found.missing(required...); name != "" {
		return fmt.Errorf("%w: %s does not have %s: the driver is too old, or the library is not NVML",
			gpu.ErrVersion, path, name)
	}
	return nil
}

// Loadable reports whether the library can be loaded now.
func Loadable() bool { return probeLibrary(defaultLibrary) == nil }

// resident reports whether this process has loaded the library in an earlier session. The library then stays loaded:
// the dynamic linker binds each call of go-nvml when it is first made, and glibc does not unload an object that the
// program itself depends on. A file that replaces the library is not read.
func resident(path string) bool {
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_LOCAL|dl.RTLD_NOLOAD)
	if lib.Open() != nil {
		return false
	}
	defer lib.Close()
	// Open may succeed without a library. Lookup then searches the whole process, in which go-nvml made NVML's symbols
	// global.
	return lib.Lookup("nvmlInit_v2") == nil
}

// Open loads and initializes the library, and finds the GPUs and instances that the plan selects.
//
// The error wraps gpu.ErrUnavailable if there is no library, driver or GPU. It wraps gpu.ErrVersion if the library does
// not match the driver or lacks a required function, and ErrReplaced if only a new process can load the right library.
// It wraps gpu.ErrLost or gpu.ErrPermission if no GPU can be accessed.
func (src *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nvml: %w", err)
	}
	kept := src.resident()
	if err := src.probe(); err != nil {
		return nil, fmt.Errorf("nvml: %w", err)
	}
	switch ret := src.api.Init(); {
	case ret == gonvml.ERROR_DRIVER_NOT_LOADED:
		return nil, fmt.Errorf("nvml: %w", ErrNoDriver)
	case ret == gonvml.ERROR_LIB_RM_VERSION_MISMATCH && kept:
		return nil, fmt.Errorf("nvml: %w", ErrReplaced)
	case ret != gonvml.SUCCESS:
		return nil, fmt.Errorf("nvml: %w", &driverError{"nvmlInit_v2", ret})
	}
	s := &Session{
		Lifecycle: gpu.NewLifecycle(), api: src.api, queues: &src.queues, plan: plan,
		symbols: symbols{lookup: src.api.Extensions().LookupSymbol, known: map[string]bool{}},
	}
	if err := s.start(); err != nil {
		_ = s.Close() // err says why there is no session
		return nil, fmt.Errorf("nvml: %w", err)
	}
	return s, nil
}
