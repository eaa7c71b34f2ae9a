package sim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// trailPlan samples the power every 200 ms, and the temperature as it is read.
func trailPlan() *gpu.Plan {
	plan := simulated.Plan(gpuTemp, powerUsage)
	for i := range plan.Fields {
		if plan.Fields[i].ID == powerUsage {
			plan.Fields[i].Every, plan.Fields[i].Interval = true, 200*time.Millisecond
		}
	}
	return plan
}

// samplesOf and trailOf return the samples of a field of a row in the rig's batch.
func (r *rig) samplesOf(row int, id gpu.FieldID) []gpu.Sample { return r.only(r.b.Samples, row, id) }

func (r *rig) trailOf(row int, id gpu.FieldID) []gpu.Sample { return r.only(r.b.Trails, row, id) }

func (r *rig) only(samples []gpu.Sample, row int, id gpu.FieldID) []gpu.Sample {
	var list []gpu.Sample
	for _, s := range samples {
		if s.Row == row && r.plan.Fields[s.Field].ID == id {
			list = append(list, s)
		}
	}
	return list
}

// A spike of 300 ms between two reads is in the trail and in neither of the values that are read,
// and what is not requested has no trail.
func TestTrail(t *testing.T) {
	r := play(t, sim.Options{Node: "t4", Seed: 3, Scenario: simulated.Scenario(t, `
faults:
  - {fault: spike, at: 17s, for: 300ms, devices: ["1"], fields: [DCGM_FI_DEV_POWER_USAGE], value: 68.5}
  - {fault: gpu-lost, at: 15s, for: 2s, devices: ["2"]}
`)}, trailPlan())
	r.Pass(10 * time.Second)
	r.read()
	r.Pass(10 * time.Second)
	r.read()
	for row := range 4 {
		got := r.trailOf(row, powerUsage)
		want := 50
		if row == 2 {
			want = 40 // two seconds of it lost
		}
		if len(got) != want {
			t.Errorf("GPU %d has %d samples, want %d", row, len(got), want)
		}
		peaks := 0
		for i, s := range got {
			if i > 0 && s.Time <= got[i-1].Time {
				t.Fatalf("GPU %d: sample %d is not after the one before", row, i)
			}
			if age := r.Now().Sub(time.Unix(0, s.Time)); age%(200*time.Millisecond) != 0 || age >= 10*time.Second {
				t.Errorf("GPU %d: a sample is %v old", row, age)
			}
			if n, _ := s.Value.Number(); n == 68.5 {
				peaks++
			}
		}
		if want := map[bool]int{true: 2}[row == 1]; peaks != want {
			t.Errorf("GPU %d: %d samples of the spike, want %d", row, peaks, want)
		}
		if n, m := len(r.samplesOf(row, gpuTemp)), len(r.trailOf(row, gpuTemp)); n != 1 || m != 0 {
			t.Errorf("GPU %d: %d samples of the temperature, %d in a trail", row, n, m)
		}
	}
}

// What was sampled of a GPU before it was lost is not reported of one that is.
func TestNoTrailOfALostGPU(t *testing.T) {
	r := play(t, sim.Options{Node: "t4", Seed: 3, Scenario: simulated.Scenario(t, `faults: [{fault: gpu-lost, at: 19s, devices: ["2"]}]`)}, trailPlan())
	r.At(10 * time.Second)
	r.read()
	r.At(20 * time.Second)
	r.read()
	intact(t, r.plan, &gpu.Batch{Samples: append(r.trailOf(2, powerUsage), r.samplesOf(1, gpuTemp)...), Faults: r.b.Faults}, r.Now())
	if n := len(r.trailOf(1, powerUsage)); n != 50 {
		t.Errorf("%d samples of another GPU", n)
	}
}

// Trails depend on the seed and the time alone, change no other value, and are bounded after a long
// pause.
func TestTrailsAreDeterministicAndBounded(t *testing.T) {
	run := func(plan *gpu.Plan, pause time.Duration) *rig {
		r := play(t, sim.Options{Node: "mixed", Seed: 5}, plan)
		r.Pass(pause)
		r.read()
		return r
	}
	a, b := run(trailPlan(), 37*time.Second), run(trailPlan(), 37*time.Second)
	if diff := cmp.Diff([][]gpu.Sample{a.b.Samples, a.b.Trails}, [][]gpu.Sample{b.b.Samples, b.b.Trails}, cmp.Comparer(func(x, y gpu.Value) bool { return x == y })); diff != "" {
		t.Errorf("the same world twice:\n%s", diff)
	}
	plain := run(simulated.Plan(gpuTemp, powerUsage), 37*time.Second)
	for _, id := range []gpu.FieldID{gpuTemp, powerUsage} {
		with, without := a.samplesOf(1, id), plain.samplesOf(1, id)
		if with[len(with)-1].Value != without[0].Value {
			t.Errorf("field %d is %v with trails, %v without", id, with[len(with)-1].Value, without[0].Value)
		}
	}
	if n := len(run(trailPlan(), time.Hour).trailOf(0, powerUsage)); n < 500 || n > 601 {
		t.Errorf("%d samples after an hour, want 600 and that of now", n)
	}
}
