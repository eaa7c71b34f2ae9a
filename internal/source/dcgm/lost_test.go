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

// losePlan requests everything in which a lost GPU could affect others: fields, profiling, XIDs, health, peers and
// placement.
func losePlan() *gpu.Plan {
	plan := planOf(field(150, onGPU), profiling(1001), events(230))
	plan.Health, plan.Peers, plan.Placement = onGPU, true, true
	return plan
}

// served returns the GPUs of which a batch has a sample of a field.
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

// isLost reports whether a fault is that of the lost GPU of a row.
func isLost(f gpu.Fault, row int) bool {
	return f.Row == row && f.Part == gpu.PartEntity && errors.Is(f.Err, gpu.ErrLost)
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
	if len(b.Faults) != 1 || !isLost(b.Faults[0], 3) {
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
	b = r.untilServed(1, 8)
	if len(b.Faults) > 0 {
		t.Errorf("batch after GPU 3 returned = %v, want no faults", r.shown(b))
	}
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

// A lost GPU is noticed in the Read in which its values disappear, not only at the next inspection.
func TestLossIsNoticedImmediately(t *testing.T) {
	r := start(t, losePlan(), dcgm.Options{}, gpusOf(4)...)
	r.untilServed(1, 4)
	r.e.Replace("name=H100 bus=00000000:03", "status=lost name=H100 bus=00000000:03")
	b := r.untilServed(0, 3)
	if !slices.ContainsFunc(b.Faults, func(f gpu.Fault) bool { return isLost(f, 2) }) {
		t.Errorf("batch = %v, want the fault gpu.ErrLost for the GPU without values", r.shown(b))
	}
	r.e.Replace("status=lost ", "")
	if b := r.untilServed(1, 4); len(b.Faults) != 0 {
		t.Errorf("batch after the GPU returned = %v, want no faults", r.shown(b))
	}
	r.lives()
}

// If the engine did not report an identity, it is queried again. The next session has it.
func TestLateIdentity(t *testing.T) {
	plan := fabricPlan()
	for name, tt := range map[string]struct {
		late string
		ok   func(*gpu.Topology) bool
	}{
		"CPUs":  {"fail dcgmGetCpuHierarchy_v2 -11", func(top *gpu.Topology) bool { return hasKind(top, gpu.KindCPU) }},
		"minor": {"value gpu:* 55 blank i", func(top *gpu.Topology) bool { return top.Devices[0].Minor == 2 }},
		"index": {"value gpu:* 52 blank i", func(top *gpu.Topology) bool { return top.Devices[0].NVMLIndex == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, plan, dcgm.Options{}.RetryRefused(interval), fabric(tt.late)...)
			if tt.ok(r.Topology()) {
				t.Fatal("identity is known from the start, want it unknown at first")
			}
			for range 6 {
				pause()
				r.read()
				r.lives()
			}
			r.e.Remove(tt.late)
			r = r.follow(plan)
			if !tt.ok(r.Topology()) {
				t.Errorf("device in the next session = %+v, want its identity", r.Topology().Devices[0])
			}
		})
	}
}

func hasKind(top *gpu.Topology, kind gpu.Kind) bool {
	return slices.ContainsFunc(top.Devices, func(d gpu.Device) bool { return d.Entity.Kind == kind })
}

// The error of an unwatch of something that is not watched is ignored; other errors are not.
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
