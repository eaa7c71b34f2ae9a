package podmapper_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// A resident is a pod of a drama: the device that it has, and its times, which are zero before they
// come.
type resident struct {
	id       podID
	row      int
	pod      *v1.PodResources
	since    time.Time
	ended    time.Time
	listedAt time.Time // by the kubelet that runs now
}

type podID = string

// A drama is a node on which pods come and go while its kubelet restarts, by a seed: what is so,
// beside what the kubelet lists of it.
type drama struct {
	*testing.T
	random   *rand.Rand
	now      time.Time
	interval time.Duration
	server   *kubelet.Server
	topology *gpu.Topology
	withAPI  bool
	revision uint64

	mapper *podmapper.Mapper
	last   *gpu.Owners

	free    []func(name string) (row int, pod *v1.PodResources)
	freed   map[podID]func(string) (int, *v1.PodResources)
	pods    []*resident
	down    time.Time // until when there is no kubelet; zero while there is one
	stirred time.Time // the latest time that anything happened
	count   int
}

// stage returns a drama. Devices are whole GPUs and instances, replicas, and claims of which
// several pods can hold one.
func stage(t *testing.T, s *kubelet.Server, seed uint64) *drama {
	d := &drama{
		T: t, random: rand.New(rand.NewPCG(seed, 0)), now: time.Now(), server: s, topology: node(),
		freed: map[podID]func(string) (int, *v1.PodResources){},
	}
	d.interval = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute}[seed%4]
	d.withAPI = seed%3 == 0
	device := func(row int, resource, id string) {
		d.free = append(d.free, func(name string) (int, *v1.PodResources) {
			return row, kubelet.Pod(name, kubelet.Container("c", resource, id))
		})
	}
	device(0, "nvidia.com/gpu", gpu0)
	device(5, "nvidia.com/mig-1g.10gb", migA)
	for i := range 6 {
		device(4, "nvidia.com/gpu", fmt.Sprintf("%s::%d", gpu4, i))
	}
	for i := range 2 {
		device(6, "nvidia.com/mig-1g.10gb.shared", fmt.Sprintf("%s::%d", migB, i))
	}
	for range 3 {
		d.free = append(d.free, func(name string) (int, *v1.PodResources) {
			return 1, kubelet.Pod(name, kubelet.Claiming("c", "ml", "ours", "gpu.nvidia.com", "e2e-node", "gpu-1", ""))
		})
	}
	s.Born(d.now.Add(-time.Hour))
	d.restartExporter()
	for range 8 {
		d.begin()
	}
	return d
}

func (d *drama) restartExporter() {
	if d.mapper != nil {
		d.mapper.Close()
	}
	opt := podmapper.Options{Socket: d.server.Socket(), Metrics: podmapper.NewMetrics(prometheus.NewRegistry()), Device: claimed}
	if d.withAPI {
		opt.Revision = func() uint64 { return d.revision }
		opt.Pod = func(_, name string) (podmapper.PodInfo, bool) {
			at := slices.IndexFunc(d.pods, func(r *resident) bool { return r.id == "ml/"+name && r.ended.IsZero() })
			if at < 0 {
				return podmapper.PodInfo{}, false
			}
			return podmapper.PodInfo{UID: "uid of " + name, Created: d.pods[at].since}, true
		}
	}
	d.mapper, d.last = podmapper.New(opt), nil
	d.mapper.Every(d.interval)
	podmapper.Clock(d.mapper, func() time.Time { return d.now })
}

func (d *drama) stir() { d.stirred, d.revision = d.now, d.revision+1 }

// begin lets a pod begin, if a device is free.
func (d *drama) begin() {
	if len(d.free) == 0 {
		return
	}
	at := d.random.IntN(len(d.free))
	d.count++
	r := &resident{id: fmt.Sprint("ml/pod-", d.count), since: d.now, listedAt: d.now}
	d.freed[r.id] = d.free[at]
	r.row, r.pod = d.free[at](r.id)
	d.free = slices.Delete(d.free, at, at+1)
	d.pods = append(d.pods, r)
	d.stir()
}

// end lets a pod end.
func (d *drama) end() {
	alive := d.alive()
	if len(alive) == 0 {
		return
	}
	r := alive[d.random.IntN(len(alive))]
	r.ended = d.now
	d.free = append(d.free, d.freed[r.id])
	d.stir()
}

func (d *drama) alive() []*resident {
	return slices.DeleteFunc(slices.Clone(d.pods), func(r *resident) bool { return !r.ended.IsZero() })
}

// turn lets an interval pass, and something happen.
func (d *drama) turn() {
	d.now = d.now.Add(d.interval)
	if !d.down.IsZero() {
		if d.now.Before(d.down) {
			if d.random.IntN(4) == 0 {
				d.end()
			}
			return
		}
		// The new kubelet knows its pods one by one, after a while of none.
		d.down = time.Time{}
		d.server.Start()
		d.server.Born(d.now)
		empty := time.Duration(d.random.IntN(3000)) * time.Millisecond
		for _, r := range d.pods {
			r.listedAt = d.now.Add(empty + time.Duration(d.random.IntN(6000))*time.Millisecond)
		}
		d.stir()
		return
	}
	filled := !slices.ContainsFunc(d.pods, func(r *resident) bool { return r.listedAt.After(d.now) })
	switch d.random.IntN(12) {
	case 0, 1:
		if filled {
			d.begin()
		}
	case 2, 3:
		d.end()
	case 4:
		d.server.Stop()
		d.down = d.now.Add(time.Duration(d.random.IntN(20_000)) * time.Millisecond)
		d.stir()
	case 5:
		if d.random.IntN(3) == 0 {
			d.restartExporter()
			d.stir()
		}
	}
}

// answer is what the kubelet lists.
func (d *drama) answer() []*v1.PodResources {
	var listed []*v1.PodResources
	for _, r := range d.alive() {
		if !r.listedAt.After(d.now) {
			listed = append(listed, r.pod)
		}
	}
	d.random.Shuffle(len(listed), func(i, k int) { listed[i], listed[k] = listed[k], listed[i] })
	return listed
}

// look queries the mapper, as a loop does, and holds its answer against what is so.
func (d *drama) look() {
	d.server.Script(kubelet.Lists(d.answer()...))
	ctx, cancel := context.WithTimeout(d.Context(), patience)
	defer cancel()
	o, err := d.mapper.Attribute(ctx, d.topology)
	if err != nil {
		return // the caller keeps the last answer for a bounded time
	}
	holders := map[int][]podID{}
	for _, r := range d.alive() {
		holders[r.row] = append(holders[r.row], r.id)
	}
	// A pod is shown for no longer than this after its end.
	bound := max(2*d.interval, 30*time.Second)
	for row := range o.Uses {
		shown := map[podID]bool{}
		for _, owner := range o.UseOf(row).Owners {
			shown[owner.Namespace+"/"+owner.Pod] = true
		}
		if len(holders[row]) > 1 && len(shown) == 1 {
			d.Errorf("%v: row %d is shown as %v's alone; %v share it", d.now, row, slices.Collect(maps.Keys(shown)), holders[row])
		}
		for name := range shown {
			d.mayBeShown(row, name, bound)
		}
		if labeled := pods(o)[row]; labeled != "" && len(shown) != 1 {
			d.Errorf("row %d carries the labels of %s, and has the owners %v", row, labeled, shown)
		}
	}
	if d.now.Sub(d.stirred) > podmapper.Settled+d.interval {
		d.same(o, holders)
	}
}

// mayBeShown holds that a pod of an answer has the device, or had it just now.
func (d *drama) mayBeShown(row int, name podID, bound time.Duration) {
	at := slices.IndexFunc(d.pods, func(r *resident) bool { return r.id == name })
	switch r := d.pods[at]; {
	case r.row != row:
		d.Errorf("row %d is shown as %s's, which has row %d", row, name, r.row)
	case r.ended.IsZero():
	case d.withAPI:
		d.Errorf("%s is shown %v after its end, of which the API server knows", name, d.now.Sub(r.ended))
	case d.now.Sub(r.ended) > bound:
		d.Errorf("%s is shown %v after its end", name, d.now.Sub(r.ended))
	}
}

// same holds that nothing is missing once all is quiet.
func (d *drama) same(o *gpu.Owners, holders map[int][]podID) {
	for row := range o.Uses {
		var shown []podID
		for _, owner := range o.UseOf(row).Owners {
			shown = append(shown, owner.Namespace+"/"+owner.Pod)
		}
		slices.Sort(shown)
		slices.Sort(holders[row])
		if !slices.Equal(shown, holders[row]) {
			d.Errorf("%v: row %d is shown as %v's, and %v have it; nothing has happened since %v", d.now, row, shown, holders[row], d.stirred)
		}
		labeled, is := pods(o)[row], len(holders[row]) == 1
		if is != (labeled != "") || is && !strings.HasPrefix(labeled, holders[row][0]+"/") {
			d.Errorf("row %d carries the labels of %q, and %v have it", row, labeled, holders[row])
		}
	}
}

// Whatever a kubelet that restarts leaves out, and whenever: every answer is right or says nothing,
// a device that several share is never shown as one's alone, who has ended goes within a bounded
// time, and once the kubelet knows its pods all of them are shown.
func TestOwnersWhileAKubeletRestarts(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 100
	}
	s := kubelet.Start(t)
	for seed := range seeds {
		play(t, s, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The same for seeds of any size.
func FuzzOwnersWhileAKubeletRestarts(f *testing.F) {
	f.Add(uint64(1 << 40))
	f.Fuzz(func(t *testing.T, seed uint64) { play(t, kubelet.Start(t), seed) })
}

func play(t *testing.T, s *kubelet.Server, seed uint64) {
	d := stage(t, s, seed)
	defer func() { d.mapper.Close() }()
	for range 25 {
		d.look()
		d.turn()
		if !d.down.IsZero() {
			d.look()
		}
	}
	if !d.down.IsZero() {
		d.down = time.Time{}
		s.Start()
		s.Born(d.now)
	}
	for _, r := range d.pods {
		r.listedAt = d.now
	}
	d.stir()
	for range 3 + int(2*podmapper.Settled/d.interval) { // and then it is quiet
		d.look()
		d.now = d.now.Add(d.interval)
	}
}

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
