package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

// eightH100 returns a node with eight GPUs, a MIG config in the given state, a MIG manager and a device plugin.
func eightH100(config, state string) *cluster.State {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/mig.capable": "true", "nvidia.com/mig.strategy": "mixed",
		"nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/gpu.deploy.device-plugin": "true", "nvidia.com/mig.config": config, "nvidia.com/mig.config.state": state}},
		Spec: corev1.NodeSpec{Unschedulable: true}}
	n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(8, resource.DecimalSI)}
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

const toSlices = "gpu-1 all-1g.10gb"

// mig apply sends one patch with the label, and only with --apply.
func TestMIGApply(t *testing.T) {
	s := eightH100("all-disabled", "success")
	server := (&apiserver.Server{}).Add(t, "/api/v1/nodes", s.Nodes[0]).Add(t, "/api/v1/pods", s.Pods[0], s.Pods[1]).
		Add(t, "/api/v1/namespaces/gpu-operator/configmaps", s.ConfigMaps[0]).Add(t, "/apis/apps/v1/daemonsets").
		Add(t, "/apis/nvidia.com/v1/clusterpolicies", map[string]any{"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": map[string]any{"name": "p"}, "spec": map[string]any{"mig": map[string]any{"strategy": "mixed"}}})
	patched, refuse := "", true
	server.Before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			patched = r.URL.Path + " " + string(body)
			if !refuse {
				_ = json.NewEncoder(w).Encode(s.Nodes[0])
				return true
			}
			apiserver.Status(w, http.StatusForbidden, "Forbidden", `nodes "gpu-1" is forbidden: User "x" cannot patch resource "nodes"`)
			return true
		}
		return false
	}
	server.Start(t)
	kubeconfig := server.Kubeconfig(t)
	apply := func(code int, says, args string) (patch string) {
		t.Helper()
		patched = ""
		got, out, errOut := call("", append(strings.Fields("mig apply "+args), "--kubeconfig", kubeconfig)...)
		if got != code || !strings.Contains(out+errOut, says) {
			t.Errorf("mig apply %s: exit %d, want %d and %q in the output:\n%s%s", args, got, code, says, out, errOut)
		}
		return patched
	}
	none := apply(0, "56 nvidia.com/mig-1g.10gb after the change, 8 nvidia.com/gpu now", toSlices) +
		apply(1, "write all-1g.10gb", "gpu-1 all-1g.10g") + apply(2, "did you mean gpu-1?", "gpu1 all-1g.10gb")
	refused := apply(2, "patch", toSlices+" --apply")
	refuse = false
	applied := apply(0, "gpuop verify --wait --node gpu-1", toSlices+" --apply")
	// --apply does not write if there are errors, unless --force is set
	s.Nodes[0].Labels["nvidia.com/mig.config.state"] = "pending"
	server.Add(t, "/api/v1/nodes", s.Nodes[0])
	none += apply(1, "add --force", toSlices+" --apply")
	forced := apply(1, "", toSlices+" --apply --force")
	const patch = `/api/v1/nodes/gpu-1 {"metadata":{"labels":{"nvidia.com/mig.config":"all-1g.10gb"}}}`
	if diff := cmp.Diff([]string{"", patch, patch, patch}, []string{none, refused, applied, forced}); diff != "" {
		t.Errorf("patches without --apply, rejected, with --apply and with --force (-want +got):\n%s", diff)
	}
}
