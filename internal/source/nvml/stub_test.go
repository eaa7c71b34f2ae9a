//go:build !linux || !cgo

package nvml

import (
	"context"
	"errors"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

func TestWithoutCgo(t *testing.T) {
	if _, err := New(Options{}).Open(context.Background(), &gpu.Plan{}); !errors.Is(err, gpu.ErrUnavailable) {
		t.Errorf("Open: %v, want %v", err, gpu.ErrUnavailable)
	}
}

// The tests over the library are not in this build: they count as one skip.
func TestOverTheLibrary(t *testing.T) {
	material.Skip(t, "compiler-absent", errors.New("built without cgo"))
}
