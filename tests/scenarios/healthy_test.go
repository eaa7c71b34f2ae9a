package scenarios

import (
	"os"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

// healthyWork lists workloads of healthy GPUs. Each has a simulated node and faults that make up the workload.
var healthyWork = []struct{ name, node, faults string }{
	{"training", "single", `[]`},
	{
		"idle", "single",
		`[{fault: set, fields: [DCGM_FI_DEV_GPU_UTIL, DCGM_FI_DEV_MEM_COPY_UTIL, "DCGM_FI_PROF_*"], value: 0}]`,
	},
	{"power-capped", "single", `[{fault: throttle, devices: ["0"], reasons: [sw_power_cap]}]`},
	{"software thermal limit", "single", `[{fault: throttle, devices: ["0"], reasons: [sw_thermal]}]`},
	{"both limits, on and off", "single",
		`[{fault: throttle, at: 1m, for: 20m, devices: ["0"], reasons: [sw_power_cap, sw_thermal]},
		{fault: throttle, at: 40m, for: 1m, devices: ["0"], reasons: [sw_thermal]}]`},
	{"memory-bound", "single", `[{fault: set, fields: [DCGM_FI_PROF_DRAM_ACTIVE], value: 0.97},
		{fault: set, fields: [DCGM_FI_PROF_PIPE_TENSOR_ACTIVE], value: 0.01}]`},
	{"decode only", "t4", `[{fault: set, fields: [DCGM_FI_DEV_DEC_UTIL], value: 95},
		{fault: set, fields: [DCGM_FI_DEV_GPU_UTIL], value: 3}]`},
	{"MIG", "a100-mig", `[]`},
	{"a tray of a rack", "gb200", `[]`},
}

// GPUs that do healthy work have the verdict ok on every page. HEALTHY_PAGES=1000000 selects the long run.
// TestSimulatedFaultsFireAlerts in tests/rules checks that healthy nodes and GPUs at their limits fire no alert.
func TestHealthyWorkIsOK(t *testing.T) {
	pages := 9_000
	if text := os.Getenv("HEALTHY_PAGES"); text != "" {
		var err error
		if pages, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range healthyWork {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			const history = 1_000 // pages of one node, almost three hours
			for seed := range max(1, pages/len(healthyWork)/history+1) {
				synctest.Test(t, func(t *testing.T) {
					node := nodeOf(t, w.node, w.faults, uint64(seed), etc.HealthName)
					defer node.Source.Release()
					left := min(history, pages/len(healthyWork)+1)
					node.Each(t, func(s *gpu.Snapshot, _ []byte) bool {
						if s.Topology != nil {
							left--
							expectOK(t, s, left)
						}
						return left > 0 && !t.Failed()
					})
				})
			}
		})
	}
}

// expectOK checks that a snapshot has verdicts, and that all are ok.
func expectOK(t *testing.T, s *gpu.Snapshot, left int) {
	t.Helper()
	seen := 0
	for _, f := range s.Families {
		if f.Name != catalog.GPUVerdict {
			continue
		}
		for _, x := range f.Series {
			if seen++; x.Labels[0].Value != verdict.OK {
				t.Errorf("%d pages before the end, row %d: verdict %v, want ok", left, x.Row, x.Labels)
			}
		}
	}
	if seen == 0 {
		t.Errorf("%d pages before the end: no verdict series", left)
	}
}
