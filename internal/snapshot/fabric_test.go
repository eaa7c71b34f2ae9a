package snapshot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// TestFabricIsAbsent checks the reasons why a GPU has no fabric condition.
func TestFabricIsAbsent(t *testing.T) {
	requests, _, err := counters.Parse(strings.NewReader("DCGM_EXP_FABRIC_STATE, gauge,\nDCGM_EXP_FABRIC_INFO, gauge,"), "f")
	if err != nil {
		t.Fatal(err)
	}
	plan := counters.NewPlan(requests, counters.PlanOptions{Interval: time.Second, Devices: gpu.Selector{Flex: true}})
	if plan.Fields[0].ID != catalog.FabricManagerStatus {
		t.Fatalf("first field of the plan = %v, want the fabric manager's status", plan.Fields[0])
	}
	const both = "DCGM_EXP_FABRIC_STATE %s, DCGM_EXP_FABRIC_INFO not_supported"
	for name, tt := range map[string]struct {
		model string
		gpus  int
		state int64
		fault error
		want  string
	}{
		"a board without fabric":            {gpus: 2, want: fmt.Sprintf(both, "not_supported")},
		"an NVML without the function":      {gpus: 2, state: 6, want: fmt.Sprintf(both, "version")},
		"an unknown state":                  {gpus: 2, state: 5, want: fmt.Sprintf(both, "not_supported")},
		"no permission":                     {gpus: 2, fault: gpu.ErrPermission, want: fmt.Sprintf(both, "permission")},
		"a registration in progress":        {gpus: 2, state: 2, want: "not_completed 1, DCGM_EXP_FABRIC_INFO not_supported"},
		"the only GPU of a virtual machine": {model: "NVIDIA GB200", gpus: 1, want: fmt.Sprintf(both, "not_supported")},
		"GPUs of a rack without a fabric":   {model: "NVIDIA GB200", gpus: 2, want: "not_completed 1, DCGM_EXP_FABRIC_INFO not_supported"},
	} {
		t.Run(name, func(t *testing.T) {
			var devices []gpu.Device
			batch, now := &gpu.Batch{}, time.Unix(1_800_000_000, 0)
			for i := range tt.gpus {
				id := uint32(i)
				devices = append(devices, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, Model: tt.model})
				batch.Add(i, 2, gpu.Int(0), now) // the clique, which shows that the GPU can be read
				if tt.fault != nil {
					batch.Fail(i, 0, tt.fault)
				} else {
					batch.Add(i, 0, gpu.Int(tt.state), now)
				}
			}
			b := snapshot.NewBuilder(gpu.NewTopology(devices), plan, []snapshot.Deriver{new(snapshot.Facts)})
			s := b.Build(snapshot.Reading{Batch: batch, Begin: now, Now: now})
			var got []string
			for _, f := range s.Families {
				for _, x := range f.Series {
					if x.Row == 0 {
						got = append(got, x.Labels[0].Value+" "+x.Value.String())
					}
				}
			}
			for _, u := range s.Health.Unavailable {
				got = append(got, u.Field+" "+u.Reason)
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, ", ")); diff != "" {
				t.Errorf("series (-want +got):\n%s", diff)
			}
		})
	}
}
