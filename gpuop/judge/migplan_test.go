package judge_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

const config = "all-1g.10gb"

const configs = `version: v1
mig-configs:
  all-disabled:
    - devices: all
      mig-enabled: false
  all-1g.10gb:
    - devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 7
  half:
    - devices: [0, 1, 2, 3]
      mig-enabled: true
      mig-devices:
        "3g.40gb": 2
  too-much:
    - devices: all
      mig-enabled: true
      mig-devices:
        "3g.40gb": 3
  a100-only:
    - device-filter: ["0x20B210DE"]
      devices: all
      mig-enabled: true
      mig-devices:
        "1g.10gb": 7
`

// idle returns a cluster with one cordoned node with eight H100 GPUs that no pod uses.
func idle() *cluster.State {
	labels := map[string]string{
		"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "1",
		"nvidia.com/gpu.memory": "81559", "nvidia.com/mig.capable": "true", "nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success",
		"nvidia.com/mig.strategy": "single", "nvidia.com/gpu.deploy.mig-manager": "true", "nvidia.com/gpu.deploy.device-plugin": "true",
	}
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1", Labels: labels}, Spec: corev1.NodeSpec{Unschedulable: true}}
	n.Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	policy := unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"mig": map[string]any{"strategy": "single"}}}}
	return &cluster.State{Namespace: "gpu-operator", Nodes: []corev1.Node{n}, ClusterPolicies: []unstructured.Unstructured{policy},
		Pods:       []corev1.Pod{holder("gpu-operator", "nvidia-mig-manager-x", func(p *corev1.Pod) { p.Labels["app"] = "nvidia-mig-manager" })},
		ConfigMaps: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "gpu-1-mig-config", Namespace: "gpu-operator"}, Data: map[string]string{"config.yaml": configs}}}}
}

func holder(namespace, name string, change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}, Spec: corev1.PodSpec{NodeName: "gpu-1", NodeSelector: map[string]string{}, Containers: []corev1.Container{{Name: "c"}}}}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	if namespace == "gpu-operator" {
		p.Spec.NodeSelector["nvidia.com/gpu.deploy.mig-manager"] = "true"
	}
	change(&p)
	return p
}

func daemon(p *corev1.Pod) {
	controller := true
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "agent", Controller: &controller}}
	p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
}

func failures(rows []check.Finding) []string {
	var out []string
	for _, v := range rows {
		if v.Severity > check.Note {
			out = append(out, v.Severity.String()+" "+v.Check.ID+" "+v.Subject)
		}
		if v.Node != "gpu-1" {
			out = append(out, "no node: "+v.Check.ID)
		}
	}
	return out
}

func labeled(name, value string) func(*cluster.State) {
	return func(s *cluster.State) { s.Nodes[0].Labels[name] = value }
}

func setPolicy(value any, path ...string) func(*cluster.State) {
	return func(s *cluster.State) {
		_ = unstructured.SetNestedField(s.ClusterPolicies[0].Object, value, append([]string{"spec"}, path...)...)
	}
}

func missing(k cluster.Kind) func(*cluster.State) {
	return func(s *cluster.State) {
		s.Missing = append(s.Missing, cluster.Missing{Kind: k, Why: cluster.Forbidden, Detail: "x may not list " + string(k)})
		switch k {
		case cluster.Pods:
			s.Pods = nil
		case cluster.ConfigMaps:
			s.ConfigMaps = nil
		}
	}
}

func TestPrepare(t *testing.T) {
	whole := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
	}
	with := func(p corev1.Pod) func(*cluster.State) {
		return func(s *cluster.State) { s.Pods = append(s.Pods, p) }
	}
	for _, c := range []struct {
		name   string
		config string
		make   func(*cluster.State)
		want   []string
		says   string
	}{
		{"nothing in the way", config, nil, nil, "56 nvidia.com/gpu after the change, 8 nvidia.com/gpu now; mig.strategy=single"},
		{"strategy mixed", config, setPolicy("mixed", "mig", "strategy"), nil, "56 nvidia.com/mig-1g.10gb"},
		{"missing sharing ConfigMap", config, setPolicy("plugin", "devicePlugin", "config", "name"), []string{"error sharing-config ConfigMap/plugin"}, "not found, although devicePlugin.config.name"},
		{"rejected sharing config", config, func(s *cluster.State) {
			setPolicy("plugin", "devicePlugin", "config", "name")(s)
			labeled("nvidia.com/device-plugin.config", "bad")(s)
			s.ConfigMaps = append(s.ConfigMaps, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plugin", Namespace: "gpu-operator"}, Data: map[string]string{"bad": "version: v2\n"}})
		}, []string{"error sharing-config ConfigMap/plugin bad", "error node-sharing-config nvidia.com/device-plugin.config"}, "the device plugin rejects"},
		{"a pod holds GPUs", config, with(holder("team", "train", whole)), []string{"error mig-pod Pod/team/train"}, "it holds 2 nvidia.com/gpu"},
		{"a pod that has ended", config, with(holder("team", "train", func(p *corev1.Pod) { whole(p); p.Status.Phase = corev1.PodSucceeded })), nil, ""},
		{"an agent without the label", config, with(holder("monitoring", "agent-x", daemon)), []string{"error mig-client Pod/monitoring/agent-x"}, "kubectl patch daemonset -n monitoring agent"},
		{"an agent with the label", config, func(s *cluster.State) {
			s.Nodes[0].Labels["nvidia.com/gpu.deploy.client"] = "true"
			with(holder("monitoring", "agent-x", func(p *corev1.Pod) { daemon(p); p.Spec.NodeSelector["nvidia.com/gpu.deploy.client"] = "true" }))(s)
		}, nil, "the MIG manager evicts it"},
		{"an agent with the label and a MIG manager too old for it", config, func(s *cluster.State) {
			setPolicy("v0.14.2", "migManager", "version")(s)
			s.Nodes[0].Labels["nvidia.com/gpu.deploy.client"] = "true"
			with(holder("monitoring", "agent-x", func(p *corev1.Pod) { daemon(p); p.Spec.NodeSelector["nvidia.com/gpu.deploy.client"] = "true" }))(s)
		}, []string{"error mig-client Pod/monitoring/agent-x"}, "kubectl delete daemonset -n monitoring agent"},
		{"an agent without access to a GPU", config, with(holder("monitoring", "agent-x", func(p *corev1.Pod) { daemon(p); p.Spec.Containers[0].Env[0].Value = "void" })), nil, ""},
		{"an agent that mounts /dev/nvidia0", config, with(holder("monitoring", "agent-x", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/dev/nvidia0"}}}}
		})), []string{"error mig-client Pod/monitoring/agent-x"}, "it mounts /dev/nvidia0"},
		{"GPUs that no entry covers", "half", nil, []string{"error mig-coverage nvidia.com/mig.config=half", "error mig-single-invalid mig.strategy=single"}, "covers GPU 4"},
		{"a device-filter for another board", "a100-only", nil, []string{"error mig-coverage nvidia.com/mig.config=a100-only"}, "covers GPU 0"},
		{"a config that does not fit", "too-much", nil, []string{"error mig-does-not-fit nvidia.com/mig.config=too-much"}, ""},
		{"a misspelled config", "all-1g.10g", nil, []string{"error mig-config ConfigMap/gpu-1-mig-config"}, "write all-1g.10gb"},
		{"missing ConfigMap", config, setPolicy("mine", "migManager", "config", "name"), []string{"error mig-config ConfigMap/mine"}, "not found in namespace gpu-operator"},
		{"a ConfigMap with another key", config, func(s *cluster.State) { s.ConfigMaps[0].Data = map[string]string{"mig.yaml": configs} }, []string{"error mig-config ConfigMap/gpu-1-mig-config"}, "no key config.yaml"},
		{"no ConfigMap yet", config, func(s *cluster.State) { s.ConfigMaps = []corev1.ConfigMap{} }, []string{"warning mig-config ConfigMap/gpu-1-mig-config"}, "56 nvidia.com/gpu"},
		{"a MIG change in progress", config, labeled("nvidia.com/mig.config.state", "pending"), []string{"error mig-under-way nvidia.com/mig.config.state"}, "gpuop verify --node gpu-1"},
		{"same config after a failed change", "all-disabled", labeled("nvidia.com/mig.config.state", "failed"), []string{"error mig-same nvidia.com/mig.config"}, "kubectl label node gpu-1 nvidia.com/mig.config-"},
		{"same config", "all-disabled", nil, nil, "nothing will happen"},
		{"a driver upgrade", config, labeled("nvidia.com/gpu-driver-upgrade-state", "drain-required"), []string{"error mig-driver-upgrade nvidia.com/gpu-driver-upgrade-state"}, ""},
		{"upgrade state left over, with a preinstalled driver", config, func(s *cluster.State) {
			labeled("nvidia.com/gpu-driver-upgrade-state", "validation-required")(s)
			labeled("nvidia.com/gpu.deploy.driver", "pre-installed")(s)
		}, nil, "56 nvidia.com/gpu"},
		{"upgrade state left over, with driver.enabled=false", config, func(s *cluster.State) {
			labeled("nvidia.com/gpu-driver-upgrade-state", "upgrade-failed")(s)
			setPolicy(false, "driver", "enabled")(s)
		}, nil, "56 nvidia.com/gpu"},
		{"operand left paused for two changes", config, labeled("nvidia.com/gpu.deploy.dcgm", "paused-for-mig-change_paused-for-driver-upgrade"), []string{"error mig-paused nvidia.com/gpu.deploy.dcgm"}, "=true --overwrite"},
		{"operand left paused", config, labeled("nvidia.com/gpu.deploy.dcgm", "paused-for-mig-change"), []string{"error mig-paused nvidia.com/gpu.deploy.dcgm"}, "=true --overwrite"},
		{"GPUs without MIG", config, labeled("nvidia.com/mig.capable", "false"), []string{"error mig-capable nvidia.com/mig.capable"}, ""},
		{"no MIG manager on the node", config, labeled("nvidia.com/gpu.deploy.mig-manager", ""), []string{"error mig-manager nvidia.com/gpu.deploy.mig-manager"}, ""},
		{"no pod of the MIG manager", config, func(s *cluster.State) { s.Pods = []corev1.Pod{} }, []string{"error mig-manager nvidia.com/gpu.deploy.mig-manager"}, ""},
		{"not cordoned", config, func(s *cluster.State) { s.Nodes[0].Spec.Unschedulable = false }, nil, "kubectl cordon gpu-1"},
		{"pods forbidden", config, missing(cluster.Pods), []string{"warning unread list pods"}, "x may not list pods"},
		{"ConfigMaps forbidden", config, missing(cluster.ConfigMaps), []string{"warning unread list configmaps"}, "56 nvidia.com/gpu"},
		{"labels without the GPU model", config, labeled("nvidia.com/gpu.product", ""), []string{"warning mig-predicted nvidia.com/gpu.product"}, "cannot predict"},
		{"time-sliced", config, func(s *cluster.State) {
			setPolicy("plugin", "devicePlugin", "config", "name")(s)
			setPolicy("two", "devicePlugin", "config", "default")(s)
			s.ConfigMaps = append(s.ConfigMaps, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "plugin", Namespace: "gpu-operator"},
				Data: map[string]string{"two": "version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: 2\n"}})
		}, nil, "112 nvidia.com/gpu"},
		{"labels of the previous change", "all-disabled", func(s *cluster.State) {
			maps.Copy(s.Nodes[0].Labels, map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-7g.80gb", "nvidia.com/gpu.count": "7", "nvidia.com/mig.config": config})
		}, []string{"warning mig-predicted nvidia.com/gpu.product"}, "does not say how many each GPU has"},
		{"from MIG back to whole GPUs", "all-disabled", func(s *cluster.State) {
			maps.Copy(s.Nodes[0].Labels, map[string]string{"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "nvidia.com/gpu.count": "56", "nvidia.com/mig.config": config})
			s.Nodes[0].Status.Allocatable = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("56")}
		}, nil, "8 nvidia.com/gpu after the change, 56 nvidia.com/gpu now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := idle()
			if c.make != nil {
				c.make(s)
			}
			rows, err := judge.Prepare(s, options, "gpu-1", c.config)
			if err != nil {
				t.Fatal(err)
			}
			got := failures(evidenced(t, rows))
			// each GPU can have the same finding; keep one of them
			for i := len(got) - 1; i > 0; i-- {
				if got[i] == got[i-1] {
					got = append(got[:i], got[i+1:]...)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("warnings and errors (-want +got):\n%s", diff)
			}
			if said := fmt.Sprint(rows); !strings.Contains(said, c.says) {
				t.Errorf("findings = %s, want one that contains %q", said, c.says)
			}
		})
	}
}

func TestPrepareNamesTheNearestNode(t *testing.T) {
	_, err := judge.Prepare(idle(), options, "gpu1", config)
	if !errors.Is(err, judge.ErrNode) || !strings.Contains(err.Error(), "did you mean gpu-1?") {
		t.Errorf("error = %v, want ErrNode that suggests gpu-1", err)
	}
}
