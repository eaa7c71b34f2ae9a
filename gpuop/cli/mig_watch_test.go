package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster/clustertest"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/migchange"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// A scene is what a scripted cluster shows from a time on.
type scene struct {
	after   time.Duration
	state   string // of the MIG config
	config  string
	devices map[string]int
	away    bool // the API server is
}

// scripted plays scenes, and takes labels.
type scripted struct {
	scenes  []scene
	labels  []string
	refuses error
}

func (s *scripted) Read(context.Context, ...cluster.Kind) (*cluster.State, error) {
	return s.scenes[0].cluster(), nil
}

func (s *scripted) Label(_ context.Context, node, key, value string) error {
	s.labels = append(s.labels, node+" "+key+"="+value)
	return s.refuses
}

func (s *scripted) Watch(ctx context.Context, _ ...cluster.Kind) iter.Seq2[*cluster.State, error] {
	return func(yield func(*cluster.State, error) bool) {
		begun := time.Now()
		for _, c := range s.scenes {
			select {
			case <-ctx.Done():
				return
			case <-time.After(c.after - time.Since(begun)):
			}
			if c.away {
				if !yield(nil, fmt.Errorf("%w: connection refused", cluster.ErrUnreachable)) {
					return
				}
				continue
			}
			if !yield(c.cluster(), nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

// cluster is one node with eight H100 and a device plugin.
func (c scene) cluster() *cluster.State {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed",
		"nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/mig.config": c.config, "nvidia.com/mig.config.state": c.state}},
		Spec: corev1.NodeSpec{Unschedulable: true}}
	n.Status.Allocatable = corev1.ResourceList{}
	for name, amount := range c.devices {
		n.Status.Allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(int64(amount), resource.DecimalSI)
	}
	pod := func(app, component string) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: app + "-x", Labels: map[string]string{"app": app}}}
		p.Spec.NodeName, p.Spec.NodeSelector = "gpu-1", map[string]string{"nvidia.com/gpu.deploy." + component: "true"}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		return p
	}
	file := "version: v1\nmig-configs:\n  all-disabled: [{devices: all, mig-enabled: false}]\n  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]\n"
	return &cluster.State{Title: "scripted", At: time.Now(), Namespace: "gpu-operator", Nodes: []corev1.Node{n},
		Pods:       []corev1.Pod{pod("nvidia-mig-manager", "mig-manager"), pod("nvidia-device-plugin-daemonset", "device-plugin")},
		ConfigMaps: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1-mig-config", Namespace: "gpu-operator"}, Data: map[string]string{"config.yaml": file}}}}
}

var (
	eight      = map[string]int{"nvidia.com/gpu": 8}
	fiftySix   = map[string]int{"nvidia.com/mig-1g.10gb": 56}
	asUsual    = scene{0, "success", "all-disabled", eight, false}
	toSlices   = "all-1g.10gb"
	labelWrote = "gpu-1 nvidia.com/mig.config=all-1g.10gb"
)

func TestMIGApplyFollowsTheChange(t *testing.T) {
	for _, c := range []struct {
		name     string
		scenes   []scene
		a        migApply
		id       string
		state    verdict.State
		took     time.Duration
		progress string
		label    bool
	}{
		{"applied", []scene{asUsual, {time.Second, "success", toSlices, eight, false}, {3 * time.Second, "pending", toSlices, eight, false}, {10 * time.Second, "success", toSlices, nil, false}, {20 * time.Second, "success", toSlices, fiftySix, false}},
			migApply{apply: true, deadline: time.Hour}, "mig-applied", verdict.OK, 20 * time.Second, "the state is success, and the node has no device", true},
		{"the server is away for a while", []scene{asUsual, {time.Second, "pending", toSlices, eight, false}, {2 * time.Second, "", "", nil, true}, {30 * time.Second, "success", toSlices, fiftySix, false}},
			migApply{apply: true, deadline: time.Hour}, "mig-applied", verdict.OK, 30 * time.Second, "connection refused", true},
		{"success that lies", []scene{asUsual, {time.Second, "pending", toSlices, eight, false}, {time.Minute, "success", toSlices, nil, false}},
			migApply{apply: true, deadline: time.Hour}, "mig-no-devices", verdict.Failed, 6 * time.Minute, "", true},
		{"nothing reacts", []scene{asUsual, {time.Second, "", toSlices, eight, false}},
			migApply{apply: true, deadline: 10 * time.Minute}, "mig-ignored", verdict.Failed, 10 * time.Minute, "MIG manager reads the label", true},
		{"not requested", []scene{asUsual}, migApply{deadline: time.Hour}, "mig-label", verdict.Note, 0, "", false},
		{"blocked", []scene{{0, "pending", "all-disabled", eight, false}}, migApply{apply: true, deadline: time.Hour}, "mig-label", verdict.Failed, 0, "", false},
		{"forced", []scene{{0, "pending", "all-disabled", eight, false}, {time.Second, "pending", toSlices, eight, false}, {2 * time.Second, "success", toSlices, fiftySix, false}},
			migApply{apply: true, force: true, deadline: time.Hour}, "mig-applied", verdict.OK, 2 * time.Second, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var progress bytes.Buffer
				e := &env{Streams: Streams{Out: &bytes.Buffer{}, Err: &progress}, table: chart.Load()}
				from := &scripted{scenes: c.scenes}
				if c.a.apply {
					from.scenes[0].config = c.scenes[0].config
				}
				s, _ := from.Read(t.Context())
				if len(c.scenes) > 1 {
					from = &scripted{scenes: c.scenes[1:]} // the watch begins after the label
				}
				begun := time.Now()
				tree, err := e.change(t.Context(), from, s, "", c.a, "gpu-1", toSlices)
				if err != nil {
					t.Fatal(err)
				}
				last := tree.Verdicts[len(tree.Verdicts)-1]
				if last.ID != c.id || last.State != c.state {
					t.Errorf("ended with %+v, want %s %s", last, c.state, c.id)
				}
				if took := time.Since(begun); took < c.took || took > c.took+2*time.Second {
					t.Errorf("it took %s, want %s", took, c.took)
				}
				if !strings.Contains(progress.String(), c.progress) {
					t.Errorf("%q does not say %q", progress.String(), c.progress)
				}
				if wrote := len(from.labels) == 1 && from.labels[0] == labelWrote; wrote != c.label || !wrote && len(from.labels) > 0 {
					t.Errorf("labels %q, want one: %t", from.labels, c.label)
				}
			})
		})
	}
}

func TestMIGApplyThatMayNotWrite(t *testing.T) {
	from := &scripted{scenes: []scene{asUsual}, refuses: errors.New("user x may not patch nodes")}
	s, _ := from.Read(t.Context())
	e := &env{Streams: Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, table: chart.Load()}
	if _, err := e.change(t.Context(), from, s, "", migApply{apply: true, deadline: time.Hour}, "gpu-1", toSlices); err == nil || !strings.Contains(err.Error(), "may not patch nodes") {
		t.Errorf("%v", err)
	}
}

func TestMIGWatchEndsWhenInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e := &env{Streams: Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, table: chart.Load()}
		f := &following{env: e, deadline: time.Hour, begin: func(s *cluster.State) ([]migchange.Target, error) { return requesting(s, nil) }}
		tree, err := f.follow(ctx, &scripted{scenes: []scene{{0, "pending", toSlices, eight, false}}})
		if err != nil {
			t.Fatal(err)
		}
		if last := tree.Verdicts[len(tree.Verdicts)-1]; last.State != verdict.Failed || !strings.Contains(last.Reason, "interrupted") {
			t.Errorf("%+v", last)
		}
	})
}

func TestMIGWatchWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &env{Streams: Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}, table: chart.Load()}
		f := &following{env: e, deadline: time.Hour, begin: func(s *cluster.State) ([]migchange.Target, error) { return requesting(s, nil) }}
		if _, err := f.follow(t.Context(), &scripted{scenes: []scene{{away: true}}}); !errors.Is(err, cluster.ErrUnreachable) {
			t.Errorf("%v does not wrap ErrUnreachable", err)
		}
	})
}

// The commands as they are called, against an API server and a folder.
func TestMIGCommandsOnACluster(t *testing.T) {
	s := (scene{0, "success", "all-disabled", eight, false}).cluster()
	server := (&clustertest.Server{}).Add(t, "/api/v1/nodes", s.Nodes[0]).Add(t, "/api/v1/pods", s.Pods[0], s.Pods[1]).
		Add(t, "/api/v1/namespaces/gpu-operator/configmaps", s.ConfigMaps[0]).Add(t, "/apis/apps/v1/daemonsets").
		Add(t, "/apis/nvidia.com/v1/clusterpolicies", map[string]any{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{"mig": map[string]any{"strategy": "mixed"}}})
	patched := ""
	server.Before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			patched = r.URL.Path
			clustertest.Status(w, http.StatusForbidden, "Forbidden", `nodes "gpu-1" is forbidden: User "x" cannot patch resource "nodes"`)
			return true
		}
		return false
	}
	server.Start(t)
	kubeconfig := server.Kubeconfig(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"mig", "apply", "gpu-1", toSlices, "--kubeconfig", kubeconfig}, 0, "56 nvidia.com/mig-1g.10gb, now 8 nvidia.com/gpu"},
		{[]string{"mig", "apply", "gpu-1", "all-1g.10g", "--kubeconfig", kubeconfig}, 1, "did you mean all-1g.10gb?"},
		{[]string{"mig", "apply", "gpu1", toSlices, "--kubeconfig", kubeconfig}, 2, "did you mean gpu-1?"},
		{[]string{"mig", "apply", "gpu-1", toSlices, "--apply", "--kubeconfig", kubeconfig}, 2, `patch`},
		{[]string{"mig", "apply", "gpu-1"}, 2, "a node and the name of a MIG config"},
		{[]string{"mig", "apply", "gpu-1", toSlices, "--force"}, 2, "--force is for --apply"},
		{[]string{"mig", "apply", "gpu-1", toSlices, "--apply", "--from", filepath.Join("..", "drift", "testdata", "healthy.yaml")}, 2, "cannot be changed"},
		{[]string{"mig", "watch", "--wait-timeout", "0s"}, 2, "want more than 0"},
		{[]string{"mig", "watch", "--kubeconfig", clustertest.Kubeconfig(t, "https://127.0.0.1:1")}, 3, "cannot reach"},
	} {
		code, out, errOut := call("", c.args...)
		if code != c.code || !strings.Contains(out+errOut, c.says) {
			t.Errorf("%q: exit %d, want %d; %q does not say %q", c.args, code, c.code, out+errOut, c.says)
		}
	}
	if patched != "/api/v1/nodes/gpu-1" {
		t.Errorf("patched %q, want the node, and that by --apply alone", patched)
	}
}
