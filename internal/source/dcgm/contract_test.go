//go:build linux && cgo

package dcgm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

func TestContract(t *testing.T) {
	for name, remote := range map[string]string{"embedded": "", "remote": "10.0.0.9:5555"} {
		t.Run(name, func(t *testing.T) {
			var e *fakedcgm.Engine
			happened, sampled := 0, 0
			trail := field(156, onGPU)
			trail.AllSamples, trail.Interval = true, time.Microsecond // no two samples are that close
			contract.Run(t, contract.Fixture{
				New: func(t *testing.T) collector.Source {
					e = fakedcgm.New(t, world("value gpu:* 112 int 4", "value gpu:* 156 nodata")...)
					happened, sampled = 0, 0
					return collector.SourceOf(dcgm.New(dcgm.Options{Remote: engineAt(remote)}).Open)
				},
				Plan: planOf(field(150, onGPU), field(155, onBoth), profiling(1001), profiling(1004),
					events(112), events(230), text(1), field(310, onGPU), trail),
				Sampled: 8,
				Sample: func(*testing.T) gpu.Value {
					sampled++
					e.Add(fmt.Sprintf("event %d gpu:0 156 %d", sampled, 100+sampled))
					return gpu.Int(int64(100 + sampled))
				},
				Kinds:  onBoth,
				Settle: func(*testing.T) { pause() },
				XID: func(*testing.T) {
					if happened++; happened == 1 {
						e.Add("event 1 gpu:0 230 62")
					} else {
						e.Add("event 2 gpu:0 230 45", "event 3 gpu:0 230 45")
					}
				},
				Lose: func(t *testing.T, row int) {
					e.Replace("minor=2", "minor=2 status=lost")
				},
				Change:      func(t *testing.T) { e.Replace("instance 8 gpu=1 nvml=2", "instance 8 gpu=1 nvml=5") },
				Kill:        func(t *testing.T) { e.Add("down") },
				OpenHandles: func(t *testing.T) int { return handles(e) },
			})
		})
	}
}

func handles(e *fakedcgm.Engine) int {
	total := 0
	for _, n := range e.Open() {
		total += int(n)
	}
	return total
}

// TestContractOfEveryKind runs the contract suite on a node with every kind of entity and a plan with everything in
// addition to fields. GPU 0 and its links are lost, and a switch is added.
func TestContractOfEveryKind(t *testing.T) {
	var e *fakedcgm.Engine
	plan := fabricPlan()
	plan.Fields = append(plan.Fields, field(155, onBoth), events(230), text(1), profiling(1001), field(310, onGPU))
	plan.Health, plan.Peers, plan.Placement = onGPU|onSwitches|onCards|onMachine, true, true
	contract.Run(t, contract.Fixture{
		New: func(t *testing.T) collector.Source {
			e = fakedcgm.New(t, fabric("path 0 1 node nvlinks=2", "peer 0 1 0")...)
			return collector.SourceOf(dcgm.New(dcgm.Options{}).Open)
		},
		Plan:        plan,
		Kinds:       onBoth | onLinks | onSwitches | onCPUs | onCores | onCards,
		Settle:      func(*testing.T) { pause() },
		Lose:        func(*testing.T, int) { e.Replace("minor=2", "minor=2 status=lost") },
		Change:      func(*testing.T) { e.Add("switch 2 links=1") },
		Kill:        func(*testing.T) { e.Add("down") },
		OpenHandles: func(*testing.T) int { return handles(e) },
	})
}
