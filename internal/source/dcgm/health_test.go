//go:build linux && cgo

package dcgm_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

func healthPlan() *gpu.Plan {
	plan := planOf(field(150, onGPU))
	plan.Health = onGPU
	return plan
}

// Each GPU has a result for each watch: either its codes, each once with the worst result, or a pass. Findings about
// the node, a switch or a card do not affect the GPU with the same number.
func TestHealth(t *testing.T) {
	e := fakedcgm.New(t, world(
		"incident gpu:0 0x80 10 40", "incident gpu:0 0x80 20 40",
		"incident gpu:0 0x80 10 40", "incident gpu:0 0x80 10 10",
		"incident gpu:1 0x2000 20 122", "incident gpu:1 0x2 20 4000",
		"incident gpu:1 0xffffffff 20 120",
		"incident none:0 0x2 20 122", "incident switch:0 0x2 20 45", "incident connectx:1 0x1 20 45")...)
	s := open(t, e, healthPlan(), dcgm.Options{})
	b := read(t, s)
	var want []gpu.HealthCheck
	for row := range 2 {
		for _, watch := range strings.Fields("PCIE NVLINK PMU MCU MEM SM INFOROM THERMAL POWER DRIVER ALL") {
			switch {
			case row == 0 && watch == "THERMAL":
				want = append(want,
					gpu.HealthCheck{Row: 0, Watch: watch, Code: "DCGM_FR_THERMAL_VIOLATIONS", Result: 20},
					gpu.HealthCheck{Row: 0, Watch: watch, Code: "DCGM_FR_CLOCK_THROTTLE_THERMAL", Result: 10})
			case row == 1 && watch == "NVLINK":
				want = append(want, gpu.HealthCheck{Row: 1, Watch: watch, Code: "4000", Result: 20})
			case row == 1 && watch == "ALL": // the whole GPU, for example one that fell off the bus
				want = append(want, gpu.HealthCheck{Row: 1, Watch: watch, Code: "DCGM_FR_FALLEN_OFF_BUS", Result: 20})
			default:
				want = append(want, gpu.HealthCheck{Row: row, Watch: watch})
			}
		}
	}
	want = append(want, gpu.HealthCheck{Row: 1, Watch: "IMEX", Code: "DCGM_FR_IMEX_UNHEALTHY", Result: 20})
	checkEqual(t, "health", want, b.Health)
	e.Replace("minor=3", "minor=3 status=lost")
	for _, x := range read(t, s).Health {
		if x.Row == 1 && x.Result == 0 {
			t.Errorf("lost GPU passes %s, want no result", x.Watch)
		}
	}
}

// The engine checks the machine through its GPUs, even if health of GPUs is not requested.
func TestHealthOfTheMachineAlone(t *testing.T) {
	e := fakedcgm.New(t, world("incident none:0 0x2 20 122", "incident gpu:0 0x2 20 13", "switch 0 links=1",
		"incident switch:0 0x800 20 15")...)
	plan := healthPlan()
	plan.Health = onMachine
	s := open(t, e, plan, dcgm.Options{})
	got := read(t, s).Health
	row, ok := s.Topology().Row(gpu.Entity{Kind: gpu.KindNode})
	want := []gpu.HealthCheck{{Row: row, Watch: "IMEX", Code: "DCGM_FR_IMEX_UNHEALTHY", Result: 20}}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("health (-want +got):\n%s", diff)
	}
}

// If the engine rejects health checks, only health is missing. It is reported once the engine accepts them.
func TestHealthRefused(t *testing.T) {
	for _, failure := range []string{"dcgmHealthSet -33", "dcgmHealthCheck -33", "dcgmGroupCreate -24 1 4"} {
		t.Run(failure, func(t *testing.T) {
			e := fakedcgm.New(t, world("fail "+failure)...)
			s := open(t, e, healthPlan(), dcgm.Options{})
			b := readUntil(t, s, "samples", func(b *gpu.Batch, _ error) bool { return len(b.Samples) == 2 })
			refused := slices.ContainsFunc(b.Faults, func(f gpu.Fault) bool {
				return f.Row == gpu.AllRows && f.Part == gpu.PartHealthChecks && gpu.Reason(f.Err) != "error"
			})
			if len(b.Health) == 0 && !refused {
				t.Errorf("batch has no health checks; faults = %v, want one of PartHealthChecks with a specific reason",
					b.Faults)
			}
			e.Remove("fail")
			isServed := func(b *gpu.Batch, _ error) bool { return len(b.Health) == 22 && len(b.Faults) == 0 }
			readUntil(t, s, "health", isServed)
		})
	}
}

// NVLink states are reported for each direction, with DCGM's words.
func TestPeers(t *testing.T) {
	e := fakedcgm.New(t, world(gpuLine(4, ""), "peer 0 1 0", "peer 1 0 4", "peer 0 4 1", "peer 4 0 2", "peer 1 4 3",
		"peer 4 1 77")...)
	plan := planOf(field(150, onGPU))
	plan.Peers = true
	s := open(t, e, plan, dcgm.Options{})
	top := s.Topology()
	got := map[string]string{}
	for _, x := range read(t, s).Peers {
		got[top.Devices[x.Row].UUID+" to "+top.Devices[x.Peer].UUID] = x.Status
	}
	want := map[string]string{
		"GPU-0 to GPU-1": "OK", "GPU-1 to GPU-0": "DisabledByRegKey", "GPU-0 to GPU-4": "ChipsetNotSupported",
		"GPU-4 to GPU-0": "GPUNotSupported", "GPU-1 to GPU-4": "TopologyNotSupported", "GPU-4 to GPU-1": "Unknown",
	}
	checkEqual(t, "peers", want, got)
	e.Replace("minor=6", "minor=6 status=lost")
	if n := len(read(t, s).Peers); n != 2 {
		t.Errorf("peer states without the lost GPU = %d, want 2", n)
	}
	e.Add("fail dcgmGetNvLinkP2PStatus -6")
	readUntil(t, s, "a fault", func(b *gpu.Batch, _ error) bool {
		return len(b.Peers) == 0 && len(b.Samples) == 2 && slices.ContainsFunc(b.Faults, func(f gpu.Fault) bool {
			return f.Part == gpu.PartPeerStates && errors.Is(f.Err, gpu.ErrNotSupported)
		})
	})
}

// The engine's health checks keep an XID until the engine restarts. They warn if a violation counter grew in the last
// minute.
func TestHealthKeepsXIDs(t *testing.T) {
	e := fakedcgm.New(t, world("value gpu:0 240 int 1000 1", "value gpu:1 240 int 1000",
		"value gpu:1 241 int 1000 1")...)
	s := open(t, e, healthPlan(), dcgm.Options{})
	read(t, s)
	e.Add("event 1 gpu:0 230 31", "event 2 gpu:1 230 74", "event 3 gpu:1 230 94")
	want := []gpu.HealthCheck{
		{Row: 0, Watch: "MEM", Code: "DCGM_FR_XID_ERROR", Result: 10},
		{Row: 0, Watch: "POWER", Code: "DCGM_FR_CLOCK_THROTTLE_POWER", Result: 10},
		{Row: 1, Watch: "THERMAL", Code: "DCGM_FR_CLOCK_THROTTLE_THERMAL", Result: 10},
		{Row: 1, Watch: "ALL", Code: "DCGM_FR_XID_ERROR", Result: 20},
		{Row: 1, Watch: "ALL", Code: "DCGM_FR_CONTAINED_ERROR", Result: 10},
	}
	found := func(b *gpu.Batch) (list []gpu.HealthCheck) {
		for _, h := range b.Health {
			if h.Result > 0 {
				list = append(list, h)
			}
		}
		return list
	}
	readUntil(t, s, "the expected findings", func(b *gpu.Batch, _ error) bool { return cmp.Equal(found(b), want) })
	closeSession(t, s)
	e.Remove("event") // as if the kernel log had been rotated
	e.Add("boot 7")
	s = open(t, e, healthPlan(), dcgm.Options{})
	list := found(read(t, s))
	if slices.ContainsFunc(list, func(h gpu.HealthCheck) bool { return h.Watch == "ALL" || h.Watch == "MEM" }) {
		t.Errorf("findings of the restarted engine = %v, want none of XIDs", list)
	}
}
