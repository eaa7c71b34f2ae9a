//go:build linux && cgo

package nvml_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// A GPU in MIG mode that has no instance yet is still a GPU, with what it has.
func TestMIGWithoutInstance(t *testing.T) {
	src, _ := source(t, "gpus 1", "gpu 0 mig")
	plan := planOf(t, 67, 150, 203, 250)
	s := open(t, src, plan)
	want := map[string]string{
		"GPU 0 DCGM_FI_DEV_MIG_MODE": "1", "GPU 0 DCGM_FI_DEV_GPU_TEMP": "30", "GPU 0 DCGM_FI_DEV_FB_TOTAL": "81559",
		"GPU 0 DCGM_FI_DEV_GPU_UTIL": "fault:not_supported",
	}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" || s.Err() != nil {
		t.Errorf("Err() = %v (-want +got):\n%s", s.Err(), diff)
	}
}

// NVML counts nothing per compute instance: it reports who they are, serves the GPU instance whole,
// and says so where they were asked for.
func TestDividedInstances(t *testing.T) {
	path := library(t)
	lines := []string{
		"gpus 2", "gpu 0 instance 9 0 1g.10gb 9984",
		"gpu 1 instance 2 1 2c.3g.40gb 40448", "gpu 1 instance 2 0 1c.3g.40gb 40448",
	}
	for name, tt := range map[string]struct {
		sel    gpu.Selector
		lines  []string
		logged bool
	}{
		"f":                   {gpu.Selector{Flex: true}, lines, false},
		"f+c":                 {gpu.Selector{Flex: true, Compute: true}, lines, true},
		"f+c, nothing to say": {gpu.Selector{Flex: true, Compute: true}, lines[:2], false},
	} {
		t.Run(name, func(t *testing.T) {
			fakenvml.NewWorld(t, tt.lines...)
			var said bytes.Buffer
			src := nvml.New(nvml.Options{Library: path, Log: slog.New(slog.NewTextHandler(&said, nil))})
			plan := planOf(t, 250, 1001)
			plan.Devices = tt.sel
			top := open(t, src, plan).Topology()
			var rows []string
			for _, d := range top.Devices {
				rows = append(rows, strings.TrimSpace(d.Entity.String()+" "+d.Profile))
			}
			want := []string{"GPU 0", "GPU instance 9 of GPU 0 1g.10gb", "GPU 1"}
			if len(tt.lines) == len(lines) {
				want = append(want, "GPU instance 102 of GPU 1 3g.40gb")
				uuid := top.ComputeInstances[0].UUID
				if top.Devices[3].MIGUUID != "" || !strings.HasPrefix(uuid, "MIG-") || uuid == top.ComputeInstances[1].UUID {
					t.Errorf("the instance is %q, its parts %+v", top.Devices[3].MIGUUID, top.ComputeInstances)
				}
				top.ComputeInstances[0].UUID, top.ComputeInstances[1].UUID = "", ""
				parts := []gpu.ComputeInstance{{Instance: 3, ID: 0, Profile: "1c.3g.40gb"}, {Instance: 3, ID: 1, Profile: "2c.3g.40gb"}}
				if diff := cmp.Diff(parts, top.ComputeInstances); diff != "" {
					t.Errorf("parts (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(want, rows); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if n := strings.Count(said.String(), "per compute instance"); n != map[bool]int{true: 1}[tt.logged] {
				t.Errorf("the log says %d times that parts are not served:\n%s", n, said.String())
			}
		})
	}
}
