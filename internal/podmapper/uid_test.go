package podmapper_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

const (
	uidA   = "0d5c7c52-6a5e-4f3a-9b0e-7c1f5a0b1c2d"
	uidB   = "1e6d8d63-7b6f-4e4b-8c1f-8d2e6b1c2d3e"
	static = "a3f5c1d2e4b6978899aabbccddeeff00"
)

// onNode is a world with a folder of pod logs.
type onNode struct {
	*testing.T
	logs string
	at   time.Time
}

func newOnNode(t *testing.T) *onNode {
	n := &onNode{T: t, logs: filepath.Join(t.TempDir(), "pods"), at: time.Now().Add(-time.Hour)}
	if err := os.Mkdir(n.logs, 0o755); err != nil {
		t.Fatal(err)
	}
	return n
}

// log creates a pod's log folder and advances the clock.
func (n *onNode) log(name string) {
	n.Helper()
	path := filepath.Join(n.logs, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		n.Fatal(err)
	}
	n.at = n.at.Add(time.Minute)
	for _, p := range []string{path, n.logs} {
		if err := os.Chtimes(p, n.at, n.at); err != nil {
			n.Fatal(err)
		}
	}
}

// uids returns the owners' UIDs by pod for the GPU that all pods share.
func uids(o *gpu.Owners) map[string]string {
	out := map[string]string{}
	for _, owner := range o.UseOf(4).Owners {
		out[owner.Pod] = owner.PodUID
	}
	return out
}

// UIDs come from the node's log folders if there is no API server.
func TestUIDsFromTheNode(t *testing.T) {
	a, b := gpu4+"::0", gpu4+"::1"
	for name, tt := range map[string]struct {
		logs []string
		a, b string
	}{
		"nothing":               {},
		"folders of logs":       {logs: []string{"ml_a_" + uidA, "ml_b_" + uidB, "web_a_" + uidB}, a: uidA, b: uidB},
		"a static pod's folder": {logs: []string{"ml_a_" + static}, a: static},
		"other files and folders": {
			logs: []string{"ml_a_" + uidA, "lost+found", "ml_b", "ml_b_latest", "x_ml_b_" + uidB}, a: uidA,
		},
		"an earlier pod's folder": {logs: []string{"ml_a_" + uidB, "ml_a_" + uidA}, a: uidA},
	} {
		t.Run(name, func(t *testing.T) {
			n := newOnNode(t)
			for _, folder := range tt.logs {
				n.log(folder)
			}
			w := worldWith(t, podmapper.Options{LogFolder: n.logs}, holds("ml/a", a), holds("ml/b", b))
			want(t, "UIDs", uids(w.attribute()), map[string]string{"a": tt.a, "b": tt.b})
		})
	}
}

// The folders change while the kubelet keeps listing the same pods.
func TestUIDsFromTheNodeChange(t *testing.T) {
	n := newOnNode(t)
	w := worldWith(t, podmapper.Options{LogFolder: n.logs}, holds("ml/a", gpu4+"::0"))
	want(t, "UIDs without files", uids(w.attribute()), map[string]string{"a": ""})
	n.log("ml_a_" + uidA)
	first := w.attribute()
	want(t, "UIDs once the folder exists", uids(first), map[string]string{"a": uidA})
	if w.attribute() != first {
		t.Error("same folders: Attribute returned new owners, want the previous ones")
	}
	n.log("ml_a_" + uidB)
	want(t, "UIDs of another pod with the same name", uids(w.attribute()), map[string]string{"a": uidB})
	if err := os.RemoveAll(n.logs); err != nil {
		t.Fatal(err)
	}
	want(t, "UIDs after the folders are removed", uids(w.attribute()), map[string]string{"a": ""})
}

// The API server has stopped answering, and last reported an earlier pod of the same name. The node's log folders are
// newer. Without them, the UID of a pod that left the list and returned is unknown until the API server answers.
func TestAPIServerStopsAnswering(t *testing.T) {
	a := holds("ml/a", gpu0)
	pod, idle := kubelet.Lists(a), kubelet.Lists(kubelet.Pod("ml/idle"))
	noon := time.Now().Add(-2 * time.Hour)
	labels := map[string]string{"team": "earlier"}
	earlier := podmapper.PodInfo{UID: uidA, Created: noon, Labels: labels}
	later := podmapper.PodInfo{UID: uidA, Created: time.Now(), Labels: labels}
	finished := podmapper.PodInfo{UID: uidA, Created: noon, Finished: true}
	ofStatic := podmapper.PodInfo{UID: uidA, Created: noon, Hash: static, Labels: labels}
	type silence struct {
		stale    bool   // the API server does not answer
		folder   string // the pod's newest log folder
		recreate bool   // the pod leaves the list and returns
		beside   bool   // another pod arrives
		moves    bool   // a pod of the same name replaces it between two lists, with another device
		info     podmapper.PodInfo
		uid      string
		labeled  bool // the pod has labels from the API server
	}
	for name, tt := range map[string]silence{
		"answers":                        {folder: uidA, recreate: true, info: earlier, uid: uidA, labeled: true},
		"answers, pod is newer":          {folder: uidB, info: later, uid: uidA, labeled: true},
		"answers, pod is older":          {folder: uidB, recreate: true, info: earlier, uid: uidB},
		"answers, pod has finished":      {folder: uidB, recreate: true, info: finished, uid: uidB},
		"silent, same pod":               {stale: true, folder: uidA, info: earlier, uid: uidA, labeled: true},
		"silent, no folder":              {stale: true, info: earlier, uid: uidA, labeled: true},
		"silent, older folder":           {stale: true, folder: uidB, info: later, uid: uidB},
		"silent, no folder, pod returns": {stale: true, recreate: true, info: earlier, uid: ""},
		"silent, pod is replaced":        {stale: true, moves: true, info: earlier, uid: ""},
		"silent, another pod arrives":    {stale: true, beside: true, info: earlier, uid: uidA, labeled: true},
		"static pod with its own folder": {folder: static, info: ofStatic, uid: uidA, labeled: true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newOnNode(t)
			server := newAPI(infos{"ml/a": tt.info})
			opt := server.options()
			opt.LogFolder, opt.PodLabels = n.logs, true
			var since time.Time
			if tt.stale {
				since = time.Now()
			}
			opt.Stale = func() time.Time { return since }
			w := newWorld(t, opt, pod)
			w.attribute()
			if tt.recreate {
				w.Script(idle)
				w.attribute()
				w.Script(pod)
			}
			if tt.beside {
				w.Script(kubelet.Lists(a, holds("ml/b", gpu1)))
			}
			if tt.moves {
				w.Script(kubelet.Lists(holds("ml/a", gpu1)))
				w.attribute()
				w.Script(pod)
			}
			if tt.folder != "" {
				n.log("ml_a_" + tt.folder) // created an hour and a minute ago
			}
			o := w.attribute()
			if len(o.UseOf(0).Owners) != 1 {
				t.Fatalf("owners = %v, want one", o.UseOf(0).Owners)
			}
			owner := o.UseOf(0).Owners[0]
			want(t, "UID", owner.PodUID, tt.uid)
			want(t, "labels from the API server", len(owner.Labels) > 0, tt.labeled)
		})
	}
}

// inMain returns a pod whose container main has devices.
func inMain(pod string, ids ...string) *v1.PodResources {
	return kubelet.Pod(pod, kubelet.Container("main", "nvidia.com/gpu", ids...))
}

// HAMi's scheduler chooses the GPU, regardless of the id that the kubelet lists.
func TestHAMi(t *testing.T) {
	one := func(uuid string) string { return uuid + ",NVIDIA,3000,30:" }
	both := []string{gpu0 + "-3", gpu0 + "-4"}
	for name, tt := range map[string]struct {
		annotation string
		listed     []string // ids listed for the container main
		rows       []int
		unmatched  float64
	}{
		"annotation names another GPU":                    {one(gpu4) + ";;", []string{gpu0 + "-3"}, []int{4}, 0},
		"annotation names the listed GPU":                 {one(gpu0) + ";;", []string{gpu0 + "-0"}, []int{0}, 0},
		"annotation names two other GPUs":                 {one(gpu4) + one(gpu1) + ";;", both, []int{1, 4}, 0},
		"annotation names fewer GPUs than are listed":     {one(gpu4) + ";;", both, []int{4}, 1},
		"annotation for another container":                {";" + one(gpu4) + ";", []string{gpu0 + "-3"}, nil, 1},
		"annotation for more containers than the pod has": {one(gpu4) + ";;;", []string{gpu0 + "-3"}, nil, 1},
		"annotation with a device of another vendor":      {gpu4 + ",MLU,3000,30:;;", []string{gpu0 + "-3"}, nil, 1},
		"no annotation":       {"", []string{gpu0 + "-3"}, nil, 1},
		"invalid annotation":  {"x;y", []string{gpu0 + "-3"}, nil, 1},
		"NVIDIA's own plugin": {one(gpu4) + ";;", []string{gpu0}, []int{0}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			info := podmapper.PodInfo{UID: uidA, Containers: []string{"main", "beside"}, Allocated: tt.annotation}
			w := worldWith(t, newAPI(infos{"ml/a": info}).options(), inMain("ml/a", tt.listed...))
			o := w.attribute()
			var rows []int
			for row := range o.Uses {
				if len(o.UseOf(row).Owners) == 0 {
					continue
				}
				rows = append(rows, row)
				owner := o.UseOf(row).Owners[0]
				want(t, "owner", owner.Pod+"/"+owner.Container+" "+owner.PodUID, "a/main "+uidA)
				shared, hami := owner.Replica != "", name != "NVIDIA's own plugin"
				if sharing := o.UseOf(row).Sharing; shared != hami || (sharing == gpu.SharingTimeSlicing) != hami {
					t.Errorf("row %d: replica = %q, sharing = %v; want a replica and time-slicing: %t",
						row, owner.Replica, sharing, hami)
				}
			}
			want(t, "rows", rows, tt.rows)
			want(t, "unmatched", w.unmatched()["gpu_uuid nvidia.com/gpu "], tt.unmatched)
		})
	}
}

// Each container gets the devices from its own position in the annotation.
func TestHAMiContainers(t *testing.T) {
	a := newAPI(infos{"ml/a": {
		UID: uidA, Containers: []string{"main", "beside"}, Allocated: gpu4 + ",NVIDIA,1,1:;" + gpu1 + ",NVIDIA,1,1:;",
	}})
	w := worldWith(t, a.options(), kubelet.Pod("ml/a",
		kubelet.Container("beside", "nvidia.com/gpu", gpu0+"-1"),
		kubelet.Container("main", "nvidia.com/gpu", gpu0+"-2")))
	want(t, "labels", pods(w.attribute()), map[int]string{1: "ml/a/beside", 4: "ml/a/main"})
}

// Two pods that HAMi places on one GPU share it, regardless of the ids that the kubelet chose.
func TestHAMiShares(t *testing.T) {
	info := func(uid string) podmapper.PodInfo {
		return podmapper.PodInfo{UID: uid, Containers: []string{"main"}, Allocated: gpu4 + ",NVIDIA,3000,0:;"}
	}
	a := newAPI(infos{"ml/a": info(uidA), "ml/b": info(uidB)})
	w := worldWith(t, a.options(), inMain("ml/a", gpu0+"-1"), inMain("ml/b", gpu4+"-1"))
	o := w.attribute()
	want(t, "labels", pods(o), map[int]string{})
	want(t, "UIDs", uids(o), map[string]string{"a": uidA, "b": uidB})

	// An exporter that starts while the kubelet loads its pods reports the owners as unknown.
	w = worldWith(t, a.options(), inMain("ml/a", gpu0+"-1"))
	w.Born(time.Now())
	want(t, "owners while the list may be incomplete", len(w.attribute().UseOf(4).Owners), 0)
}
