package advise_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/advise"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// one is the only recommendation for the fleet.
func one(t *testing.T, f *fleet) advise.Recommendation {
	t.Helper()
	m := judge(t, f, advise.Options{})
	if len(m.Recommendations) != 1 {
		t.Fatalf("%q", shorts(m))
	}
	return m.Recommendations[0]
}

// alone puts each pod on an H100 of its own, eight to a node.
func alone(pods ...telemetry.Pod) *fleet {
	f := newFleet()
	for i, p := range pods {
		f.gpu(fmt.Sprintf("n%d", i/8), h100, memory, p)
	}
	return f
}

// many are n pods made of one, each an owner of its own.
func many(n int, p telemetry.Pod) []telemetry.Pod {
	var all []telemetry.Pod
	for i := range n {
		p.Name = fmt.Sprintf("p%c", 'a'+i)
		all = append(all, p)
	}
	return all
}

// What bounds the number of pods on a GPU, one bound at a time.
func TestBounds(t *testing.T) {
	// The percentage of threads: a peak of 14 % of the SMs leaves room for seven clients, though the
	// mean of 12 pods is 60 % of one GPU.
	peaks := steady("x", "", 0.05, gib)
	peaks.Active, peaks.SM = stat(0.05, 0.14), stat(0.05, 0.14)
	if got, want := short(one(t, alone(many(12, peaks)...))), "mps small-steady 12→2 true high"; got != want {
		t.Errorf("threads: %s, want %s", got, want)
	}
	// Bursts at the same time: four of 80 % in every tenth step are three to four GPUs for 10 % of the
	// time, and so none is freed.
	burst := steady("x", "", 0, gib)
	burst.Active = stat(0.08, 0.8)
	burst.Steps = slices.Clone(burst.Steps)
	for i := range burst.Steps {
		if i%10 == 0 {
			burst.Steps[i].V = 0.8
		}
	}
	if got, want := short(one(t, alone(many(4, burst)...))), "none bursty+no-gain 4→4 false high"; got != want {
		t.Errorf("bursts: %s, want %s", got, want)
	}
	// The same bursts one after the other are one GPU's.
	pods := many(4, burst)
	for n := range pods {
		pods[n].Steps = slices.Clone(burst.Steps)
		for i := range pods[n].Steps {
			pods[n].Steps[i].V = 0
			if i%10 == 2*n {
				pods[n].Steps[i].V = 0.8
			}
		}
	}
	if got, want := short(one(t, alone(pods...))), "time-slicing bursty 4→1 true high"; got != want {
		t.Errorf("bursts in turns: %s, want %s", got, want)
	}
	// The mean: together 0.9 of a GPU all the time under time-slicing (a P100 has no MPS of use) are two.
	f := newFleet()
	for _, p := range many(9, steady("x", "", 0.1, gib)) {
		f.gpu("n1", "Tesla P100-SXM2-16GB", 16*gib, p)
	}
	if got, want := short(one(t, f)), "time-slicing small-steady-old 9→2 true high"; got != want {
		t.Errorf("mean: %s, want %s", got, want)
	}
	// Under MPS pods run at the same time, and the SMs are what they share: 12 × 15 % of the time, of
	// which each uses 7.5 % of the SMs, are 0.9.
	if got, want := short(one(t, alone(many(12, steady("x", "", 0.15, gib))...))), "mps small-steady 12→2 true high"; got != want {
		t.Errorf("SMs: %s, want %s", got, want)
	}
	if got, want := short(one(t, alone(many(8, steady("x", "", 0.15, gib))...))), "mps small-steady 8→1 true high"; got != want {
		t.Errorf("SMs: %s, want %s", got, want)
	}
}

// Rules that no other test here decides by.
func TestRules(t *testing.T) {
	// more than half of the memory, half idle
	big := steady("x", "", 0.3, 45*gib)
	if got, want := short(one(t, alone(many(2, big)...))), "streams one-application 2→2 false high"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// memory as active as the SMs
	bound := steady("x", "", 0.3, 4*gib)
	bound.SM, bound.DRAM = stat(0.15, 0.15), stat(0.24, 0.24)
	r := one(t, alone(many(4, bound)...))
	if got, want := short(r), "mig bandwidth-bound 4→2 true high"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// 24 % of the bandwidth is two of eight memory slices, 15 % of the SMs two of seven compute slices:
	// three such instances fit on a GPU, by the MIG User Guide
	if diff := cmp.Diff([]string{"2g.20gb=3", "2g.20gb"}, r.Geometry); diff != "" {
		t.Error(diff)
	}
	// the same with busier SMs is not bound by memory
	bound.SM = stat(0.29, 0.29)
	if got, want := short(one(t, alone(many(4, bound)...))), "mps small-steady 4→2 true high"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// one pod with several GPUs, and others that could share
	f := alone(many(2, steady("x", "", 0.1, gib))...)
	for range 2 {
		f.gpu("n5", h100, memory, steady("x", "wide", 0.1, gib))
	}
	if diff := cmp.Diff([]string{"mps small-steady 2→1 true high", "none several-gpus 2→2 false high"}, shorts(judge(t, f, advise.Options{}))); diff != "" {
		t.Error(diff)
	}
	// a window of a day
	f = alone(many(2, steady("x", "", 0.1, gib))...)
	f.From = f.To.Add(-24 * time.Hour)
	if got, want := short(one(t, f)), "mps small-steady 2→1 true medium"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// nothing is gained: two of 40 % of the memory and the time each take two GPUs of a kind without MIG
	f = newFleet()
	for _, p := range many(2, steady("x", "", 0.3, 11*gib)) {
		f.gpu("n1", "NVIDIA L4", 23*gib, p)
	}
	if got, want := short(one(t, f)), "none small-steady+no-gain 2→2 false high"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A recommendation does not take the node of another while there are more, though both would like it.
func TestNodesAreTakenOnce(t *testing.T) {
	f := newFleet()
	for i := range 4 {
		f.gpu("n1", h100, memory, steady("x", fmt.Sprintf("idle-%c", 'a'+i), 0.01, 8*gib))
		f.gpu("n1", h100, memory, steady("x", fmt.Sprintf("svc-%c", 'a'+i), 0.1, 2*gib))
	}
	f.gpu("n2", h100, memory)
	m := judge(t, f, advise.Options{})
	var got []string
	for _, r := range m.Recommendations {
		got = append(got, fmt.Sprint(r.Mode, r.Nodes))
	}
	if diff := cmp.Diff([]string{"mps[n2]", "time-slicing[n1]"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What an instance is active is a part of the GPU: 80 % of two of an A30's four slices are 40 % of it.
func TestInstancesArePartsOfTheirBoard(t *testing.T) {
	f := newFleet()
	for i, namespace := range []string{"x", "y", "x", "y"} {
		p := steady(namespace, fmt.Sprintf("svc-%c", 'a'+i), 0.3, 4*gib)
		p.Active, p.SM = stat(0.35, 0.8), telemetry.Stat{}
		g := f.gpu(fmt.Sprintf("n%d", i), a30, 0, p)
		g.Instance, g.Profile, g.MemoryBytes = "1", "2g.12gb", 12*gib
	}
	r := one(t, f)
	// 40 % of the GPU is 2g.12gb again; a seventh each would have been 1g.6gb
	if diff := cmp.Diff([]string{"2g.12gb=2", "2g.12gb=2"}, r.Geometry); diff != "" {
		t.Errorf("%s: -want +got:\n%s", short(r), diff)
	}
}

// Instances that lie on more GPUs than they need are brought together; one that no slice of half a GPU
// holds stays, and its GPU counts.
func TestInstancesAreBroughtTogether(t *testing.T) {
	f := newFleet()
	for i := range 4 {
		g := f.gpu("n1", h100, 0, steady(fmt.Sprintf("ns-%d", i), "svc", 0.3, 4*gib))
		g.Instance, g.Profile, g.MemoryBytes = "9", "1g.10gb", 10*gib
	}
	big := steady("ns-9", "big", 0.4, 38*gib)
	g := f.gpu("n2", h100, 0, big)
	g.Instance, g.Profile, g.MemoryBytes = "2", "3g.40gb", 40*gib
	m := judge(t, f, advise.Options{})
	if diff := cmp.Diff([]string{"mig strangers 4→1 true high", "none strangers 1→1 false high"}, shorts(m)); diff != "" || m.Needed != 2 || m.Freed != 3 {
		t.Errorf("%d needed, %d freed, -want +got:\n%s", m.Needed, m.Freed, diff)
	}
}

// A GPU that a busy pod has too is not free when the others leave it.
func TestSharedWithBusyPods(t *testing.T) {
	f := newFleet()
	for i := range 3 {
		busy, idle := steady("x", fmt.Sprintf("train-%c", 'a'+i), 0.7, 20*gib), steady("x", fmt.Sprintf("nb-%c", 'a'+i), 0.01, 8*gib)
		busy.Sharing, idle.Sharing = "time-slicing", "time-slicing"
		f.gpu("n1", h100, memory, busy, idle)
	}
	m := judge(t, f, advise.Options{})
	if diff := cmp.Diff([]string{"none busy 3→3 false high", "none idle+no-gain 3→3 false high"}, shorts(m)); diff != "" || m.Needed != 3 || m.Used != 3 {
		t.Errorf("%d needed of %d, -want +got:\n%s", m.Needed, m.Used, diff)
	}
}
