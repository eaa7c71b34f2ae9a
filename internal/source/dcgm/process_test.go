//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// Processes that are requested are declined with a reason, and nothing is made up.
func TestProcessesAreDeclined(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU)), dcgm.Options{})
	b := gpu.Batch{RequestProcesses: []bool{false, true}}
	if err := s.Read(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	var declined []int
	for _, f := range b.Faults {
		if f.Field == gpu.FieldProcesses && errors.Is(f.Err, gpu.ErrNotSupported) {
			declined = append(declined, f.Row)
		}
	}
	if diff := cmp.Diff([]int{1}, declined); diff != "" || len(b.Processes) != 0 {
		t.Errorf("declined rows (-want +got):\n%s\nprocesses: %v", diff, b.Processes)
	}
}
