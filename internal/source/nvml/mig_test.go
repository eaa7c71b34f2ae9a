//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A GPU in MIG mode that has no instance yet is still a GPU, with what it has.
func TestMIGWithoutInstance(t *testing.T) {
	src, _ := source(t, "gpus 1", "gpu 0 mig")
	plan := planOf(t, 150, 203, 250)
	s := open(t, src, plan)
	want := map[string]string{
		"GPU 0 DCGM_FI_DEV_GPU_TEMP": "30", "GPU 0 DCGM_FI_DEV_FB_TOTAL": "81559",
		"GPU 0 DCGM_FI_DEV_GPU_UTIL": "fault:not_supported",
	}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" || s.Err() != nil {
		t.Errorf("Err() = %v (-want +got):\n%s", s.Err(), diff)
	}
}

// A GPU instance with several compute instances has one row, without a UUID of its own.
func TestDividedInstances(t *testing.T) {
	src, _ := source(t, "gpus 2", "gpu 0 instance 9 0 1g.10gb 9984",
		"gpu 1 instance 2 1 2c.3g.40gb 40448", "gpu 1 instance 2 0 1c.3g.40gb 40448")
	var got []string
	for _, d := range open(t, src, planOf(t, 250, 1001)).Topology().Devices {
		if d.Entity.Kind == gpu.KindGPUInstance {
			got = append(got, fmt.Sprintf("%v %s %t", d.Entity, d.Profile, d.MIGUUID != ""))
		}
	}
	want := []string{"GPU instance 9 of GPU 0 1g.10gb true", "GPU instance 102 of GPU 1 3g.40gb false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("instances (-want +got):\n%s", diff)
	}
}
