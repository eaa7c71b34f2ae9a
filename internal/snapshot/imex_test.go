package snapshot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// TestIMEXCorrections checks when DCGM's finding that IMEX is unhealthy is corrected. Each GPU is "lost", or the values
// of its clique, daemon and domain, with "-" for an unknown one and "n/a" for one that the GPU does not support.
func TestIMEXCorrections(t *testing.T) {
	const unhealthy = "DCGM_FR_IMEX_UNHEALTHY"
	for name, tt := range map[string]struct {
		model, code string
		gpus        []string
		want        string // the label corrected
	}{
		"all GPUs without a clique":                            {code: unhealthy, gpus: []string{"0 0 -", "n/a 0 -"}, want: "no_domain"},
		"one GPU is lost, the other without a clique":          {code: unhealthy, gpus: []string{"lost", "0 0 -"}, want: "no_domain"},
		"all GPUs are lost":                                    {code: unhealthy, gpus: []string{"lost", "lost"}},
		"a clique is unknown":                                  {code: unhealthy, gpus: []string{"0 0 -", "- 0 -"}},
		"one GPU is in a clique":                               {code: unhealthy, gpus: []string{"0 0 -", "7 0 -"}},
		"a board of a rack":                                    {model: "NVIDIA GB200", code: unhealthy, gpus: []string{"0 0 -"}},
		"GPU in a clique without a daemon, domain unavailable": {code: unhealthy, gpus: []string{"7 -3 UNAVAILABLE"}, want: "no_daemon"},
		"GPU in a clique without a daemon, domain down":        {code: unhealthy, gpus: []string{"7 -3 DOWN"}},
		"GPU in a clique without a daemon, domain degraded":    {code: unhealthy, gpus: []string{"7 -3 DEGRADED"}},
		"a watch that passes":                                  {gpus: []string{"0 0 -"}},
		"another finding about the machine":                    {code: "DCGM_FR_UNKNOWN", gpus: []string{"0 0 -"}},
		"only the lost GPU is in the clique":                   {code: unhealthy, gpus: []string{"lost", "7 -3 UP"}, want: "no_daemon"},
	} {
		t.Run(name, func(t *testing.T) {
			h := gpu.HealthCheck{Row: 0, Watch: "IMEX", Code: tt.code}
			if tt.code != "" {
				h.Result = 20
			}
			var facts snapshot.Facts
			got := imex(t, &facts, tt.model, h, tt.gpus...)
			if got != tt.want {
				t.Errorf("corrected = %q, want %q", got, tt.want)
			}
		})
	}
}

// A daemon that was once ready belongs to the machine. If it stops, that is a fault.
func TestIMEXDaemonThatWasReady(t *testing.T) {
	var facts snapshot.Facts
	passes := gpu.HealthCheck{Row: 0, Watch: "IMEX"}
	fails := gpu.HealthCheck{Row: 0, Watch: "IMEX", Code: "DCGM_FR_IMEX_UNHEALTHY", Result: 20}
	for i, step := range []struct {
		check gpu.HealthCheck
		gpu   string
		want  string
	}{
		{fails, "7 -3 UNAVAILABLE", "no_daemon"}, {passes, "7 5 UP", ""}, {fails, "7 -3 UNAVAILABLE", ""},
	} {
		if got := imex(t, &facts, "", step.check, step.gpu); got != step.want {
			t.Errorf("step %d: corrected = %q, want %q", i, got, step.want)
		}
	}
}

// imex returns the value of the label corrected after a health check of the machine. The machine has the given GPUs, in
// the notation of TestIMEXCorrections.
func imex(t *testing.T, facts *snapshot.Facts, model string, h gpu.HealthCheck, gpus ...string) (corrected string) {
	t.Helper()
	requests, _, err := counters.Parse(strings.NewReader("DCGM_EXP_NODE_HEALTH_STATUS, gauge,"), "f")
	if err != nil {
		t.Fatal(err)
	}
	plan := counters.NewPlan(requests, counters.PlanOptions{Interval: time.Second, Devices: gpu.Selector{Flex: true}})
	now := time.Unix(1_800_000_000, 0)
	devices := []gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindNode}}}
	batch := &gpu.Batch{Health: []gpu.HealthCheck{h}}
	for i, state := range gpus {
		row := len(devices)
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: uint32(i)}, GPU: uint32(i), UUID: fmt.Sprint("GPU-", i), Model: model,
		})
		if state == "lost" {
			batch.FailPart(row, gpu.PartEntity, gpu.ErrLost)
			continue
		}
		values := strings.Fields(state)
		for field := range plan.Fields {
			value := values[map[gpu.FieldID]int{catalog.FabricCliqueID: 0, catalog.IMEXDaemonStatus: 1, catalog.IMEXDomainStatus: 2}[plan.Fields[field].ID]]
			var n int64
			switch _, err := fmt.Sscan(value, &n); {
			case value == "-":
			case value == "n/a":
				batch.Fail(row, field, gpu.ErrNotSupported)
			case err != nil:
				batch.Add(row, field, gpu.Text(value), now)
			default:
				batch.Add(row, field, gpu.Int(n), now)
			}
		}
	}
	s := snapshot.NewBuilder(gpu.NewTopology(devices), plan, []snapshot.Deriver{facts}).
		Build(snapshot.Reading{Batch: batch, Begin: now, Now: now})
	found := false
	for _, f := range s.Families {
		for _, x := range f.Series {
			for _, l := range x.Labels {
				if l.Name == "corrected" {
					corrected = l.Value
				}
			}
			found = found || x.Row == 0
		}
	}
	if !found {
		t.Error("no health series of the machine, want one")
	}
	return corrected
}
