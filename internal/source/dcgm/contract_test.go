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

// contractOf returns a fixture of an engine that runs the script, of which GPU 0 may be lost. New sets *e.
func contractOf(
	e **fakedcgm.Engine, o dcgm.Options, plan *gpu.Plan, kinds gpu.Kinds, script ...string,
) contract.Fixture {
	return contract.Fixture{
		New: func(t *testing.T) collector.Source {
			*e = fakedcgm.New(t, script...)
			return collector.SourceOf(dcgm.New(o).Open)
		},
		Plan: plan, Kinds: kinds,
		Settle: func(*testing.T) { pause() },
		Lose:   func(*testing.T, int) { (*e).Replace("minor=2", "minor=2 status=lost") },
		Kill:   func(*testing.T) { (*e).Add("down") },
		OpenHandles: func(*testing.T) (total int) {
			for _, n := range (*e).Open() {
				total += int(n)
			}
			return total
		},
	}
}

func TestContract(t *testing.T) {
	for name, o := range map[string]dcgm.Options{"embedded": {}, "remote": remoteEngine} {
		t.Run(name, func(t *testing.T) {
			var e *fakedcgm.Engine
			happened := 0
			trail := field(156, onGPU)
			trail.AllSamples, trail.Interval = true, time.Microsecond // no two samples are that close
			plan := planOf(field(150, onGPU), field(155, onBoth), profiling(1001), profiling(1004),
				events(112), events(230), text(1), field(310, onGPU), trail)
			f := contractOf(&e, o, plan, onBoth, world("value gpu:* 112 int 4", "value gpu:* 156 nodata")...)
			f.Sampled = 8
			f.Sample = func(*testing.T) gpu.Value {
				happened++
				e.Add(fmt.Sprintf("event %d gpu:0 156 %d", happened, happened))
				return gpu.Int(int64(happened))
			}
			xids := 0
			f.XID = func(*testing.T) {
				if xids++; xids == 1 {
					e.Add("event 1 gpu:0 230 62")
				} else {
					e.Add("event 2 gpu:0 230 45", "event 3 gpu:0 230 45")
				}
			}
			f.Change = func(*testing.T) { e.Replace("instance 8 gpu=1 nvml=2", "instance 8 gpu=1 nvml=5") }
			contract.Run(t, f)
		})
	}
}

// TestContractOfEveryKind runs the contract suite on a node with every kind of entity and a plan with everything in
// addition to fields. GPU 0 and its links are lost, and a switch is added.
func TestContractOfEveryKind(t *testing.T) {
	var e *fakedcgm.Engine
	plan := fabricPlan()
	plan.Fields = append(plan.Fields, field(155, onBoth), events(230), text(1), profiling(1001), field(310, onGPU))
	plan.Health, plan.Peers, plan.Placement = onGPU|onSwitches|onCards|onMachine, true, true
	f := contractOf(&e, dcgm.Options{}, plan, onBoth|onLinks|onSwitches|onCPUs|onCores|onCards,
		fabric("path 0 1 node nvlinks=2", "peer 0 1 0")...)
	f.Change = func(*testing.T) { e.Add("switch 2 links=1") }
	contract.Run(t, f)
}
