package snapshot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// DCGM's NVLink watch ends the condition that NVML reported during a fallback. DCGM itself produces no series of the
// condition.
func TestLinksDownAfterFallback(t *testing.T) {
	requests, _, err := counters.Parse(strings.NewReader("DCGM_EXP_FABRIC_STATE, gauge,\nDCGM_EXP_GPU_HEALTH_STATUS, gauge,"), "f")
	if err != nil {
		t.Fatal(err)
	}
	plan := counters.NewPlan(requests, counters.PlanOptions{Interval: time.Second, Devices: gpu.Selector{Flex: true}})
	if !plan.Links {
		t.Fatal("plan requests link states: false, want true")
	}
	nvml := &gpu.Batch{Links: []gpu.LinkState{{Row: 0, Up: true}, {Row: 1}}}
	passes := &gpu.Batch{Health: []gpu.HealthCheck{
		{Row: 0, Watch: "NVLINK", Code: "DCGM_FR_OK"}, {Row: 1, Watch: "NVLINK", Code: "DCGM_FR_OK"},
	}}
	fails := &gpu.Batch{Health: []gpu.HealthCheck{
		{Row: 0, Watch: "NVLINK", Code: "DCGM_FR_OK"}, {Row: 1, Watch: "NVLINK", Code: "DCGM_FR_NVLINK_DOWN", Result: 20},
	}}
	var facts snapshot.Facts
	for i, step := range []struct {
		batch *gpu.Batch
		want  string
	}{
		{passes, ""}, {fails, ""}, {nvml, "0:0 1:1"}, {fails, ""}, {passes, "1:0"}, {nvml, "0:0 1:1"},
	} {
		topology := gpu.NewTopology([]gpu.Device{
			{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"}, {Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1, UUID: "GPU-1"},
		})
		now := time.Unix(1_800_000_000, 0).Add(time.Duration(i) * time.Second)
		b := snapshot.NewBuilder(topology, plan, []snapshot.Deriver{&facts})
		s := b.Build(snapshot.Reading{Batch: step.batch, Begin: now, Now: now})
		var got []string
		for _, f := range s.Families {
			for _, x := range f.Series {
				if x.Labels[0].Value == "links_down" {
					got = append(got, fmt.Sprintf("%d:%s", x.Row, x.Value))
				}
			}
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("step %d: links_down = %q, want %q", i, got, step.want)
		}
	}
}
