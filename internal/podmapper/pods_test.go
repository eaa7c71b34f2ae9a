package podmapper_test

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/attribution"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

func TestRecordingsOfRealKubelet(t *testing.T) {
	wants := map[string]map[int]string{
		"empty":                          {},
		"list-whole-gpu":                 {0: "default/gpu-whole/train", 1: "default/gpu-whole/train"},
		"list-whole-gpu-one-unhealthy":   {1: "default/gpu-whole/train", 2: "default/gpu-whole/train"},
		"list-mig":                       {5: "default/mig/infer"},
		"list-time-sliced-two-pods":      {},
		"list-time-sliced-default-name":  {},
		"list-completed-1-while-running": {0: "default/completed/job"},
		"list-completed-2-after":         {},
		"list-terminating":               {0: "default/terminating/stubborn"},
		"list-terminating-forced":        {},
		"list-init-while-init-runs":      {0: "default/with-init/main", 5: "default/with-init/native-sidecar"},
		"list-init-after":                {0: "default/with-init/main", 5: "default/with-init/native-sidecar"},
		"list-init-only-while-init-runs": {},
		"list-init-only-after":           {},
		"list-dra":                       {1: "default/dra-own/train", 5: "default/dra-own/infer"},
		"list-dra-extended-resource":     {0: "default/dra-extended/train"},
		"list-dra-consumable-share-id":   {},
	}
	shared := map[string]map[int]gpu.Sharing{
		"list-time-sliced-two-pods":     {4: gpu.SharingTimeSlicing},
		"list-time-sliced-default-name": {4: gpu.SharingTimeSlicing},
		"list-dra":                      {0: gpu.SharingDRA},
		"list-dra-consumable-share-id":  {4: gpu.SharingDRA},
	}
	captures := kubelet.Captures(t)
	for name := range wants {
		if captures[name] == nil {
			t.Errorf("recording %s is missing", name)
		}
	}
	for name, capture := range captures {
		t.Run(name, func(t *testing.T) {
			expected, ok := wants[name]
			if !ok {
				t.Fatal("no expected result for this recording")
			}
			w := worldWith(t, podmapper.Options{Device: claimed}, capture.PodResources...)
			o := w.attribute()
			want(t, "labels", pods(o), expected)
			sharing := map[int]gpu.Sharing{}
			for row := range o.Uses {
				if o.Uses[row].Sharing != gpu.SharingNone {
					sharing[row] = o.Uses[row].Sharing
					if len(o.Uses[row].Owners) != 2 {
						t.Errorf("row %d has %d owners, want 2", row, len(o.Uses[row].Owners))
					}
				}
			}
			wantSharing := shared[name]
			if wantSharing == nil {
				wantSharing = map[int]gpu.Sharing{}
			}
			want(t, "sharing", sharing, wantSharing)
			want(t, "unmatched", w.unmatched(), map[string]float64{})
		})
	}
}

// ofMIG returns the labels of a claimed MIG device.
func ofMIG(uuid string) []gpu.Label {
	return []gpu.Label{
		{Name: "container", Value: "c"},
		{Name: "dra_claim_name", Value: "mine"},
		{Name: "dra_claim_namespace", Value: "ml"},
		{Name: "dra_device_name", Value: "gpu-3-mig-1g10gb-19-0"},
		{Name: "dra_driver_name", Value: "gpu.nvidia.com"},
		{Name: "dra_mig_device_uuid", Value: uuid},
		{Name: "dra_mig_profile", Value: "1g.10gb"},
		{Name: "dra_pool_name", Value: "e2e-node"},
		{Name: "namespace", Value: "ml"},
		{Name: "pod", Value: "a"},
	}
}

// dynamic describes a MIG device that the driver creates when a pod claims it.
func dynamic(_, _, name string) (podmapper.ClaimDevice, bool) {
	d := podmapper.ClaimDevice{MIG: true, Profile: "1g.10gb", Parent: gpu3, Start: 4}
	return d, name == "gpu-3-mig-1g10gb-19-0"
}

// remake changes the MIG device of a row.
func (w *world) remake(row int, id, start uint32, uuid string) {
	devices := slices.Clone(node().Devices)
	devices[row].InstanceID, devices[row].Start, devices[row].MIGUUID = id, &start, uuid
	w.topology = gpu.NewTopology(devices)
}

// The driver creates a MIG device when a pod starts. It gets the same labels as a static one, each time it is
// created. The ResourceSlice has only its name, profile and place.
func TestDynamicMIGDevices(t *testing.T) {
	w := worldWith(t, podmapper.Options{Device: dynamic}, claims("ml/a", "mine", "gpu-3-mig-1g10gb-19-0"))
	unmatched := map[string]float64{"claim_device gpu.nvidia.com ": 1}
	want(t, "labels if NVML reports no placements", pods(w.attribute()), map[int]string{})
	w.remake(5, 7, 3, migA)
	want(t, "labels while the device does not exist", pods(w.attribute()), map[int]string{})
	want(t, "unmatched", w.unmatched(), unmatched)
	why, err := w.mapper.Unmatched(t.Context(), w.topology)
	if err != nil || len(why) != 1 || !strings.Contains(why[0].Why, "no GPU instance 1g.10gb at memory slice 4 yet") {
		t.Errorf("Unmatched = %v, %v; want one device whose GPU instance does not exist yet", why, err)
	}
	w.remake(5, 7, 4, migA)
	want(t, "labels", w.attribute().Of(5), ofMIG(migA))
	w.remake(6, 12, 4, "MIG-again")
	want(t, "labels after it is created again", w.attribute().Of(6), ofMIG("MIG-again"))
	want(t, "matched", w.unmatched(), map[string]float64{})
}

// Each share of a GPU in the recording is the largest fraction of any capacity that its claim consumes.
func TestSharesByCapacity(t *testing.T) {
	sliced := func(driver, pool, name string) (podmapper.ClaimDevice, bool) {
		d, ok := claimed(driver, pool, name)
		d.Capacity = map[string]float64{"memory": 80 << 30, "shares": 4}
		return d, ok
	}
	consumed := map[string]map[string]float64{
		"3336a525-cb3a-412c-addd-c2e3655f9f2f": {"memory": 0, "shares": 1},
		"442e5892-a1d7-4eac-824c-f1a1b3cac26a": {"memory": 60 << 30, "shares": 1, "other": 9},
	}
	listed := kubelet.Captures(t)["list-dra-consumable-share-id"].PodResources
	w := worldWith(t, podmapper.Options{Device: sliced, Claimed: func(_, _, _, _, _, share string) podmapper.Claimed {
		return podmapper.Claimed{Read: true, Consumed: consumed[share]}
	}}, listed...)
	parts := map[string]float64{}
	for _, o := range w.attribute().UseOf(4).Owners {
		parts[o.Pod] = o.Part
	}
	want(t, "parts", parts, map[string]float64{"dra-slice-a": 0.25, "dra-slice-b": 0.75})

	w = worldWith(t, podmapper.Options{Device: sliced}, listed...)
	if use := w.attribute().UseOf(4); len(use.Owners) == 2 && !use.Incomplete {
		t.Errorf("owners while no claim is read = %+v, want them incomplete: their shares are unknown", use)
	}
}

// A monitor's claim with admin access does not make it an owner.
func TestClaimsWithAdminAccess(t *testing.T) {
	known, revision := false, uint64(1)
	w := newWorld(t, podmapper.Options{
		Device: claimed, Revision: func() uint64 { return revision },
		Claimed: func(namespace, claim, driver, pool, device, _ string) podmapper.Claimed {
			admin := claim == "watch" && device == "gpu-0" &&
				namespace == "ml" && driver == "gpu.nvidia.com" && pool == "e2e-node"
			return podmapper.Claimed{Read: known || claim == "mine", Admin: known && admin}
		},
	}, kubelet.Lists(
		claims("ml/a", "mine", "gpu-0"),
		kubelet.Pod("ml/monitor",
			kubelet.Claiming("c", "ml", "watch", "gpu.nvidia.com", "e2e-node", "gpu-0", ""),
			kubelet.Claiming("d", "ml", "watch", "gpu.nvidia.com", "e2e-node", "gpu-1", ""))))
	o := w.attribute()
	want(t, "labels before the monitor's claim is read", pods(o), map[int]string{0: "ml/a/c"})
	want(t, "rows that may have other owners", incomplete(o), []int{1})
	known, revision = true, 2
	o = w.attribute()
	want(t, "labels", pods(o), map[int]string{0: "ml/a/c", 1: "ml/monitor/d"})
	want(t, "sharing", o.UseOf(0).Sharing, gpu.SharingNone)
}

// api is a fake of the API server's data.
type api struct {
	pods     infos
	revision uint64
}

func (a *api) options() podmapper.Options {
	return podmapper.Options{
		Pod: func(namespace, name string) (podmapper.PodInfo, bool) {
			p, ok := a.pods[namespace+"/"+name]
			return p, ok
		},
		Revision: func() uint64 { return a.revision },
		PodUID:   true, PodLabels: true,
	}
}

type infos = map[string]podmapper.PodInfo

func newAPI(pods infos) *api { return &api{pods: pods, revision: 1} }

func (a *api) set(pods infos) { a.pods, a.revision = pods, a.revision+1 }

// If the kubelet lists two pods that hold a device exclusively, one of them has ended.
func TestEndedPods(t *testing.T) {
	type list []*v1.PodResources
	type step struct {
		api    infos // nil means no API server
		listed list
		labels string
		owners int
	}
	one, two := holds("ml/one", gpu0), holds("ml/two", gpu0)
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	inTurn := infos{"ml/one": {Created: noon}, "ml/two": {Created: noon.Add(time.Minute)}}
	atOnce := infos{"ml/one": {Created: noon}, "ml/two": {Created: noon}}
	for name, steps := range map[string][]step{
		"the API server reports it": {
			{infos{}, list{one}, "ml/one/c", 1}, {infos{"ml/one": {Finished: true}}, list{one}, "", 0},
		},
		"a newer pod has the device": {
			{inTurn, list{one, two}, "ml/two/c", 1}, {inTurn, list{two, one}, "ml/two/c", 1},
		},
		"another pod got the device later": {
			{nil, list{two}, "ml/two/c", 1}, {nil, list{one, two}, "ml/one/c", 1},
			{nil, list{one, two, kubelet.Pod("ml/x")}, "ml/one/c", 1},
		},
		"created in the same second, and one got the device later": {
			{atOnce, list{two}, "ml/two/c", 1}, {atOnce, list{one, two}, "ml/one/c", 1},
		},
		"unknown which one ended": {{nil, list{one, two}, "", 2}},
	} {
		t.Run(name, func(t *testing.T) {
			server, opt := &api{}, podmapper.Options{}
			if steps[0].api != nil {
				opt = server.options()
			}
			w := newWorld(t, opt)
			for i, s := range steps {
				server.set(s.api)
				w.Script(kubelet.Lists(s.listed...))
				o := w.attribute()
				want(t, fmt.Sprint("labels in step ", i+1), pods(o)[0], s.labels)
				want(t, fmt.Sprint("owners in step ", i+1), len(o.UseOf(0).Owners), s.owners)
			}
		})
	}
}

// The cost of many pods on one device is proportional to their number.
func TestManyPodsOnOneDevice(t *testing.T) {
	crowd := kubelet.Crowd(30_000, "nvidia.com/gpu", func(int) string { return gpu0 })
	w := worldWith(t, podmapper.Options{}, crowd...)
	want(t, "owners", len(w.attribute().UseOf(0).Owners), attribution.MaxOwners)
	want(t, "owners dropped", w.metric("dcgm_exporter_owners_dropped")[""], 30_000-attribution.MaxOwners)
}

func TestRecreatedPods(t *testing.T) {
	a := newAPI(infos{"a/train-0": {UID: "1"}, "b/train-0": {UID: "2"}})
	w := newWorld(t, a.options(), kubelet.Lists(
		holds("a/train-0", gpu0),
		holds("b/train-0", gpu1),
	))
	uid := func(o *gpu.Owners, row int) string { return o.UseOf(row).Owners[0].PodUID }
	first := w.attribute()
	want(t, "two namespaces", pods(first), map[int]string{0: "a/train-0/c", 1: "b/train-0/c"})
	want(t, "uids", []string{uid(first, 0), uid(first, 1)}, []string{"1", "2"})

	a.set(infos{"a/train-0": {UID: "3"}, "b/train-0": {UID: "2"}})
	second := w.attribute()
	if second == first {
		t.Error("pod was recreated: Attribute returned the previous owners, want new ones")
	}
	want(t, "uid of the new pod", uid(second, 0), "3")
	want(t, "label of the new pod", second.Of(0)[3], gpu.Label{Name: "pod_uid", Value: "3"})
	a.revision++
	if w.attribute() != second {
		t.Error("unrelated API change: Attribute returned new owners, want the previous ones")
	}
}

func TestLabelsOfPods(t *testing.T) {
	many := map[string]string{}
	for i := range 20 {
		many[fmt.Sprintf("l%02d", i)] = "x"
	}
	for _, tt := range []struct {
		name    string
		allowed []string
		most    int // 0 means the default
		labels  map[string]string
		want    map[string]string
		dropped map[string]float64
	}{
		{"all, with names for Prometheus", nil, 0,
			map[string]string{"app.kubernetes.io/name": "trainer", "team": "ml", "1st": "yes", "blank": ""},
			map[string]string{"app_kubernetes_io_name": "trainer", "team": "ml", "_1st": "yes"}, nil},
		{"allowed ones", []string{"^team$", "kubernetes"}, 0,
			map[string]string{"app.kubernetes.io/name": "trainer", "team": "ml", "teams": "no"},
			map[string]string{"app_kubernetes_io_name": "trainer", "team": "ml"}, nil},
		{"two labels with the same Prometheus name: the first is used", nil, 0,
			map[string]string{"a-b": "first", "a.b": "second", "a_b": "third"},
			map[string]string{"a_b": "first"}, map[string]float64{"collision ": 2}},
		{"ours count", nil, 0,
			map[string]string{"pod": "x", "UUID": "x", "dra_claim_name": "x", "DCGM_FI_DRIVER_VERSION": "x",
				"path": "x", "peer-uuid": "x", "numa_node": "x", "team": "ml"},
			map[string]string{"team": "ml"}, map[string]float64{"collision ": 7}},
		{"too many", nil, 0, many, func() map[string]string {
			first := maps.Clone(many)
			maps.DeleteFunc(first, func(k, _ string) bool { return k >= "l16" })
			return first
		}(), map[string]float64{"budget ": 4}},
		{"more than configured: the first keys are used", nil, 2,
			map[string]string{"c": "3", "a": "1", "b": "2"},
			map[string]string{"a": "1", "b": "2"}, map[string]float64{"budget ": 1}},
		{"too long", nil, 0, map[string]string{"note": strings.Repeat("x", 129), "ok": strings.Repeat("x", 128)},
			map[string]string{"ok": strings.Repeat("x", 128)}, map[string]float64{"length ": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(infos{"ml/a": {Labels: tt.labels}})
			opt := a.options()
			opt.MaxPodLabels = tt.most
			for _, text := range tt.allowed {
				opt.LabelsAllowed = append(opt.LabelsAllowed, regexp.MustCompile(text))
			}
			w := worldWith(t, opt, holds("ml/a", gpu0, gpu1))
			got := map[string]string{}
			for _, l := range w.attribute().Of(0) {
				if l.Name != "pod" && l.Name != "namespace" && l.Name != "container" {
					got[l.Name] = l.Value
				}
			}
			want(t, "labels", got, tt.want)
			dropped := map[string]float64{"collision ": 0, "budget ": 0, "length ": 0}
			maps.Copy(dropped, tt.dropped)
			want(t, "dropped", w.metric("dcgm_exporter_pod_labels_dropped"), dropped)
		})
	}
}

// The API server's first list arrives shortly after the start. Only the first Attribute waits for it, and only for a
// limited time.
func TestFirstAnswerWaitsForAPIServer(t *testing.T) {
	for name, comes := range map[string]bool{"list arrives": true, "list never arrives": false} {
		t.Run(name, func(t *testing.T) {
			a, ready := &api{}, make(chan struct{})
			opt := a.options()
			opt.Ready = []<-chan struct{}{ready}
			w := worldWith(t, opt, holds("ml/a", gpu0))
			labels := 3
			if comes {
				timer := time.AfterFunc(50*time.Millisecond, func() {
					a.set(infos{"ml/a": {UID: uidA, Labels: map[string]string{"team": "vision"}}})
					close(ready)
				})
				defer timer.Stop()
				labels = 5
			}
			begin := time.Now()
			want(t, "labels of the first result", len(w.attribute().Of(0)), labels)
			waited := time.Since(begin)
			if !comes && waited < time.Second {
				t.Errorf("first Attribute took %v, want at least 1s", waited)
			}
			begin = time.Now()
			w.attribute()
			if waited := time.Since(begin); waited >= time.Second {
				t.Errorf("second Attribute took %v, want less than 1s", waited)
			}
		})
	}
}

// Whatever a pod's labels are called, the series labels have valid, unique and sorted names. They never repeat the
// exporter's own labels.
func FuzzLabelsOfPods(f *testing.F) {
	f.Add("app.kubernetes.io/name", "app_kubernetes_io/name", "pod")
	f.Add("", "-", "__name__")
	name := regexp.MustCompile(`^([a-zA-Z]|_[a-zA-Z0-9]|_$)[a-zA-Z0-9_]*$`)
	f.Fuzz(func(t *testing.T, a, b, c string) {
		server := newAPI(infos{"ml/a": {UID: "u", Labels: map[string]string{a: "1", b: "2", c: "3"}}})
		owner := gpu.Owner{Namespace: "ml", Pod: "a", Container: "c", PodUID: "u"}
		labels := podmapper.LabelsOf(server.options(), owner, server.pods["ml/a"].Labels)
		for i, l := range labels {
			if !name.MatchString(l.Name) {
				t.Errorf("label name = %q, want a valid one", l.Name)
			}
			if i > 0 && labels[i-1].Name >= l.Name {
				t.Errorf("label %q is before %q, want distinct names in order", labels[i-1].Name, l.Name)
			}
			if l.Name == "pod" && l.Value != "a" || l.Name == "namespace" && l.Value != "ml" {
				t.Errorf("%s = %q, want the pod's own value", l.Name, l.Value)
			}
		}
	})
}

// Hundreds of pods come and go. Each list is attributed completely, and nothing about ended pods is kept.
func TestChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("long test: 200 listings of 500 pods")
	}
	const crowd = 500
	w := newWorld(t, podmapper.Options{})
	heap := func() uint64 { // the minimum of five runs, to exclude pools and other goroutines
		least := uint64(math.MaxUint64)
		for range 5 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			least = min(least, m.HeapAlloc)
		}
		return least
	}
	var before uint64
	for round := range 200 {
		var all []*v1.PodResources
		for i := range crowd {
			device := kubelet.Container("c", "nvidia.com/gpu.shared", fmt.Sprintf("%s::%d", gpu4, i))
			all = append(all, kubelet.Pod(fmt.Sprintf("ns-%d/pod-%d-%d", i%3, round, i), device))
		}
		all = append(all, holds(fmt.Sprintf("ml/whole-%d", round), gpu0))
		w.Script(kubelet.Lists(all...))
		o := w.attribute()
		want(t, "pod of this round", pods(o), map[int]string{0: fmt.Sprintf("ml/whole-%d/c", round)})
		for _, owner := range o.UseOf(4).Owners {
			if !strings.HasPrefix(owner.Pod, fmt.Sprintf("pod-%d-", round)) {
				t.Fatalf("round %d: owner = %s, want a pod of this round", round, owner.Pod)
			}
		}
		want(t, "owners, bounded", len(o.UseOf(4).Owners), 256)
		want(t, "holdings kept for devices of other pods", w.metric("dcgm_exporter_attribution_holdings_kept")[""], 0)
		want(t, "owners dropped", w.metric("dcgm_exporter_owners_dropped")[""], crowd-256)
		if round == 20 {
			before = heap()
		}
	}
	// 180 rounds have 90,000 pods. Keeping the name of each would take 32 bytes.
	if after := heap(); after > before+90_000*30 {
		t.Errorf("memory grew from %d to %d bytes over 180 rounds, want at most %d", before, after, before+90_000*30)
	}
}

// While the kubelet restarts, a pod ends and a pod of the same name starts without a GPU. The first pod's device
// never gets the UID of the second pod.
func TestRememberedPodKeepsItsUID(t *testing.T) {
	n := newOnNode(t)
	n.log("ml_a_" + uidA)
	other := holds("ml/other", gpu3)
	a := holds("ml/a", gpu0)
	w := newAged(t, podmapper.Options{LogFolder: n.logs, PodUID: true}, a, other)
	if got := w.attribute().UseOf(0).Owners[0].PodUID; got != uidA {
		t.Fatalf("UID before the restart = %q, want %q", got, uidA)
	}
	n.log("ml_a_" + uidB) // the second pod with that name
	for _, x := range w.restarts(5*time.Second, other).UseOf(0).Owners {
		if x.PodUID != uidA {
			t.Errorf("owner of GPU 0 = pod %s with UID %s, want the first pod with UID %s", x.Pod, x.PodUID, uidA)
		}
	}
}

// The mirror of a static pod is deleted and recreated by the kubelet. The pod keeps its UID, so its counters continue
// and its processes stay attributed.
func TestStaticPodWithoutMirror(t *testing.T) {
	n := newOnNode(t)
	n.log("ml_s_" + static)
	server := newAPI(infos{"ml/s": {UID: uidA, Hash: static, Created: n.at.Add(-time.Hour)}})
	opt := server.options()
	opt.LogFolder = n.logs
	w := newAged(t, opt, holds("ml/s", gpu4+"::0"), holds("ml/b", gpu4+"::1"))
	want(t, "UID with its mirror", uids(w.attribute())["s"], uidA)
	server.set(nil)
	want(t, "UID while there is no mirror", uids(w.attribute())["s"], uidA)
}

// Dynamic MIG: pod a ends while the kubelet restarts. Then the claim of pod b creates an instance in the same place.
// The instance belongs only to b.
func TestPlaceBelongsToTheListedClaim(t *testing.T) {
	w := newAged(t, podmapper.Options{Device: dynamic}, claims("ml/a", "a-x7k", "gpu-3-mig-1g10gb-19-0"))
	w.remake(5, 7, 4, migA)
	want(t, "owners of a's instance", named(w.attribute(), 5), []string{"a"})
	w.remake(5, 9, 4, "MIG-b0000000-0000-5000-8000-000000000001")
	b := claims("ml/b", "b-p2q", "gpu-3-mig-1g10gb-19-0")
	want(t, "owners of b's instance", named(w.restarts(5*time.Second, b), 5), []string{"b"})
}
