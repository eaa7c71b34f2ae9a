//go:build linux && cgo

package dcgm_test

import (
	"errors"
	"fmt"
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
	passed := map[string]string{}
	var failed []string
	for _, x := range r.read().Health {
		if device := fmt.Sprint("GPU ", x.Row); x.Result == 0 && x.Code == "" {
			passed[device] += " " + x.Watch
		} else {
			failed = append(failed, fmt.Sprint(device, " ", x.Watch, " ", x.Code, " ", x.Result))
		}
	}
	checkEqual(t, "passed", map[string]string{
		"GPU 0": " PCIE NVLINK PMU MCU MEM SM INFOROM POWER DRIVER ALL",
		"GPU 1": " PCIE PMU MCU MEM SM INFOROM THERMAL POWER DRIVER",
	}, passed)
	checkEqual(t, "failed", []string{
		"GPU 0 THERMAL DCGM_FR_THERMAL_VIOLATIONS 20", "GPU 0 THERMAL DCGM_FR_CLOCK_THROTTLE_THERMAL 10",
		"GPU 1 NVLINK 4000 20",
		"GPU 1 ALL DCGM_FR_FALLEN_OFF_BUS 20", // the whole GPU, for example one that fell off the bus
		"GPU 1 IMEX DCGM_FR_IMEX_UNHEALTHY 20",
	}, failed)
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
	for failure, reason := range map[string]string{
		"dcgmHealthSet -33": "not_supported", "dcgmHealthCheck -33": "not_supported",
		"dcgmGroupCreate -24 1 4": "unavailable",
	} {
		t.Run(failure, func(t *testing.T) {
			r := start(t, healthPlan(onGPU), dcgm.Options{}, world("fail "+failure)...)
			b := r.until("samples", func(b *gpu.Batch, _ error) bool { return len(b.Samples) == 2 })
			if len(b.Health) == 0 && !slices.Contains(r.shown(b), "all health "+reason) {
				t.Errorf("batch = %v, want health checks, or the fault %s", r.shown(b), reason)
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
		return len(b.Peers) == 0 && len(b.Samples) == 2 && slices.Contains(r.shown(b), "all peers not_supported")
	})
}

// losePlan requests everything in which a lost GPU could affect others: fields, profiling, XIDs, health, peers and
// placement.
func losePlan() *gpu.Plan {
	plan := planOf(field(150, onGPU), profiling(1001), events(230))
	plan.Health, plan.Peers, plan.Placement = onGPU, true, true
	return plan
}

// served returns the GPUs for which a batch has a sample of a field.
func (r *rig) served(b *gpu.Batch, field int) (ids []uint32) {
	for _, x := range b.Samples {
		if x.Field == field {
			ids = append(ids, r.Topology().Devices[x.Row].GPU)
		}
	}
	return ids
}

// untilServed reads until a field has a value of each of n GPUs.
func (r *rig) untilServed(field, n int) *gpu.Batch {
	r.t.Helper()
	return r.until(fmt.Sprintf("field #%d of %d GPUs", field, n), func(b *gpu.Batch, _ error) bool {
		return len(r.served(b, field)) == n
	})
}

// If a GPU is lost when the session opens, only that GPU is missing. When it returns, the session ends, and the next
// session reads it completely.
func TestLostAmongOthers(t *testing.T) {
	lines := gpusOf(8)
	lines[len(lines)-5] += " status=lost" // GPU 3
	var log strings.Builder
	r := start(t, losePlan(), logTo(&log), lines...)
	mentions(t, log.String(), "DCGM cannot read a GPU", "gpu=3", "state=lost")
	others := []uint32{0, 1, 2, 4, 5, 6, 7}
	b := r.untilServed(1, 7)
	for f := range 2 {
		checkEqual(t, fmt.Sprintf("field #%d", f), others, r.served(b, f))
	}
	if len(b.Faults) != 1 || !slices.Contains(r.shown(b), "GPU 3 entity lost") {
		t.Errorf("faults = %v, want only that GPU 3 is lost", r.shown(b))
	}
	if d := r.Topology().Devices[3]; d.UUID != "GPU-3" || d.Model == "" || d.PCIBusID == "" {
		t.Errorf("device of the lost GPU = %+v, want its UUID, model and PCI bus id", d)
	}
	if n := len(b.Health); n != 77 {
		t.Errorf("health checks = %d, want eleven for each of seven GPUs", n)
	}
	r.e.Add("event 1 gpu:5 230 62")
	r.until("an XID", func(b *gpu.Batch, _ error) bool { return slices.Contains(r.shown(b), "GPU 5 XID 62") })
	r.e.Replace(" status=lost", "")
	r = r.follow(losePlan())
	// A loss during a session is noticed in the Read in which the values disappear, not only at the next inspection.
	for range 2 {
		if b = r.untilServed(1, 8); len(b.Faults) > 0 {
			t.Errorf("batch after GPU 3 returned = %v, want no faults", r.shown(b))
		}
		r.e.Replace("name=H100 bus=00000000:04", "status=lost name=H100 bus=00000000:04")
		if b = r.untilServed(0, 7); !slices.Contains(r.shown(b), "GPU 3 entity lost") {
			t.Errorf("batch = %v, want GPU 3 entity lost", r.shown(b))
		}
		r.e.Replace("status=lost ", "")
	}
	r.lives()
}

// If a GPU is lost during Open, at any call, the other GPUs are served. The lost GPU is served when it returns.
func TestLostDuringOpen(t *testing.T) {
	for at := range 60 {
		code := []int{-18, -3}[at%2] // GPU lost, or not accessible
		t.Run(fmt.Sprint(at/2, code), func(t *testing.T) {
			plan := planOf(field(150, onGPU), profiling(1001), events(230))
			failure := fmt.Sprintf("fail dcgmGroupAddEntity %d 1 %d", code, at/2)
			r := start(t, plan, dcgm.Options{}, gpusOf(4, failure)...)
			b := r.read()
			n := len(r.served(b, 0))
			if n < 3 {
				t.Errorf("served GPUs = %d of 4, want at least 3: %v", n, r.shown(b))
			}
			if n == 3 && code == -18 {
				r = r.follow(plan)
				r.untilServed(0, 4)
			}
		})
	}
}

// If the engine did not report an identity, it is queried again. The next session has it.
func TestLateIdentity(t *testing.T) {
	plan := fabricPlan()
	for _, late := range []string{
		"fail dcgmGetCpuHierarchy_v2 -11", "value gpu:* 55 blank i", "value gpu:* 52 blank i",
	} {
		t.Run(late, func(t *testing.T) {
			r := start(t, plan, dcgm.Options{}.RetryRefused(interval), fabric()...)
			want := r.Topology().Devices
			r.close()
			r.e.Add(late)
			r = r.again(plan)
			if slices.Equal(want, r.Topology().Devices) {
				t.Fatal("identity is known from the start, want it unknown at first")
			}
			for range 6 {
				pause()
				r.read()
				r.lives()
			}
			r.e.Remove(late)
			checkEqual(t, "devices in the next session", want, r.follow(plan).Topology().Devices)
		})
	}
}

// Close ignores the error of the engine that a field is not watched. It returns other errors of an unwatch.
func TestUnwatch(t *testing.T) {
	r := start(t, planOf(field(150, onGPU), text(1)), dcgm.Options{}, world()...)
	r.close()
	r.checkClosed()
	r.e.Add("fail dcgmUnwatchFields -17")
	if err := r.again(xidPlan()).Close(); !errors.Is(err, gpu.ErrPermission) {
		t.Errorf("Close: %v, want %v", err, gpu.ErrPermission)
	}
}

// A remote engine logs one unnecessary error at Open, for the driver's version, and none at Close.
func TestUnwatchErrorsInEngineLog(t *testing.T) {
	r := start(t, planOf(field(150, onGPU), text(1)), remoteEngine, gpusOf(8)...)
	if r.Topology().Driver == "" {
		t.Error("driver version is empty, want the engine's")
	}
	r.close()
	if n := r.e.Count("log.unwatch"); n != 1 {
		t.Errorf("errors in the engine's log = %d, want 1", n)
	}
}

// Values that were not requested do not become samples, and do not end the session.
func TestStrays(t *testing.T) {
	for _, group := range []string{"0 0", "1 0", "1 1", "4 7", "257 0", "6 4294967295", "1 99"} {
		strays := []string{"stray 1 0 54 s 0", "stray 1 0 150 361 7", "stray 257 0 150 i 7", "value gpu:* 112 int 4"}
		for _, id := range []int{0, 1, 54, 69, 70, 74, 85, 90, 112, 155, 230, 255, 1001, 1999, 65535} {
			strays = append(strays, fmt.Sprintf("stray %s %d i 7", group, id))
		}
		plan := planOf(field(150, onGPU), events(112), every(156, interval))
		plan.Placement = true
		r := start(t, plan, dcgm.Options{}, world(strays...)...)
		for range 3 {
			for _, x := range r.read().Samples {
				// The plan requests field 112, so its stray values may be shown.
				if x.Value == gpu.Int(7) && x.Field != 1 {
					t.Errorf("%v was not requested, want no sample", r.shown(&gpu.Batch{Samples: []gpu.Sample{x}}))
				}
			}
			pause()
		}
		if uuid := r.Topology().Devices[0].UUID; len(uuid) > 256 {
			t.Errorf("string without a terminator has %d bytes, want at most 256", len(uuid))
		}
		r.close()
	}
}
