package sim_test

import (
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

func TestContract(t *testing.T) {
	const faults = `
faults:
  - {fault: gpu-lost, at: 1h, devices: ["0"]}
  - {fault: xid, at: 20m, devices: ["0"], xids: [62]}
  - {fault: xid, at: 40m, devices: ["0"], xids: [45, 45]}
  - {fault: engine-down, at: 3h}
`
	const cut = `
  - {fault: repartition, at: 2h, devices: ["0"], mig: []}
`
	for _, name := range sim.Nodes() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := simulated.NewClock()
			var src *sim.Source
			happened := 0
			plan := simulated.Plan()
			plan.Placement, plan.Peers, plan.Health = true, true, gpu.KindsOf(gpu.KindGPU)
			f := contract.Fixture{
				Plan: plan,
				Now:  c.Now,
				New: func(t *testing.T) collector.Source {
					happened = 0
					c.At(0)
					script := faults
					if canCut(t, name) {
						script += cut
					}
					var err error
					src, err = sim.New(sim.Options{
						Node: name, Seed: 1, Now: c.Now, Scenario: simulated.Scenario(t, script),
					})
					if err != nil {
						t.Fatal(err)
					}
					return collector.SourceOf(src.Open)
				},
				Settle: func(*testing.T) { c.Pass(10 * time.Second) },
				XID: func(*testing.T) {
					if happened++; happened == 1 {
						c.At(21 * time.Minute)
					} else {
						c.At(41 * time.Minute)
					}
				},
				Lose:        func(*testing.T, int) { c.At(time.Hour) },
				Kill:        func(*testing.T) { c.At(3 * time.Hour) },
				OpenHandles: func(*testing.T) int { return int(src.Stats().Open) },
			}
			if name == "everything" {
				f.Kinds = gpu.KindsOf(
					gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore,
					gpu.KindConnectX,
				)
			}
			if name == "orin" { // its driver reports no XIDs
				f.XID = nil
			}
			if canCut(t, name) {
				f.Change = func(*testing.T) { c.At(2 * time.Hour) }
			}
			contract.Run(t, f)
		})
	}
}

// canCut reports whether the node's first GPU supports MIG.
func canCut(t *testing.T, name string) bool {
	t.Helper()
	_, err := sim.New(sim.Options{
		Node: name, Scenario: simulated.Scenario(t, `faults: [{fault: repartition, devices: ["0"], mig: []}]`),
	})
	return err == nil
}
