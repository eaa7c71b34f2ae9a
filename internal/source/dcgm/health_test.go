//go:build linux && cgo

package dcgm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

func healthPlan(kinds gpu.Kinds) *gpu.Plan {
	plan := planOf(field(150, onGPU))
	plan.Health = kinds
	return plan
}

// Each GPU has a result for each watch: either its codes, each once with the worst result, or a pass. Findings about
// the node, a switch or a card do not affect the GPU with the same number.
func TestHealth(t *testing.T) {
	r := start(t, healthPlan(onGPU), dcgm.Options{}, world(
		"incident gpu:0 0x80 10 40", "incident gpu:0 0x80 20 40",
		"incident gpu:0 0x80 10 40", "incident gpu:0 0x80 10 10",
		"incident gpu:1 0x2000 20 122", "incident gpu:1 0x2 20 4000",
		"incident gpu:1 0xffffffff 20 120",
		"incident none:0 0x2 20 122", "incident switch:0 0x2 20 45", "incident connectx:1 0x1 20 45")...)
	var want []gpu.HealthCheck
	add := func(row int, watch, code string, result int64) {
		want = append(want, gpu.HealthCheck{Row: row, Watch: watch, Code: code, Result: result})
	}
	for row := range 2 {
		for _, watch := range strings.Fields("PCIE NVLINK PMU MCU MEM SM INFOROM THERMAL POWER DRIVER ALL") {
			switch {
			case row == 0 && watch == "THERMAL":
				add(0, watch, "DCGM_FR_THERMAL_VIOLATIONS", 20)
				add(0, watch, "DCGM_FR_CLOCK_THROTTLE_THERMAL", 10)
			case row == 1 && watch == "NVLINK":
				add(1, watch, "4000", 20)
			case row == 1 && watch == "ALL": // the whole GPU, for example one that fell off the bus
				add(1, watch, "DCGM_FR_FALLEN_OFF_BUS", 20)
			default:
				add(row, watch, "", 0)
			}
		}
	}
	add(1, "IMEX", "DCGM_FR_IMEX_UNHEALTHY", 20)
	checkEqual(t, "health", want, r.read().Health)
	r.e.Replace("minor=3", "minor=3 status=lost")
	for _, x := range r.read().Health {
		if x.Row == 1 && x.Result == 0 {
			t.Errorf("lost GPU passes %s, want no result", x.Watch)
		}
	}
}

// The engine checks the machine through its GPUs, even if health of GPUs is not requested.
func TestHealthOfTheMachineAlone(t *testing.T) {
	r := start(t, healthPlan(onMachine), dcgm.Options{}, world("incident none:0 0x2 20 122",
		"incident gpu:0 0x2 20 13", "switch 0 links=1", "incident switch:0 0x800 20 15")...)
	row, _ := r.Topology().Row(gpu.Entity{Kind: gpu.KindNode})
	want := []gpu.HealthCheck{{Row: row, Watch: "IMEX", Code: "DCGM_FR_IMEX_UNHEALTHY", Result: 20}}
	checkEqual(t, "health", want, r.read().Health)
}

// If the engine rejects health checks, only health is missing. It is reported once the engine accepts them.
func TestHealthRefused(t *testing.T) {
	for _, failure := range []string{"dcgmHealthSet -33", "dcgmHealthCheck -33", "dcgmGroupCreate -24 1 4"} {
		t.Run(failure, func(t *testing.T) {
			r := start(t, healthPlan(onGPU), dcgm.Options{}, world("fail "+failure)...)
			b := r.until("samples", func(b *gpu.Batch, _ error) bool { return len(b.Samples) == 2 })
			refused := slices.ContainsFunc(b.Faults, func(f gpu.Fault) bool {
				return f.Row == gpu.AllRows && f.Part == gpu.PartHealthChecks && gpu.Reason(f.Err) != "error"
			})
			if len(b.Health) == 0 && !refused {
				t.Errorf("batch has no health checks; faults = %v, want one of PartHealthChecks with a specific reason",
					b.Faults)
			}
			r.e.Remove("fail")
			isServed := func(b *gpu.Batch, _ error) bool { return len(b.Health) == 22 && len(b.Faults) == 0 }
			r.until("health", isServed)
		})
	}
}

// NVLink states are reported for each direction, with DCGM's words.
func TestPeers(t *testing.T) {
	plan := planOf(field(150, onGPU))
	plan.Peers = true
	r := start(t, plan, dcgm.Options{}, world(gpuLine(4, ""), "peer 0 1 0", "peer 1 0 4", "peer 0 4 1", "peer 4 0 2",
		"peer 1 4 3", "peer 4 1 77")...)
	got := map[string]string{}
	for _, x := range r.read().Peers {
		got[r.Topology().Devices[x.Row].UUID+" to "+r.Topology().Devices[x.Peer].UUID] = x.Status
	}
	want := map[string]string{
		"GPU-0 to GPU-1": "OK", "GPU-1 to GPU-0": "DisabledByRegKey", "GPU-0 to GPU-4": "ChipsetNotSupported",
		"GPU-4 to GPU-0": "GPUNotSupported", "GPU-1 to GPU-4": "TopologyNotSupported", "GPU-4 to GPU-1": "Unknown",
	}
	checkEqual(t, "peers", want, got)
	r.e.Replace("minor=6", "minor=6 status=lost")
	if n := len(r.read().Peers); n != 2 {
		t.Errorf("peer states without the lost GPU = %d, want 2", n)
	}
	r.e.Add("fail dcgmGetNvLinkP2PStatus -6")
	r.until("a fault", func(b *gpu.Batch, _ error) bool {
		return len(b.Peers) == 0 && len(b.Samples) == 2 && slices.ContainsFunc(b.Faults, func(f gpu.Fault) bool {
			return f.Part == gpu.PartPeerStates && errors.Is(f.Err, gpu.ErrNotSupported)
		})
	})
}
