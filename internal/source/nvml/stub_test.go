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
	if _, err := New("").Open(context.Background(), &gpu.Plan{}); !errors.Is(err, gpu.ErrUnavailable) {
		t.Errorf("Open: %v, want %v", err, gpu.ErrUnavailable)
	}
}

// This build does not have the tests that use the library. They count as one skip.
func TestWithLibrary(t *testing.T) {
	material.Skip(t, "compiler-absent", errors.New("built without cgo"))
}
