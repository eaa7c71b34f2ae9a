package scenarios

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
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
					playHealthy(t, w.node, w.faults, uint64(seed), min(history, pages/len(healthyWork)+1))
				})
			}
		})
	}
}

// playHealthy simulates a node. The test fails at the first verdict that is not ok.
func playHealthy(t *testing.T, node, faults string, seed uint64, pages int) {
	t.Helper()
	scenario := simulated.Scenario(t, "faults: "+faults)
	source, err := sim.New(sim.Options{Node: node, Seed: seed, Scenario: scenario})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Release()
	file, _ := etc.File(etc.HealthName)
	requests, problems, err := counters.Parse(bytes.NewReader(file), etc.HealthName)
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	flex := gpu.Selector{Flex: true}
	plan := counters.NewPlan(
		requests, counters.PlanOptions{Interval: interval, Devices: flex, Switches: flex, CPUs: flex},
	)
	session, err := source.Open(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	builder := snapshot.NewBuilder(session.Topology(), plan, []snapshot.Deriver{
		&snapshot.Facts{}, events.New(events.Options{Registerer: prometheus.NewRegistry()}), &verdict.Judge{},
	})
	var batch gpu.Batch
	for n := range pages {
		time.Sleep(interval)
		batch.Reset()
		read := time.Now()
		if err := session.Read(t.Context(), gpu.ReadRequest{}, &batch); err != nil {
			t.Fatal(err)
		}
		s := builder.Build(snapshot.Reading{Batch: &batch, Begin: read, Now: time.Now(), Elapsed: time.Since(begin)})
		expectOK(t, s, n)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

func expectOK(t *testing.T, s *gpu.Snapshot, page int) {
	t.Helper()
	seen := 0
	for _, f := range s.Families {
		if f.Name != catalog.GPUVerdict {
			continue
		}
		for _, x := range f.Series {
			if seen++; x.Labels[0].Value != verdict.OK {
				t.Fatalf("page %d, row %d: verdict %v, want ok", page, x.Row, x.Labels)
			}
		}
	}
	if seen == 0 {
		t.Fatalf("page %d has no verdict series", page)
	}
}
