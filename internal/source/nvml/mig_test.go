//go:build linux && cgo

package nvml_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A GPU in MIG mode without instances is still served as a GPU.
func TestMIGWithoutInstance(t *testing.T) {
	src, _ := source(t, "gpus 1", "gpu 0 mig")
	plan := planOf(t, 150, 203, 250)
	s := open(t, src, plan)
	want := map[string]string{
		"GPU 0 DCGM_FI_DEV_GPU_TEMP": "30", "GPU 0 DCGM_FI_DEV_FB_TOTAL": "81559",
		"GPU 0 DCGM_FI_DEV_GPU_UTIL": "fault:not_supported",
	}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" || s.Err() != nil {
		t.Errorf("Err() = %v; values (-want +got):\n%s", s.Err(), diff)
	}
}
