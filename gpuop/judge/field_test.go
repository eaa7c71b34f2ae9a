package judge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// scheduled acts like the DaemonSet controller. It sets the number of pods of each DaemonSet to the number of nodes
// that match the node selector, and removes pods from other nodes.
func scheduled(s *cluster.State) {
	for i := range s.DaemonSets {
		d, nodes := &s.DaemonSets[i], int32(0)
		for k := range s.Nodes {
			fits := true
			for key, value := range d.Spec.Template.Spec.NodeSelector {
				if have, found := s.Nodes[k].Labels[key]; !found || have != value {
					fits = false
				}
			}
			if fits {
				nodes++
			} else {
				s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool {
					return p.Spec.NodeName == s.Nodes[k].Name && len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Name == d.Name
				})
			}
		}
		d.Status.DesiredNumberScheduled, d.Status.CurrentNumberScheduled = nodes, nodes
		d.Status.NumberReady, d.Status.NumberAvailable, d.Status.UpdatedNumberScheduled = nodes, nodes, nodes
	}
}

// machines reserves both nodes for virtual machines: by the label if workload is not empty, otherwise by the default.
func machines(s *cluster.State, workload string) {
	setting(s, true, "sandboxWorkloads", "enabled")
	for _, name := range []string{"gpu-1", "gpu-2"} {
		n := node(s, name)
		for key := range n.Labels {
			if strings.HasPrefix(key, "nvidia.com/") && key != "nvidia.com/gpu.present" {
				delete(n.Labels, key)
			}
		}
		if workload != "" {
			label(n, "nvidia.com/gpu.workload.config", workload)
		}
		label(n, "nvidia.com/gpu.deploy.vfio-manager", "true", "nvidia.com/gpu.deploy.sandbox-validator", "true", "nvidia.com/gpu.deploy.sandbox-device-plugin", "true")
		offers(n, map[string]string{"nvidia.com/GA100_A100_SXM4_80GB": "8"})
	}
	scheduled(s)
}

// own labels nodes as having a preinstalled driver, as the driver manager does, and removes their driver pods.
func own(s *cluster.State, names ...string) {
	for _, name := range names {
		label(node(s, name), "nvidia.com/gpu.deploy.driver", "pre-installed")
	}
	scheduled(s)
}

// driverPool adds a driver DaemonSet for the nodes labeled key=value, and makes it the owner of their driver pods.
// NVIDIADrivers, precompiled drivers and OpenShift's driver toolkit use such DaemonSets.
func driverPool(s *cluster.State, name, key, value string) {
	d := set(s, "nvidia-driver-daemonset").DeepCopy()
	d.Name, d.UID = name, ""
	d.Spec.Template.Spec.NodeSelector[key] = value
	s.DaemonSets = append(s.DaemonSets, *d)
	for i := range s.Pods {
		p := &s.Pods[i]
		if len(p.OwnerReferences) == 0 || p.OwnerReferences[0].Name != "nvidia-driver-daemonset" {
			continue
		}
		if node(s, p.Spec.NodeName).Labels[key] == value {
			p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = name, ""
		}
	}
}

// onlyPools removes the cluster-wide driver DaemonSet and its pods, so that only those of node pools are left.
func onlyPools(s *cluster.State) {
	s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "nvidia-driver-daemonset" })
	s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool {
		return len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Name == "nvidia-driver-daemonset"
	})
	scheduled(s)
}

// noSandbox gives a pod the RuntimeClass nvidia and the status it has before the kubelet creates its sandbox. The
// status starts at since.
func noSandbox(p *corev1.Pod, since time.Time) {
	class := "nvidia"
	p.Spec.RuntimeClassName = &class
	p.CreationTimestamp = metav1.NewTime(since)
	inInit(p, p.Status.InitContainerStatuses[0].Name, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})
	p.Status.Conditions = []corev1.PodCondition{
		{Type: "PodReadyToStartContainers", Status: "False", LastTransitionTime: metav1.NewTime(since)},
		{Type: "Initialized", Status: "False", Reason: "ContainersNotInitialized", LastTransitionTime: metav1.NewTime(since)},
		{Type: "Ready", Status: "False", Reason: "ContainersNotReady", LastTransitionTime: metav1.NewTime(since)},
		{Type: "PodScheduled", Status: "True", LastTransitionTime: metav1.NewTime(since)},
	}
}

// withRuntimeClass lists the operands whose pods use the RuntimeClass nvidia.
var withRuntimeClass = []string{"nvidia-operator-validator", "nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"}

func driverOf(name, state, kind, reason string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": name},
		"status": map[string]any{"state": state, "conditions": []any{
			map[string]any{"type": kind, "status": "True", "reason": reason, "message": "conflicting NVIDIADriver NodeSelectors found for resource: " + name, "lastTransitionTime": "2026-11-22T11:00:00Z"},
		}},
	}}
}

func TestStatesOfRealClusters(t *testing.T) {
	hour := at.Add(-time.Hour)
	const both = "paused-for-mig-change_paused-for-driver-upgrade"
	for name, test := range map[string]struct {
		change func(*cluster.State)
		want   []row
		not    []row // findings that must not exist; without a severity, words match findings of every severity
	}{
		"missing preinstalled driver": {func(s *cluster.State) {
			own(s, "gpu-1")
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
		}, []row{
			{"operand", "gpu-1", check.Error, "is pre-installed"},
			{"operand", "gpu-1", check.Error, "nvidia.com/gpu.deploy.driver=true --overwrite"},
			{"operand", "gpu-1", check.Error, "driver"},
		}, nil},
		"missing driver with driver.enabled=false": {func(s *cluster.State) {
			setting(s, false, "driver", "enabled")
			s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "nvidia-driver-daemonset" })
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
		}, []row{{"operand", "gpu-1", check.Error, "driver.enabled is false"}, {"operand", "gpu-1", check.Error, "driver"}}, nil},
		"no driver DaemonSet for the node's operating system": {func(s *cluster.State) {
			const key = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION"
			label(node(s, "gpu-1"), key, "418.94.202502101302-0")
			label(node(s, "gpu-2"), key, "418.94.202501221327-0")
			driverPool(s, "nvidia-driver-daemonset-418.94.202501221327-0", key, "418.94.202501221327-0")
			onlyPools(s)
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
		}, []row{
			{"operand", "gpu-1", check.Error, "OSTREE_VERSION=418.94.202501221327-0"},
			{"operand", "gpu-1", check.Error, "418.94.202502101302-0"},
			{"operand", "gpu-1", check.Error, "driver"},
		}, nil},
		"driver pool without nodes": {func(s *cluster.State) {
			driverPool(s, "nvidia-gpu-driver-gold", "pool", "gold")
			scheduled(s)
		}, []row{{"daemonset", "", check.Note, "nvidia-gpu-driver-gold"}}, nil},
		"no runtime for nvidia": {func(s *cluster.State) {
			for _, name := range withRuntimeClass {
				noSandbox(pod(s, name, "gpu-1"), hour)
			}
		}, []row{
			{"operand", "gpu-1", check.Error, "RuntimeClass nvidia"},
			{"operand", "gpu-1", check.Error, "gpuop node"},
			{"operand", "gpu-1", check.Error, "operator-validator"},
		}, []row{{id: "operand", node: "gpu-1", words: "the driver to be loaded"}, {id: "operand", node: "gpu-1", words: "toolkit-ready"}}},
		"no runtime for nvidia while the toolkit starts": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
			inInit(pod(s, "nvidia-driver-daemonset", "gpu-1"), "k8s-driver-manager", running(hour))
			for _, name := range withRuntimeClass {
				noSandbox(pod(s, name, "gpu-1"), hour)
			}
		}, []row{
			{"operand", "gpu-1", check.Waiting, "DaemonSets wait for it"},
			{"operand", "gpu-1", check.Waiting, "driver"},
		}, []row{{id: "operand", node: "gpu-1", state: check.Error}}},
		"missing sandbox, with sandboxes of other pods": {func(s *cluster.State) {
			noSandbox(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), hour)
			pod(s, "nvidia-dcgm-exporter", "gpu-1").Spec.RuntimeClassName = new("nvidia")
		}, []row{{"operand", "gpu-1", check.Waiting, "a volume or the network"}}, []row{{id: "operand", node: "gpu-1", words: "no handler"}}},
		"no runtime for nvidia yet": {func(s *cluster.State) {
			noSandbox(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), at.Add(-20*time.Second))
		}, []row{{"operand", "gpu-1", check.Waiting, "RuntimeClass nvidia"}}, nil},
		"the first image is being pulled": {func(s *cluster.State) {
			p := pod(s, "nvidia-device-plugin-daemonset", "gpu-1")
			noSandbox(p, hour)
			p.Status.Conditions[0].Status = "True"
		}, []row{{"operand", "gpu-1", check.Waiting, "image"}}, []row{{id: "operand", node: "gpu-1", words: "RuntimeClass"}}},
		"missing ConfigMap of a volume": {func(s *cluster.State) {
			p := pod(s, "nvidia-device-plugin-daemonset", "gpu-1")
			noSandbox(p, hour)
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "metrics-of-ours"}}}})
		}, []row{{"operand", "gpu-1", check.Error, "ConfigMap/metrics-of-ours"}}, []row{{id: "operand", node: "gpu-1", words: "RuntimeClass"}}},
		"paused twice": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/mig.config.state", "pending", "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required", "nvidia.com/gpu.deploy.device-plugin", both, "nvidia.com/gpu.deploy.client", both)
			scheduled(s)
		}, []row{
			{"node-operand-paused", "gpu-1", check.Waiting, "until the driver upgrade ends"},
			{"node-operand-paused", "gpu-1", check.Waiting, "k8s-driver-manager"},
			{"node-operand-paused", "gpu-1", check.Waiting, "2 operands are paused this way"},
		}, []row{{id: "operand", node: "gpu-1", words: both}}},
		"cordoned by the driver upgrade": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "drain-required")
			node(s, "gpu-1").Spec.Unschedulable = true
		}, []row{{"node-ready", "gpu-1", check.Note, "cordoned by the driver upgrade"}, {"driver-upgrade", "gpu-1", check.Waiting, "is in progress (drain-required)"}}, []row{{id: "node-ready", node: "gpu-1", words: "kubectl uncordon"}}},
		"cordoned after a failed driver upgrade": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "upgrade-failed")
			node(s, "gpu-1").Spec.Unschedulable = true
		}, []row{{"driver-upgrade", "gpu-1", check.Error, "failed"}}, []row{{id: "node-ready", node: "gpu-1", words: "kubectl uncordon"}}},
		"cordoned after the driver upgrade": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "upgrade-done")
			node(s, "gpu-1").Spec.Unschedulable = true
		}, []row{{"node-ready", "gpu-1", check.Note, "kubectl uncordon gpu-1"}}, nil},
		"a value before the pause": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu.deploy.device-plugin", "custom_paused-for-driver-upgrade", "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required")
			scheduled(s)
		}, []row{{"node-operand-paused", "gpu-1", check.Waiting, "until the driver upgrade ends"}}, nil},
		"paused for a failed vGPU change": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu.deploy.device-plugin", "paused-for-vgpu-change", "nvidia.com/vgpu.config", "A100-40C", "nvidia.com/vgpu.config.state", "failed")
			scheduled(s)
		}, []row{
			{"node-operand-paused", "gpu-1", check.Error, "has ended (failed)"},
		}, nil},
		"the MIG manager is paused for the driver": {func(s *cluster.State) {
			for _, name := range []string{"gpu-1", "gpu-2"} {
				label(node(s, name), "nvidia.com/gpu.deploy.mig-manager", "paused-for-driver-upgrade", "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required")
			}
			scheduled(s)
		}, []row{{"daemonset", "", check.Waiting, "nvidia-mig-manager"}}, nil},
		"upgrade state left over from the operator's driver": {func(s *cluster.State) {
			setting(s, false, "driver", "enabled")
			s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "nvidia-driver-daemonset" })
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "validation-required")
			offers(node(s, "gpu-1"), nil)
		}, []row{
			{"driver-upgrade", "gpu-1", check.Warning, "kubectl label node gpu-1 nvidia.com/gpu-driver-upgrade-state-"},
			{"node-no-gpu-resource", "gpu-1", check.Error, ""},
		}, nil},
		"failed upgrade left over from the operator's driver": {func(s *cluster.State) {
			own(s, "gpu-1")
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "upgrade-failed")
		}, []row{{"driver-upgrade", "gpu-1", check.Warning, "left over"}}, nil},
		"node excluded from driver upgrades": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "upgrade-required", "nvidia.com/gpu-driver-upgrade.skip", "true")
		}, []row{{"driver-upgrade", "gpu-1", check.Note, "nvidia.com/gpu-driver-upgrade.skip-"}}, nil},
		"NVIDIADrivers that select the same node": {func(s *cluster.State) {
			setting(s, true, "driver", "useNvidiaDriverCRD")
			s.NVIDIADrivers = []unstructured.Unstructured{driverOf("gold", "notReady", "Error", "ConflictingNodeSelector")}
		}, []row{{"nvidia-driver", "", check.Error, "conflicting NVIDIADriver NodeSelectors"}}, nil},
		// before v26.7.0 the operator did not update the state
		"NVIDIADrivers that select the same node, with state ready": {func(s *cluster.State) {
			setting(s, true, "driver", "useNvidiaDriverCRD")
			s.NVIDIADrivers = []unstructured.Unstructured{driverOf("gold", "ready", "Error", "ConflictingNodeSelector")}
		}, []row{{"nvidia-driver", "", check.Error, "kubectl get nvidiadrivers"}}, nil},
		"device plugin waits for the MPS daemon": {func(s *cluster.State) {
			crash(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"))
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "plugin-validation", running(hour))
			label(node(s, "gpu-1"), "nvidia.com/mps.capable", "true")
			d := set(s, "nvidia-device-plugin-daemonset").DeepCopy()
			d.Name = "nvidia-device-plugin-mps-control-daemon"
			d.Spec.Template.Spec.NodeSelector["nvidia.com/mps.capable"] = "true"
			d.Status.DesiredNumberScheduled, d.Status.NumberUnavailable = 1, 1
			p := *pod(s, "nvidia-device-plugin-daemonset", "gpu-1").DeepCopy()
			p.Name, p.OwnerReferences[0].Name = "mps-1", d.Name
			s.Pods = append(s.Pods, p)
			s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(o appsv1.DaemonSet) bool { return o.Name == d.Name })
			s.DaemonSets = append(s.DaemonSets, *d)
		}, []row{{"operand", "gpu-1", check.Error, "mps-control-daemon"}, {"operand", "gpu-1", check.Error, " waits for it"}}, nil},
		"failed CUDA workload of the validator": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "cuda-validation", running(hour))
			s.Pods = append(s.Pods, workload("nvidia-cuda-validator", "gpu-1"))
		}, []row{
			{"operand", "gpu-1", check.Error, "nvidia-cuda-validator-x: init container cuda-validation is in CrashLoopBackOff"},
			{"operand", "gpu-1", check.Error, "kubectl logs -n gpu-operator nvidia-cuda-validator-x -c cuda-validation --previous"},
		}, nil},
		"no free GPU for the validator's workload": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "plugin-validation", running(hour))
			p := workload("nvidia-device-plugin-validator", "gpu-1")
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfnvidia.com/gpu", Message: "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu"}
			s.Pods = append(s.Pods, p)
		}, []row{{"operand", "gpu-1", check.Error, "OutOfnvidia.com/gpu"}}, nil},
		"missing sharing ConfigMap": {func(s *cluster.State) {
			policyState(s, "notReady", "Error", "OperandNotReady", "ClusterPolicy is not ready; states not ready: [state-device-plugin]")
			setting(s, "nowhere", "devicePlugin", "config", "name")
		}, []row{{"sharing-config", "", check.Error, "nowhere"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rows := verifiedWith(t, test.change, test.want)
			for _, not := range test.not {
				if i := slices.IndexFunc(rows, func(v check.Finding) bool {
					return v.Check.ID == not.id && v.Node == not.node && (not.state == 0 && not.words != "" || v.Severity == not.state) && strings.Contains(v.Reason, not.words)
				}); i >= 0 {
					t.Errorf("unwanted finding of check %s, severity %s: %s", not.id, rows[i].Severity, rows[i].Reason)
				}
			}
		})
	}
}

// workload returns a pod that the validator has started on a node, with an init container that crashes. It belongs to
// the ClusterPolicy, not to the DaemonSet.
func workload(app, on string) corev1.Pod {
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: app + "-x", Namespace: "gpu-operator", Labels: map[string]string{"app": app}, CreationTimestamp: metav1.NewTime(at.Add(-time.Minute)), OwnerReferences: []metav1.OwnerReference{{APIVersion: "nvidia.com/v1", Kind: "ClusterPolicy", Name: "cluster-policy"}}},
		Spec:       corev1.PodSpec{NodeName: on},
		Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{
			Name: "cuda-validation", RestartCount: 6,
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}},
		}}},
	}
}
