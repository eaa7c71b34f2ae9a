//go:build !linux || !cgo

package dcgm

import (
	"context"
	"errors"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestWithoutCgo(t *testing.T) {
	if _, err := New(Options{}).Open(context.Background(), &gpu.Plan{}); !errors.Is(err, gpu.ErrUnavailable) {
		t.Errorf("Open: %v, want %v", err, gpu.ErrUnavailable)
	}
}
