package podmapper_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// A restart as it was recorded on a real node: refusals, an answer without pods, all pods. Nothing
// else is ever shown than what is so, and nothing is forgotten.
func TestRecordedRestart(t *testing.T) {
	moments := kubelet.Timeline(t, "nvidia.com/gpu")
	last := moments[len(moments)-1]
	w := newWorld(t, podmapper.Options{}, kubelet.Lists(last.Pods...))
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
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		o, err := w.mapper.Attribute(ctx, w.topology)
		cancel()
		if wrong := m.Refused || len(m.Pods) == 0; wrong != (err != nil) {
			t.Errorf("%v: the error is %v", m.At, err)
		}
		if err == nil {
			answers++
			want(t, fmt.Sprint("labels at ", m.At), pods(o), held)
		}
	}
	if answers == 0 {
		t.Error("no answer came")
	}
}

// A kubelet fills its list pod by pod: six that share a GPU stay six, the whole GPUs keep their
// labels, and what is kept is counted.
func TestListThatFillsPodByPod(t *testing.T) {
	var all []*v1.PodResources
	for i := range 6 {
		all = append(all, kubelet.Pod(fmt.Sprint("ml/share-", i), kubelet.Container("c", "nvidia.com/gpu", fmt.Sprintf("%s::%d", gpu4, i))))
	}
	all = append(all, kubelet.Pod("ml/whole", kubelet.Container("c", "nvidia.com/gpu", gpu0)))
	labels := map[int]string{0: "ml/whole/c"}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, podmapper.Options{}, kubelet.Lists(all...))
		before := w.attribute()
		w.Stop()
		w.fails(gpu.ErrUnavailable)
		fill := kubelet.Fills(random, 0, all...)
		w.Script(fill...)
		w.Start()
		for i := range fill {
			o := w.attribute()
			if o != before {
				t.Fatalf("seed %d, answer %d: other owners: %v, labels %v", seed, i, o.UseOf(4).Owners, pods(o))
			}
			if kept := w.metric("dcgm_exporter_attribution_holdings_kept")[""]; (kept == 0) != (i == len(fill)-1) {
				t.Errorf("seed %d, answer %d of %d: %v holdings are kept", seed, i, len(fill), kept)
			}
		}
		want(t, "labels", pods(w.attribute()), labels)

		// An exporter that starts meanwhile knows nothing of the shared GPU yet.
		w = newWorld(t, podmapper.Options{}, kubelet.Lists(all[0], all[6]))
		w.Born(time.Now())
		o := w.attribute()
		want(t, "labels for a new exporter", pods(o), labels)
		want(t, "owners of the shared GPU for a new exporter", len(o.UseOf(4).Owners), 0)
	}
}

// A sharer that ends leaves the list of a kubelet that runs on, and the other has the device alone.
func TestSharerThatEnds(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::1"))
	whole := kubelet.Pod("ml/whole", kubelet.Container("c", "nvidia.com/gpu", gpu0))
	w := newAged(t, podmapper.Options{}, a, b, whole)
	want(t, "labels", pods(w.attribute()), map[int]string{0: "ml/whole/c"})
	w.Script(kubelet.Lists(b))
	want(t, "labels after the end", pods(w.attribute()), map[int]string{4: "ml/b/c"})
}

// An answer that stops in its middle costs that answer, and the next one comes.
func TestAnswerThatStalls(t *testing.T) {
	pod := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu0))
	release := make(chan struct{})
	w := newWorld(t, podmapper.Options{}, kubelet.Lists(pod), kubelet.Stalls(release, pod), kubelet.Refuses(codes.ResourceExhausted), kubelet.Lists(pod))
	before := w.attribute()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := w.mapper.Attribute(ctx, w.topology); !errors.Is(err, gpu.ErrTimeout) {
		t.Errorf("Attribute: %v", err)
	}
	close(release)
	if _, err := w.mapper.Attribute(t.Context(), w.topology); err == nil {
		t.Error("no error above the rate limit")
	}
	if w.attribute() != before {
		t.Error("other owners after an answer that stalled")
	}
}

// What was known an hour ago says nothing of a shared device, though its holder of then is listed
// still.
func TestMemoryIsNoOlderThanItsLimit(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::1"))
	w := newWorld(t, podmapper.Options{}, kubelet.Lists(a))
	now := time.Now()
	podmapper.Clock(w.mapper, func() time.Time { return now })
	want(t, "labels", pods(w.attribute()), map[int]string{4: "ml/a/c"})
	w.Stop()
	now = now.Add(time.Hour) // in which b came
	w.fails(gpu.ErrUnavailable)
	w.Start()
	want(t, "labels by half a list", pods(w.attribute()), map[int]string{})
	now = now.Add(time.Minute)
	w.Script(kubelet.Lists(a, b))
	want(t, "owners by the list", len(w.attribute().UseOf(4).Owners), 2)
}

// A plugin that no longer divides devices, or begins to, has its word at once.
func TestDeviceThatIsDividedAnew(t *testing.T) {
	replica := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	whole := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4))
	for name, order := range map[string][2]*v1.PodResources{"whole again": {replica, whole}, "divided": {whole, replica}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, podmapper.Options{}, kubelet.Lists(order[0]))
			w.attribute()
			w.Stop()
			w.fails(gpu.ErrUnavailable)
			w.Script(kubelet.Lists(order[1]))
			w.Start()
			want(t, "labels", pods(w.attribute()), map[int]string{4: "ml/" + order[1].Name + "/c"})
		})
	}
}

// aged is a world whose clock the test turns, at the time of its kubelet's latest list.
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

// restarts replaces the kubelet by one that starts after a time and lists these pods.
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

// A pod that ended while the kubelet was away costs no other device its owners.
func TestEndWhileTheKubeletIsAway(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::1"))
	c := kubelet.Pod("ml/c", kubelet.Container("c", "nvidia.com/mig-1g.10gb.shared", migB+"::0"))
	d := kubelet.Pod("ml/d", kubelet.Container("c", "nvidia.com/mig-1g.10gb.shared", migB+"::1"))
	t.Run("without API server", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, a, b, c, d)
		o := w.restarts(25*time.Second, b, c, d)
		want(t, "sharers while the end is not known", named(o, 4), []string{"a", "b"})
		o = w.after(6 * time.Second)
		want(t, "sharers of the other device", named(o, 6), []string{"c", "d"})
		want(t, "sharers of a device whose holders are not known", named(o, 4), nil)
		o = w.after(5 * time.Second)
		want(t, "labels once the kubelet knows its pods", pods(o), map[int]string{4: "ml/b/c"})
	})
	t.Run("with API server", func(t *testing.T) {
		server := &api{}
		server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "1"}, "ml/b": {UID: "2"}, "ml/c": {UID: "3"}, "ml/d": {UID: "4"}})
		w := newAged(t, server.options(), a, b, c, d)
		want(t, "sharers while the end is not known", named(w.restarts(25*time.Second, b, c, d), 4), []string{"a", "b"})
		server.set(map[string]podmapper.PodInfo{"ml/b": {UID: "2"}, "ml/c": {UID: "3"}, "ml/d": {UID: "4"}})
		o := w.after(6 * time.Second)
		want(t, "labels once the end is known", pods(o), map[int]string{4: "ml/b/c"})
		want(t, "sharers of the other device", named(o, 6), []string{"c", "d"})
	})
}

// A sharer stays while its kubelet does not list it yet, also as the only one left.
func TestSharerThatIsLeftAlone(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::1"))
	other := kubelet.Pod("ml/other", kubelet.Container("c", "nvidia.com/gpu", gpu0))
	server := &api{}
	server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "1"}, "ml/b": {UID: "2"}})
	w := newAged(t, server.options(), a, b, other)
	server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "1"}})
	want(t, "labels", pods(w.restarts(time.Second, other)), map[int]string{0: "ml/other/c", 4: "ml/a/c"})
	server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "1", Finished: true}})
	want(t, "labels once it is over", pods(w.attribute()), map[int]string{0: "ml/other/c"})
}

// A pod that comes again under its name on another device does not hold the device of the earlier
// pod, whatever its kubelet has not listed yet.
func TestPodThatComesAgainElsewhere(t *testing.T) {
	before := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu0))
	again := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu1))
	other := kubelet.Pod("ml/other", kubelet.Container("c", "nvidia.com/gpu", gpu3))
	t.Run("listed", func(t *testing.T) {
		w := newAged(t, podmapper.Options{}, before)
		want(t, "labels", pods(w.restarts(5*time.Second, again)), map[int]string{1: "ml/a/c"})
	})
	t.Run("listed without the claim of the earlier pod, by the folder of its logs", func(t *testing.T) {
		n, server := newOnNode(t), &api{}
		n.log("ml_a_" + uidA)
		server.set(map[string]podmapper.PodInfo{"ml/a": {UID: uidA, Created: n.at}})
		opt := server.options()
		opt.LogFolder, opt.Device = n.logs, claimed
		w := newAged(t, opt, kubelet.Pod("ml/a", kubelet.Claiming("c", "ml", "mine", "gpu.nvidia.com", "e2e-node", "gpu-1", "")), other)
		n.log("ml_a_" + uidB)
		want(t, "labels", pods(w.restarts(5*time.Second, before, other)), map[int]string{0: "ml/a/c", 3: "ml/other/c"})
	})
	t.Run("not listed yet", func(t *testing.T) {
		server := &api{}
		w := newAged(t, server.options(), before, other) // the API server does not know it yet
		server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "2", Created: w.now.Add(time.Second)}})
		want(t, "labels", pods(w.restarts(5*time.Second, other)), map[int]string{3: "ml/other/c"})
	})
	t.Run("known late, and the same", func(t *testing.T) {
		server := &api{}
		w := newAged(t, server.options(), before, other)
		server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "1", Created: w.now.Add(-time.Second)}})
		want(t, "labels", pods(w.restarts(5*time.Second, other)), map[int]string{0: "ml/a/c", 3: "ml/other/c"})
	})
}

// What is remembered is remembered for two intervals where that is more than 30 s.
func TestMemoryGoesWithTheInterval(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu0))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu1))
	w := newAged(t, podmapper.Options{}, a, b)
	w.mapper.Every(time.Minute)
	want(t, "labels after 90 s", pods(w.restarts(90*time.Second, b)), map[int]string{0: "ml/a/c", 1: "ml/b/c"})
	w = newAged(t, podmapper.Options{}, a, b)
	want(t, "labels after 31 s, at a short interval", pods(w.restarts(31*time.Second, b)), map[int]string{1: "ml/b/c"})
}

// A holding that was remembered and is listed again is one holding.
func TestClaimThatComesBack(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Claiming("c", "ml", "ours", "gpu.nvidia.com", "e2e-node", "gpu-1", ""))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu0))
	w := newAged(t, podmapper.Options{Device: claimed}, a, b)
	want(t, "owners while it is not listed", named(w.restarts(time.Second, b), 1), []string{"a"})
	w.Script(kubelet.Lists(a, b))
	want(t, "owners once it is", named(w.after(time.Second), 1), []string{"a"})
}

// A kubelet whose connection breaks again and again is believed all the same after a while.
func TestKubeletIsNotYoungForEver(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::1"))
	w := newAged(t, podmapper.Options{}, a, b)
	w.mapper.Every(time.Hour) // so that nothing is forgotten for its age
	o := w.restarts(time.Second, a)
	for age := time.Duration(0); age < podmapper.Settled; age += 5 * time.Second {
		want(t, fmt.Sprint("owners ", age, " after the first sign"), named(o, 4), []string{"a", "b"})
		w.Born(w.now.Add(5 * time.Second)) // another sign of a start
		o = w.after(5 * time.Second)
	}
	want(t, "owners after all", named(o, 4), []string{"a"})
}

// A new connection is another kubelet's, perhaps, also where no answer failed between them.
func TestConnectionThatIsNew(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::1"))
	for range 200 {
		w := newAged(t, podmapper.Options{}, a, b)
		w.Stop()
		w.Script(kubelet.Lists(a))
		w.Start()
		w.Born(w.now.Add(-time.Hour)) // the socket says nothing
		o, err := w.mapper.Attribute(t.Context(), w.topology)
		if err != nil {
			continue // gRPC had not seen yet that the connection is gone
		}
		want(t, "owners", named(o, 4), []string{"a", "b"})
		return
	}
	t.Error("each answer failed")
}

// A kubelet that lists no pods for long after its start has just begun to know them.
func TestKubeletThatListsNoneForLong(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::1"))
	w := newAged(t, podmapper.Options{}, a, b)
	w.restarts(time.Second, a)
	w.Script(kubelet.Lists())
	w.now = w.now.Add(9 * time.Second)
	w.fails(podmapper.ErrEmpty)
	w.Script(kubelet.Lists(a))
	want(t, "owners", named(w.after(9*time.Second), 4), []string{"a", "b"})
}

// The API server says that a pod is another by its UID: what its kubelet does not list is no longer
// held.
func TestHolderWithAnotherUID(t *testing.T) {
	a := kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu0))
	b := kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", gpu1))
	server := &api{}
	server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "1"}})
	w := newAged(t, server.options(), a, b)
	server.set(map[string]podmapper.PodInfo{"ml/a": {UID: "2"}})
	want(t, "labels", pods(w.restarts(time.Second, b)), map[int]string{1: "ml/b/c"})
}

// A node without pods says so from its first list on, though its kubelet has just started.
func TestNodeWithoutPods(t *testing.T) {
	w := newWorld(t, podmapper.Options{}, kubelet.Lists())
	w.Born(time.Now())
	if o := w.attribute(); len(o.Uses) != len(w.topology.Devices) {
		t.Errorf("%d rows", len(o.Uses))
	}
}
