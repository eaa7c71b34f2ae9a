package sim_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// Sessions overlap: a reload opens the new session before it closes the old one. Attributors and Stats run at the same
// time as reads.
func TestSessionsOverlap(t *testing.T) {
	src, err := sim.New(sim.Options{Node: "demo", Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	plan := simulated.Plan(gpuTemp, fbUsed, energy, clockReasons)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := src.Open(t.Context(), plan)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			var b gpu.Batch
			for range 50 {
				b.Reset()
				if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
					t.Error(err)
				}
				if _, err := src.Attribute(t.Context(), s.Topology()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := src.Stats(); got != (sim.Stats{}) {
		t.Errorf("calls and sessions left open = %+v, want none", got)
	}
}

func TestPowerLimitOfTheNode(t *testing.T) {
	// The node limits the A10 to 120 W of 150 W.
	const defaultLimit = 163
	r := play(t, sim.Options{Node: "mixed", Seed: 2}, simulated.Plan(powerUsage, powerLimit, defaultLimit))
	most := 0.0
	for range 500 {
		r.Pass(time.Minute)
		most = max(most, r.read().num(1, powerUsage))
	}
	v := r.read()
	if v.num(1, powerLimit) != 120 || v.num(1, defaultLimit) != 150 || most > 120 {
		t.Errorf("power limit = %v W (default %v W), highest power = %v W, want 120, 150, at most 120",
			v.num(1, powerLimit), v.num(1, defaultLimit), most)
	}
}

func TestShapes(t *testing.T) {
	for _, test := range []struct {
		name, node string
		row        int
		idle, busy [2]float64 // fractions of time below 2 % and above 70 %
	}{
		{"training is busy except for pauses", "single", 0, [2]float64{0, 0}, [2]float64{0.9, 0.99}},
		{"batch is busy about half of the time", "mixed", 4, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.7}},
		{"two notebooks on one GPU are mostly idle", "mixed", 1, [2]float64{0.6, 0.95}, [2]float64{0, 0.1}},
		{"inference follows the day", "t4", 0, [2]float64{0, 0}, [2]float64{0.2, 0.4}},
		{"a GPU without a pod is idle", "t4", 3, [2]float64{1, 1}, [2]float64{0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := play(t, sim.Options{Node: test.node, Seed: 1}, simulated.Plan(gpuUtil))
			const n = 4000
			idle, busy := 0.0, 0.0
			for range n {
				r.Pass(29 * time.Second)
				switch u := r.read().num(test.row, gpuUtil); {
				case u < 2:
					idle++
				case u > 70:
					busy++
				}
			}
			if idle /= n; idle < test.idle[0] || idle > test.idle[1] {
				t.Errorf("idle fraction = %v, want %v", idle, test.idle)
			}
			if busy /= n; busy < test.busy[0] || busy > test.busy[1] {
				t.Errorf("busy fraction = %v, want %v", busy, test.busy)
			}
		})
	}
}

func TestSwitchTrafficIsGPUTraffic(t *testing.T) {
	const switchRx, linkTx = 862, 780
	r := play(t, sim.Options{Node: "nvswitch", Seed: 1}, simulated.Plan(switchRx, linkTx))
	r.Pass(time.Hour)
	v := r.read()
	sum := func(kind gpu.Kind, parent gpu.Kind, id gpu.FieldID) (total float64) {
		for _, row := range r.rows(kind) {
			if parent == gpu.KindNone || r.s.Topology().Devices[row].Entity.ParentKind == parent {
				total += v.num(row, id)
			}
		}
		return total
	}
	gpus := sum(gpu.KindNVLink, gpu.KindGPU, linkTx)
	for what, got := range map[string]float64{
		"the switches":        sum(gpu.KindNVSwitch, gpu.KindNone, switchRx),
		"the switches' links": sum(gpu.KindNVLink, gpu.KindNVSwitch, linkTx),
	} {
		if gpus < 1e12 || math.Abs(got/gpus-1) > 1e-6 {
			t.Errorf("%s carried %v bytes, want %v as sent by the GPUs", what, got, gpus)
		}
	}
}

func TestCPUsAndTheirCores(t *testing.T) {
	const cpuPower, cpuLimit = 1130, 1131
	r := play(t, sim.Options{Node: "grace-hopper", Seed: 1}, simulated.Plan(coreBusy, cpuPower, cpuLimit))
	top := r.s.Topology()
	for range 20 {
		r.Pass(41 * time.Second)
		v := r.read()
		mean := map[int]float64{}
		for _, row := range r.rows(gpu.KindCPUCore) {
			mean[top.ParentRow(row)] += v.num(row, coreBusy) / 72
		}
		for _, row := range r.rows(gpu.KindCPU) {
			if got := v.num(row, coreBusy); math.Abs(got-mean[row]) > 0.1 {
				t.Errorf("%v: utilization = %v, want %v, the mean of its cores",
					top.Devices[row].Entity, got, mean[row])
			}
			if p := v.num(row, cpuPower); p <= 0 || p > v.num(row, cpuLimit) {
				t.Errorf("%v: power = %v W, want above 0 and at most %v W",
					top.Devices[row].Entity, p, v.num(row, cpuLimit))
			}
		}
	}
}

// Memory and link errors are rare, but occur on some of many nodes.
func TestErrorsAreRare(t *testing.T) {
	const sbe, remapped, replays = 312, 394, 202
	plan := simulated.Plan(sbe, remapped, replays)
	with := map[gpu.FieldID]int{}
	const nodes = 40
	for seed := range uint64(nodes) {
		r := play(t, sim.Options{Node: "nvswitch", Seed: seed}, plan)
		v := r.read()
		for _, row := range r.rows(gpu.KindGPU) {
			for _, id := range []gpu.FieldID{sbe, remapped, replays} {
				if v.num(row, id) > 0 {
					with[id]++
				}
			}
		}
	}
	for id, n := range with {
		if share := float64(n) / (8 * nodes); share > 0.25 {
			t.Errorf("fraction of the GPUs on which field %d is not 0 = %v, want at most 0.25", id, share)
		}
	}
	if len(with) != 3 {
		t.Errorf("GPUs with errors, by field: %v of %d GPUs; want some for each field", with, 8*nodes)
	}
}
