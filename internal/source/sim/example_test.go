package sim_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

func ExampleNew() {
	// Every afternoon at three, GPU 1 falls off the bus.
	faults, err := sim.ParseScenario(strings.NewReader(`
faults:
  - {fault: gpu-lost, at: 6h, devices: ["1"]}
`), "afternoon.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 3, 4, 9, 0, 0, 0, time.UTC)
	source, err := sim.New(sim.Options{
		Node: "t4", Seed: 42, Scenario: faults,
		Now: func() time.Time { return now },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	session, err := source.Open(context.Background(), &gpu.Plan{
		Devices: gpu.Selector{Flex: true},
		Fields: []gpu.Field{{
			ID: 250, Name: "DCGM_FI_DEV_FB_TOTAL", Unit: "MiB", Levels: gpu.KindsOf(gpu.KindGPU),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()

	now = now.Add(6 * time.Hour)
	var batch gpu.Batch
	if err := session.Read(context.Background(), &batch); err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range batch.Samples {
		fmt.Println(session.Topology().Devices[s.Row].Entity, s.Value)
	}
	for _, f := range batch.Faults {
		fmt.Println(session.Topology().Devices[f.Row].Entity, gpu.Reason(f.Err))
	}
	// Output:
	// GPU 0 15360
	// GPU 2 15360
	// GPU 3 15360
	// GPU 1 lost
}
