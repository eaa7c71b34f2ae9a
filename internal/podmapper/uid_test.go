package podmapper_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

const (
	uidA   = "0d5c7c52-6a5e-4f3a-9b0e-7c1f5a0b1c2d"
	uidB   = "1e6d8d63-7b6f-4e4b-8c1f-8d2e6b1c2d3e"
	static = "a3f5c1d2e4b6978899aabbccddeeff00"
)

// onNode is what lies on a node beside the socket.
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

// log makes the folder of a pod's logs, and turns the clock on.
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

func (n *onNode) options() podmapper.Options {
	return podmapper.Options{LogFolder: n.logs}
}

// uids returns, by pod, the UIDs of the owners of the GPU that all share.
func uids(o *gpu.Owners) map[string]string {
	out := map[string]string{}
	for _, owner := range o.UseOf(4).Owners {
		out[owner.Pod] = owner.PodUID
	}
	return out
}

// What a node's own files say of the UIDs of pods, without an API server.
func TestUIDsFromTheNode(t *testing.T) {
	a, b := gpu4+"::0", gpu4+"::1"
	for name, tt := range map[string]struct {
		logs []string
		a, b string
	}{
		"nothing":                 {},
		"folders of logs":         {logs: []string{"ml_a_" + uidA, "ml_b_" + uidB, "web_a_" + uidB}, a: uidA, b: uidB},
		"a static pod's folder":   {logs: []string{"ml_a_" + static}, a: static},
		"other things beside":     {logs: []string{"ml_a_" + uidA, "lost+found", "ml_b", "ml_b_latest", "x_ml_b_" + uidB}, a: uidA},
		"an earlier pod's folder": {logs: []string{"ml_a_" + uidB, "ml_a_" + uidA}, a: uidA},
	} {
		t.Run(name, func(t *testing.T) {
			n := newOnNode(t)
			for _, folder := range tt.logs {
				n.log(folder)
			}
			w := newWorld(t, n.options(), kubelet.Lists(
				kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", a)), kubelet.Pod("ml/b", kubelet.Container("c", "nvidia.com/gpu", b))))
			want(t, "UIDs", uids(w.attribute()), map[string]string{"a": tt.a, "b": tt.b})
		})
	}
}

// The files change while the kubelet lists the same.
func TestUIDsFromTheNodeChange(t *testing.T) {
	n := newOnNode(t)
	w := newWorld(t, n.options(), kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))))
	want(t, "UIDs without files", uids(w.attribute()), map[string]string{"a": ""})
	n.log("ml_a_" + uidA)
	first := w.attribute()
	want(t, "UIDs once there is a folder", uids(first), map[string]string{"a": uidA})
	if w.attribute() != first {
		t.Error("the same files gave another result")
	}
	n.log("ml_a_" + uidB)
	want(t, "UIDs of another pod of the name", uids(w.attribute()), map[string]string{"a": uidB})
	if err := os.RemoveAll(n.logs); err != nil {
		t.Fatal(err)
	}
	want(t, "UIDs once the files are gone", uids(w.attribute()), map[string]string{"a": ""})

	// Where the API server knows the pod, its word counts.
	n = newOnNode(t)
	n.log("ml_a_" + uidB)
	server := &api{}
	server.set(map[string]podmapper.PodInfo{"ml/a": {UID: uidA}})
	opt := server.options()
	opt.LogFolder = n.logs
	w = newWorld(t, opt, kubelet.Lists(kubelet.Pod("ml/a", kubelet.Container("c", "nvidia.com/gpu", gpu4+"::0"))))
	want(t, "UIDs by the API server", uids(w.attribute()), map[string]string{"a": uidA})
}
