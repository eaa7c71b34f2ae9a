package podmapper_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// The restart was recorded on a real node: refused connections, a list without pods, then a list of all pods. No
// wrong owner is ever reported, and no owner is lost.
func TestRecordedRestart(t *testing.T) {
	moments := kubelet.Timeline(t, "nvidia.com/gpu")
	last := moments[len(moments)-1]
	w := worldWith(t, podmapper.Options{}, last.Pods...)
	begin := time.Now()
	now := begin
	podmapper.Clock(w.mapper, func() time.Time { return now })
	held := map[int]string{0: "default/gpu-whole/main", 1: "default/gpu-whole/main"}
	want(t, "labels before", pods(w.attribute()), held)
	answers := 0
	for _, m := range moments {
		now = begin.Add(m.At)
		switch {
		case m.Event == "kubelet ended":
			w.Stop()
			continue
		case m.Event == "kubelet started":
			w.Start()
			w.Born(now)
			continue
		}
		w.Script(kubelet.Lists(m.Pods...))
		o, err := w.try()
		if wrong := m.Refused || len(m.Pods) == 0; wrong != (err != nil) {
			t.Errorf("list at %v: error %v, want an error: %t", m.At, err, wrong)
		}
		if err == nil {
			answers++
			want(t, fmt.Sprint("labels at ", m.At), pods(o), held)
		}
	}
	if answers == 0 {
		t.Error("recording has no successful list")
	}
}

// A restarted kubelet lists its pods one by one. Six pods that share a GPU stay six, exclusive GPUs keep their labels,
// and kept allocations are counted.
func TestPodsAreListedOneByOne(t *testing.T) {
	var all []*v1.PodResources
	for i := range 6 {
		all = append(all, holds(fmt.Sprint("ml/share-", i), fmt.Sprintf("%s::%d", gpu4, i)))
	}
	all = append(all, holds("ml/whole", gpu0))
	labels := map[int]string{0: "ml/whole/c"}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := worldWith(t, podmapper.Options{}, all...)
		before := w.attribute()
		w.Stop()
		w.fails(gpu.ErrUnavailable)
		fill := kubelet.Fills(random, 0, all...)
		w.Script(fill...)
		w.Start()
		for i := range fill {
			o := w.attribute()
			if o != before {
				t.Fatalf("seed %d, list %d: owners changed to %v, labels to %v; want no change",
					seed, i, o.UseOf(4).Owners, pods(o))
			}
			if kept := w.metric("dcgm_exporter_attribution_holdings_kept")[""]; (kept == 0) != (i == len(fill)-1) {
				t.Errorf("seed %d, list %d of %d: allocations kept = %v, want 0 only after the last list",
					seed, i, len(fill), kept)
			}
		}
		want(t, "labels", pods(w.attribute()), labels)

		// An exporter that starts meanwhile reports the owners of the shared GPU as unknown.
		w = worldWith(t, podmapper.Options{}, all[0], all[6])
		w.Born(time.Now())
		o := w.attribute()
		want(t, "labels for a new exporter", pods(o), labels)
		want(t, "owners of the shared GPU for a new exporter", len(o.UseOf(4).Owners), 0)
	}
}

// When a pod on a shared device ends, the other pod is the only owner.
func TestPodOnSharedDeviceEnds(t *testing.T) {
	whole := holds("ml/whole", gpu0)
	w := newAged(t, podmapper.Options{}, podA, podB, whole)
	want(t, "labels", pods(w.attribute()), map[int]string{0: "ml/whole/c"})
	w.Script(kubelet.Lists(podB))
	want(t, "labels after the end", pods(w.attribute()), map[int]string{4: "ml/b/c"})
}

// Remembered owners expire. After an hour, the owners of a shared device are unknown, even if one of them is still
// listed.
func TestMemoryExpires(t *testing.T) {
	w := newAged(t, podmapper.Options{}, podA)
	want(t, "labels", pods(w.attribute()), map[int]string{4: "ml/a/c"})
	want(t, "labels from an incomplete list", pods(w.restarts(time.Hour, podA)), map[int]string{}) // b arrived
	w.Script(kubelet.Lists(podA, podB))
	want(t, "owners by the list", len(w.after(time.Minute).UseOf(4).Owners), 2)
}

// aged is a world with a fake clock, set to the time of the kubelet's latest list.
type aged struct {
	*world
	now time.Time
}

func newAged(t *testing.T, opt podmapper.Options, listed ...*v1.PodResources) *aged {
	a := &aged{world: newWorld(t, opt, kubelet.Lists(listed...)), now: time.Now()}
	a.Born(a.now.Add(-time.Hour))
	podmapper.Clock(a.mapper, func() time.Time { return a.now })
	a.attribute()
	return a
}

// restarts replaces the kubelet with one that starts after the given time and lists these pods.
func (a *aged) restarts(after time.Duration, listed ...*v1.PodResources) *gpu.Owners {
	a.Stop()
	a.fails(gpu.ErrUnavailable)
	a.now = a.now.Add(after)
	a.Script(kubelet.Lists(listed...))
	a.Start()
	a.Born(a.now)
	return a.attribute()
}

func (a *aged) after(d time.Duration) *gpu.Owners {
	a.now = a.now.Add(d)
	return a.attribute()
}

func named(o *gpu.Owners, row int) []string {
	var names []string
	for _, owner := range o.UseOf(row).Owners {
		names = append(names, owner.Pod)
	}
	return names
}

// What a list of a restarted kubelet leaves out is remembered, unless the list excludes it.
func TestUnlistedPods(t *testing.T) {
	type list []*v1.PodResources
	a, b := holds("ml/a", gpu0), holds("ml/b", gpu1)
	replica, whole := holds("ml/a", gpu4+"::0"), holds("ml/b", gpu4)
	for name, tt := range map[string]struct {
		interval       time.Duration
		before, listed list
		after          time.Duration
		labels         map[int]string
	}{
		"for 30 s":   {0, list{a, b}, list{b}, 29 * time.Second, map[int]string{0: "ml/a/c", 1: "ml/b/c"}},
		"not longer": {0, list{a, b}, list{b}, 31 * time.Second, map[int]string{1: "ml/b/c"}},
		"for two intervals": {
			time.Minute, list{a, b}, list{b}, 90 * time.Second, map[int]string{0: "ml/a/c", 1: "ml/b/c"},
		},
		"not if listed whole":  {0, list{replica}, list{whole}, time.Second, map[int]string{4: "ml/b/c"}},
		"not if listed shared": {0, list{whole}, list{replica}, time.Second, map[int]string{4: "ml/a/c"}},
		"not if recreated":     {0, list{a}, list{holds("ml/a", gpu1)}, 5 * time.Second, map[int]string{1: "ml/a/c"}},
		"not if recreated with a claim": {
			0, list{claims("ml/a", "a-x7k", "gpu-0")}, list{claims("ml/a", "a-p2q", "gpu-1")}, 5 * time.Second,
			map[int]string{1: "ml/a/c"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newAged(t, podmapper.Options{Device: claimed}, tt.before...)
			w.mapper.Every(tt.interval)
			o := w.restarts(tt.after, tt.listed...)
			want(t, "labels", pods(o), tt.labels)
			owned := 0
			for row := range o.Uses {
				owned += len(o.UseOf(row).Owners)
			}
			want(t, "owners", owned, len(tt.labels))
		})
	}
}

// A pod ends while the kubelet is down. Devices of other pods keep their owners.
func TestPodEndsWhileKubeletIsDown(t *testing.T) {
	c := kubelet.Pod("ml/c", kubelet.Container("c", "nvidia.com/mig-1g.10gb.shared", migB+"::0"))
	d := kubelet.Pod("ml/d", kubelet.Container("c", "nvidia.com/mig-1g.10gb.shared", migB+"::1"))
	t.Run("without API server", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, podA, podB, c, d)
		o := w.restarts(25*time.Second, podB, c, d)
		want(t, "owners while the end is unknown", named(o, 4), []string{"a", "b"})
		o = w.after(6 * time.Second)
		want(t, "owners of the other device", named(o, 6), []string{"c", "d"})
		want(t, "owners of a device whose owners are unknown", named(o, 4), nil)
		o = w.after(5 * time.Second)
		want(t, "labels once the kubelet knows its pods", pods(o), map[int]string{4: "ml/b/c"})
	})
	t.Run("with API server", func(t *testing.T) {
		server := newAPI(infos{"ml/a": {UID: "1"}, "ml/b": {UID: "2"}, "ml/c": {UID: "3"}, "ml/d": {UID: "4"}})
		w := newAged(t, server.options(), podA, podB, c, d)
		want(t, "owners while the end is unknown", named(w.restarts(25*time.Second, podB, c, d), 4), []string{"a", "b"})
		server.set(infos{"ml/b": {UID: "2"}, "ml/c": {UID: "3"}, "ml/d": {UID: "4"}})
		o := w.after(6 * time.Second)
		want(t, "labels once the end is known", pods(o), map[int]string{4: "ml/b/c"})
		want(t, "owners of the other device", named(o, 6), []string{"c", "d"})
	})
}

// A pod on a shared device stays an owner while the kubelet does not list it yet, even if it is the only pod left.
func TestLastPodOnSharedDevice(t *testing.T) {
	other := holds("ml/other", gpu0)
	server := newAPI(infos{"ml/a": {UID: "1"}, "ml/b": {UID: "2"}})
	w := newAged(t, server.options(), podA, podB, other)
	server.set(infos{"ml/a": {UID: "1"}})
	want(t, "labels", pods(w.restarts(time.Second, other)), map[int]string{0: "ml/other/c", 4: "ml/a/c"})
	server.set(infos{"ml/a": {UID: "1", Finished: true}})
	want(t, "labels once the memory expired", pods(w.attribute()), map[int]string{0: "ml/other/c"})
}

// A pod that is recreated on another device does not keep the earlier pod's device, even if the kubelet has not
// listed all pods yet.
func TestPodIsRecreatedOnOtherDevice(t *testing.T) {
	before := holds("ml/a", gpu0)
	other := holds("ml/other", gpu3)
	t.Run("listed without the earlier pod's claim, known by its log folder", func(t *testing.T) {
		n, server := newOnNode(t), &api{}
		n.log("ml_a_" + uidA)
		server.set(infos{"ml/a": {UID: uidA, Created: n.at}})
		opt := server.options()
		opt.LogFolder, opt.Device = n.logs, claimed
		w := newAged(t, opt, claims("ml/a", "mine", "gpu-1"), other)
		n.log("ml_a_" + uidB)
		want(t, "labels", pods(w.restarts(5*time.Second, before, other)), map[int]string{0: "ml/a/c", 3: "ml/other/c"})
	})
	t.Run("not listed yet", func(t *testing.T) {
		server := &api{}
		w := newAged(t, server.options(), before, other) // the API server does not know the new pod yet
		server.set(infos{"ml/a": {UID: "2", Created: w.now.Add(time.Second)}})
		want(t, "labels", pods(w.restarts(5*time.Second, other)), map[int]string{3: "ml/other/c"})
	})
	t.Run("not listed yet, and known by its UID", func(t *testing.T) {
		server := newAPI(infos{"ml/a": {UID: "1"}})
		w := newAged(t, server.options(), before, other)
		server.set(infos{"ml/a": {UID: "2"}})
		want(t, "labels", pods(w.restarts(time.Second, other)), map[int]string{3: "ml/other/c"})
	})
	t.Run("known late, and unchanged", func(t *testing.T) {
		server := &api{}
		w := newAged(t, server.options(), before, other)
		server.set(infos{"ml/a": {UID: "1", Created: w.now.Add(-time.Second)}})
		want(t, "labels", pods(w.restarts(5*time.Second, other)), map[int]string{0: "ml/a/c", 3: "ml/other/c"})
	})
}

// A remembered allocation that is listed again counts once.
func TestUnlistedClaimReturns(t *testing.T) {
	a := claims("ml/a", "ours", "gpu-1")
	b := holds("ml/b", gpu0)
	w := newAged(t, podmapper.Options{Device: claimed}, a, b)
	want(t, "owners while it is not listed", named(w.restarts(time.Second, b), 1), []string{"a"})
	w.Script(kubelet.Lists(a, b))
	want(t, "owners once it is", named(w.after(time.Second), 1), []string{"a"})
}

// If a kubelet's connection keeps breaking, its lists are accepted after a while.
func TestKubeletStartIsBounded(t *testing.T) {
	w := newAged(t, podmapper.Options{}, podA, podB)
	w.mapper.Every(time.Hour) // nothing expires in this test
	o := w.restarts(time.Second, podA)
	for age := time.Duration(0); age < podmapper.Settled; age += 5 * time.Second {
		want(t, fmt.Sprint("owners ", age, " after the first sign"), named(o, 4), []string{"a", "b"})
		w.Born(w.now.Add(5 * time.Second)) // the socket suggests another start
		o = w.after(5 * time.Second)
	}
	want(t, "owners after all", named(o, 4), []string{"a"})
}

// A kubelet that refused a connection gets the full time to load its pods, however often it has failed before.
func TestKubeletFailsAgainAndAgain(t *testing.T) {
	w := newAged(t, podmapper.Options{}, podA, podB)
	w.mapper.Every(time.Hour) // nothing expires in this test
	const pause = 9 * time.Second
	for down := pause; down < 2*podmapper.Settled; down += pause {
		o := w.restarts(pause, podA)
		want(t, fmt.Sprint("owners ", down, " after the first failure"), named(o, 4), []string{"a", "b"})
	}
}

// A new connection may reach a new kubelet, even if no call failed in between.
func TestNewConnection(t *testing.T) {
	for range 200 {
		w := newAged(t, podmapper.Options{}, podA, podB)
		w.Stop()
		w.Script(kubelet.Lists(podA))
		w.Start()
		w.Born(w.now.Add(-time.Hour)) // a kubelet that has just started would have a newer socket
		o, err := w.try()
		if err != nil {
			continue // gRPC has not noticed yet that the connection is closed
		}
		want(t, "owners", named(o, 4), []string{"a", "b"})
		return
	}
	t.Error("all 200 calls of Attribute failed, want one to succeed")
}

// A kubelet that listed no pods for a long time has only just begun to load them.
func TestKubeletListsNoPodsForLong(t *testing.T) {
	w := newAged(t, podmapper.Options{}, podA, podB)
	w.restarts(time.Second, podA)
	w.Script(kubelet.Lists())
	w.now = w.now.Add(9 * time.Second)
	w.fails(podmapper.ErrEmpty)
	w.Script(kubelet.Lists(podA))
	want(t, "owners", named(w.after(9*time.Second), 4), []string{"a", "b"})
}

// A node without pods is known to be free from the first list, even if its kubelet has just started.
func TestNodeWithoutPods(t *testing.T) {
	w := worldWith(t, podmapper.Options{})
	w.Born(time.Now())
	if o := w.attribute(); len(o.Uses) != len(w.topology.Devices) {
		t.Errorf("rows known to be free = %d, want all %d", len(o.Uses), len(w.topology.Devices))
	}
}

// incomplete returns the rows that may have unknown owners.
func incomplete(o *gpu.Owners) []int {
	var rows []int
	for row := range o.Uses {
		if o.UseOf(row).Incomplete {
			rows = append(rows, row)
		}
	}
	return rows
}

// An entity that may have unknown owners is marked, so that its use is not reported as unattributed.
func TestUnknownOwners(t *testing.T) {
	shared := holds("ml/a", gpu4+"::0")
	whole := holds("ml/w", gpu0)
	t.Run("an exporter and a kubelet that have just started", func(t *testing.T) {
		w := worldWith(t, podmapper.Options{}, shared, whole)
		now := time.Now()
		podmapper.Clock(w.mapper, func() time.Time { return now })
		w.Born(now)
		want(t, "rows", incomplete(w.attribute()), []int{1, 2, 3, 4, 5, 6})
		now = now.Add(11 * time.Second)
		for range 2 { // even if nothing else changes
			want(t, "rows once the kubelet knows its pods", incomplete(w.attribute()), nil)
		}
	})
	t.Run("an owner that may have ended", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, whole, shared)
		want(t, "rows", incomplete(w.restarts(25*time.Second, shared)), nil)
		want(t, "rows after 30 s", incomplete(w.after(6*time.Second)), []int{0})
		want(t, "rows once the kubelet knows its pods", incomplete(w.after(5*time.Second)), nil)
	})
	t.Run("a claim without a slice", func(t *testing.T) {
		known, revision := false, uint64(1)
		device := func(driver, pool, name string) (podmapper.ClaimDevice, bool) {
			d, ok := claimed(driver, pool, name)
			return d, ok && known
		}
		w := newAged(t, podmapper.Options{Device: device, Revision: func() uint64 { return revision }},
			holds("ml/s", gpu4+"::0"), claims("ml/a", "mine", "gpu-3-mig-1g10gb-19-0"))
		o := w.attribute()
		want(t, "rows", incomplete(o), []int{0, 1, 2, 3, 5, 6})
		want(t, "labels", pods(o), map[int]string{4: "ml/s/c"})
		want(t, "unmatched", w.unmatched(), map[string]float64{"claim_device gpu.nvidia.com ": 1})
		known, revision = true, 2
		o = w.attribute()
		want(t, "rows once the slice exists", incomplete(o), nil)
		want(t, "labels once the slice exists", o.Of(5), ofMIG(migA))
		want(t, "unmatched once the slice exists", w.unmatched(), map[string]float64{})
	})
	t.Run("claims that are not followed", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, kubelet.Pod("ml/b",
			kubelet.Claiming("c", "ml", "mine", "gpu.nvidia.com", "e2e-node", "gpu-0", ""),
			kubelet.Container("d", "nvidia.com/gpu", gpu1)))
		want(t, "rows", incomplete(w.attribute()), []int{0, 2, 3, 4, 5, 6})
	})
	t.Run("instances of a GPU that has an owner itself", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, kubelet.Pod("ml/b",
			kubelet.Claiming("c", "ml", "mine", "gpu.nvidia.com", "e2e-node", "gpu-0", ""),
			kubelet.Container("d", "nvidia.com/gpu", gpu3)))
		want(t, "rows", incomplete(w.attribute()), []int{0, 1, 2, 4})
	})
	t.Run("a claim of another driver", func(t *testing.T) {
		w := newAged(t, podmapper.Options{Device: claimed}, kubelet.Pod("ml/b",
			kubelet.Claiming("c", "ml", "channel", "compute-domain.nvidia.com", "e2e-node", "channel-0", "")))
		want(t, "rows", incomplete(w.attribute()), nil)
	})
	t.Run("a pod of HAMi without its annotation", func(t *testing.T) {
		server := &api{}
		w := newAged(t, server.options(), shared, whole, holds("ml/h", gpu1+"-3"))
		o := w.attribute()
		want(t, "rows", incomplete(o), []int{1, 2, 3, 4, 5, 6})
		want(t, "labels", pods(o), map[int]string{0: "ml/w/c"})
		server.set(infos{"ml/h": {Containers: []string{"c"}, Allocated: gpu3 + ",NVIDIA,3000,30:;"}})
		want(t, "rows once the annotation exists", incomplete(w.attribute()), nil)
	})
}
