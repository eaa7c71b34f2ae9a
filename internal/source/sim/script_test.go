package sim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// The value of a field has the unit of the name used in the scenario, or is a string. Other GPUs do not change.
func TestFieldsAreSet(t *testing.T) {
	const cluster = 172
	r := faults(t, "h100x8", simulated.Plan(cluster, smClock, gpuUtil, graphics), `
faults:
  - {fault: set, at: 10s, fields: [DCGM_FI_DEV_FABRIC_CLUSTER_UUID], devices: ["1"], text: another}
  - {fault: set, at: 10s, fields: [DCGM_FI_DEV_SM_CLOCK_HERTZ], devices: ["1"], value: 345000000}
  - {fault: set, at: 10s, fields: [DCGM_FI_DEV_GPU_UTIL_RATIO], devices: ["1"], value: 0.25}
  - {fault: set, at: 10s, fields: ["DCGM_FI_PROF_GR_ENGINE_*"], devices: ["1"], value: 0.5}`)
	r.At(20 * time.Second)
	v := r.read()
	for id, text := range map[gpu.FieldID]string{cluster: "another", smClock: "345", gpuUtil: "25", graphics: "0.5"} {
		if x, _ := v.get(1, id); x.String() != text {
			t.Errorf("field %d of GPU 1 = %q, want %q", id, x, text)
		}
		if x, _ := v.get(0, id); x.String() == text {
			t.Errorf("field %d of GPU 0 = %v, want its own value", id, x)
		}
	}
}

// Clock event reasons of a scenario reduce the clocks. Their changes are in the samples, and their durations in the
// driver's counters.
func TestThrottle(t *testing.T) {
	const thermalThrottled, hwThermalNS, brakeNS = 241, 1423, 1424
	r := faults(t, "single", simulated.Plan(smClock, clockReasons, thermalThrottled, hwThermalNS, brakeNS), `
faults:
  - {fault: throttle, at: 12s, for: 3s, devices: ["0"], reasons: [hw_slowdown, hw_thermal]}
  - {fault: throttle, at: 13s, for: 4s, devices: ["0"], reasons: [hw_thermal]}
  - {fault: throttle, at: 18s, devices: ["0"], reasons: [hw_power_brake]}`)
	r.At(10 * time.Second)
	free := r.read().num(0, smClock)
	r.At(20 * time.Second)
	v := r.read()
	type edge struct {
		At   time.Duration
		Mask int64
	}
	const scripted = 0x08 | 0x40 | 0x80
	var edges []edge
	last := int64(0)
	for _, s := range r.b.Trails {
		n, _ := s.Value.Int64()
		if n &= scripted; n != last {
			edges = append(edges, edge{time.Duration(s.Time - simulated.Epoch.UnixNano()), n})
			last = n
		}
	}
	want := []edge{{12 * time.Second, 0x48}, {15 * time.Second, 0x40}, {17 * time.Second, 0}, {18 * time.Second, 0x80}}
	if diff := cmp.Diff(want, edges); diff != "" {
		t.Errorf("changes of reasons (-want +got):\n%s", diff)
	}
	for id, seconds := range map[gpu.FieldID]float64{thermalThrottled: 5, hwThermalNS: 5, brakeNS: 2} {
		if got := v.num(0, id); got != seconds*1e9 {
			t.Errorf("field %d = %v ns, want %v ns", id, got, seconds*1e9)
		}
	}
	if got := v.num(0, smClock); got > free*0.6 {
		t.Errorf("clock under the power brake = %v MHz, want less than %v MHz", got, free)
	}
}

// A link is down while the fault is active, at both ends.
func TestLinksFlap(t *testing.T) {
	const linkState, switchLinkState, linkRate = 1508, 870, 1529
	r := faults(t, "everything", simulated.Plan(linkState, switchLinkState, linkRate), `
faults:
  - {fault: link-down, at: 10s, for: 10s, devices: ["nvlink 0/4", "nvswitch 1/3"]}
  - {fault: link-down, at: 40s, for: 200ms, devices: ["nvlink 0/4"]}`)
	const first, second = "NVLink 4 of GPU 0", "NVLink 3 of NVSwitch 1"
	for at, want := range map[time.Duration][]string{
		5 * time.Second: nil, 15 * time.Second: {first, second}, 25 * time.Second: nil,
		40*time.Second + 100*time.Millisecond: {first}, 41 * time.Second: nil,
	} {
		r.At(at)
		v := r.read()
		var down []string
		for _, row := range r.rows(gpu.KindNVLink) {
			if v.num(row, linkState)+v.num(row, switchLinkState)+v.num(row, linkRate) == 0 {
				down = append(down, r.s.Topology().Devices[row].Entity.String())
			}
		}
		if diff := cmp.Diff(want, down); diff != "" {
			t.Errorf("links down at %v (-want +got):\n%s", at, diff)
		}
	}
}
