package judge_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/judge"
)

var update = flag.Bool("update", false, "write the golden files")

var options = judge.Options{Table: chart.Load()}

// verified returns the findings of Verify, and checks their evidence.
func verified(t *testing.T, s *cluster.State) []check.Finding {
	t.Helper()
	return evidenced(t, judge.Verify(s, options))
}

// TestEvidenceOfANetworkDevice checks that evidence shows the allocatable and the capacity of a network device.
func TestEvidenceOfANetworkDevice(t *testing.T) {
	s := healthy(t)
	status := &node(s, "gpu-2").Status
	status.Capacity["nvidia.com/roce"], status.Allocatable["nvidia.com/roce"] = resource.MustParse("2"), resource.MustParse("1")
	for _, v := range verified(t, s) {
		if v.Subject == "nvidia.com/roce" && v.Evidence.Text == "nvidia.com/roce: allocatable 1, capacity 2" {
			return
		}
	}
	t.Error("no finding has the allocatable and the capacity of nvidia.com/roce as evidence")
}

// evidenced checks that every finding has a subject, a reason and evidence. Errors and waiting findings must have a
// fix.
func evidenced(t *testing.T, rows []check.Finding) []check.Finding {
	t.Helper()
	for _, v := range rows {
		if e := v.Evidence; v.Subject == "" || v.Reason == "" || e.Kind == "" || e.Object == "" || e.Text == "" {
			t.Errorf("finding = %+v, want a subject, a reason and evidence with kind, object and text", v)
		}
		if (v.Severity == check.Error || v.Severity == check.Waiting) && v.Fix == "" {
			t.Errorf("%s %s has severity %s but no fix: %s", v.Check.ID, v.Subject, v.Severity, v.Reason)
		}
	}
	return rows
}

// row is an expected finding. The key has the severity, which may be absent, the check ID and the node. The value is a
// part of the subject, reason, fix or age.
type row map[string]string

func (want row) in(rows []check.Finding) bool {
	severities := [...]string{"ok", "note", "waiting", "unknown", "warning", "error"}
	for key, words := range want {
		return slices.ContainsFunc(rows, func(v check.Finding) bool {
			age := "for an unknown time"
			if !v.Since.IsZero() {
				age = "for " + at.Sub(v.Since).String()
			}
			have := strings.TrimSpace(fmt.Sprintf(" %s %s %s", severities[v.Severity], v.Check.ID, v.Node))
			return (have == key || strings.HasSuffix(have, " "+key)) &&
				strings.Contains(strings.Join([]string{v.Subject, v.Reason, v.Fix, age}, " "), words)
		})
	}
	return false
}

func text(rows []check.Finding) string {
	var out bytes.Buffer
	tree := check.Report{Judged: true, At: at, Findings: slices.Clone(rows)}
	tree.Sort()
	_ = tree.WriteText(&out, check.Style{}, true)
	return out.String()
}

func TestVerifyOfHealthyClusters(t *testing.T) {
	changes := map[string]func(*cluster.State){
		"a node for virtual machines": func(s *cluster.State) {
			setting(s, true, "sandboxWorkloads", "enabled")
			n := node(s, "gpu-1")
			unlabel(n)
			label(n, "nvidia.com/gpu.present", "true", "nvidia.com/gpu.workload.config", "vm-passthrough",
				"nvidia.com/gpu.deploy.vfio-manager", "true")
			offers(n, map[string]string{"nvidia.com/GA100_A100_SXM4_80GB": "8"})
		},
		"toleration of everything":            taintAll,
		"all nodes have preinstalled drivers": func(s *cluster.State) { own(s, "gpu-1", "gpu-2") },
		"one node has a preinstalled driver":  func(s *cluster.State) { own(s, "gpu-1") },
		"all nodes for virtual machines":      func(s *cluster.State) { machines(s, "vm-passthrough") },
		"default workload is virtual machines": func(s *cluster.State) {
			setting(s, "vm-passthrough", "sandboxWorkloads", "defaultWorkload")
			machines(s, "")
		},
		"drivers by kernel": func(s *cluster.State) {
			label(node(s, "gpu-1"), "feature.node.kubernetes.io/kernel-version.full", "5.15.0-160-generic")
			label(node(s, "gpu-2"), "feature.node.kubernetes.io/kernel-version.full", "5.15.0-161-generic")
			driverPool(s, "nvidia-driver-daemonset-5.15.0-160-generic-ubuntu22.04", "feature.node.kubernetes.io/kernel-version.full", "5.15.0-160-generic")
			driverPool(s, "nvidia-driver-daemonset-5.15.0-161-generic-ubuntu22.04", "feature.node.kubernetes.io/kernel-version.full", "5.15.0-161-generic")
			onlyPools(s)
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			change(s)
			allOK(t, s)
		})
	}
	file := load[row](t, "verify.yaml")
	for _, c := range file.Healthy {
		t.Run(c.Name, func(t *testing.T) { allOK(t, healthy(t, file.Bases[c.Base], c.Patch)) })
	}
}

// allOK checks that all findings are OK, without a fix and without a time, so that healthy nodes share them.
func allOK(t *testing.T, s *cluster.State) {
	t.Helper()
	rows := verified(t, s)
	for _, v := range rows {
		if v.Severity != check.OK || v.Fix != "" || !v.Since.IsZero() {
			t.Errorf("finding = %+v, want it to be ok, without a fix and a time", v)
		}
	}
	if len(rows) < 10 {
		t.Errorf("findings = %d, want at least 10", len(rows))
	}
}

// taintAll adds taints to gpu-1, and lets the pods of every DaemonSet tolerate everything.
func taintAll(s *cluster.State) {
	n := node(s, "gpu-1")
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "team", Value: "ml", Effect: "NoExecute"}, corev1.Taint{Key: "node.kubernetes.io/memory-pressure", Effect: "NoSchedule"}, corev1.Taint{Key: "soft", Effect: "PreferNoSchedule"})
	for i := range s.DaemonSets {
		s.DaemonSets[i].Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}}
	}
}

// TestStates breaks a healthy cluster. It expects every finding in want and none of those in not. The healthy cluster
// must not already have a finding in want, unless that is OK.
func TestStates(t *testing.T) {
	before := verified(t, healthy(t))
	try := func(name string, s *cluster.State, want, not []row) {
		t.Run(name, func(t *testing.T) {
			rows := verified(t, s)
			for _, w := range want {
				if !w.in(rows) {
					t.Errorf("missing finding %q in\n%s", w, text(rows))
				}
				if w.in(before) && !strings.HasPrefix(fmt.Sprint(w), "map[ok ") {
					t.Errorf("the healthy cluster has the finding %q, want it only after the change", w)
				}
			}
			for _, w := range not {
				if w.in(rows) {
					t.Errorf("unwanted finding %q in\n%s", w, text(rows))
				}
			}
		})
	}
	file := load[row](t, "verify.yaml")
	for _, c := range file.States {
		try(c.Name, healthy(t, file.Bases[c.Base], c.Patch), c.Want, c.Not)
	}
	hour := at.Add(-time.Hour)
	withRuntimeClass := []string{"nvidia-operator-validator", "nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"}
	const both = "paused-for-mig-change_paused-for-driver-upgrade"
	for name, c := range map[string]struct {
		change    func(*cluster.State)
		want, not []row
	}{
		"a driver image for another operating system": {func(s *cluster.State) {
			p := pod(s, "nvidia-driver-daemonset", "gpu-2")
			crash(p)
			node(s, "gpu-2").Status.NodeInfo.OSImage = "Ubuntu 22.04.5 LTS"
			p.Spec.Containers[0].Image = "registry.example.com:5000/nvidia/driver:580.105.08-rhel9.6"
		}, []row{{"error operand gpu-2": "its image is for rhel9.6, but the node runs ubuntu 22.04: container nvidia-driver-ctr is in CrashLoopBackOff"}}, nil},
		"no NFD": {func(s *cluster.State) {
			for i := range s.Nodes {
				for name := range s.Nodes[i].Labels {
					if strings.HasPrefix(name, "feature.node.kubernetes.io/") {
						delete(s.Nodes[i].Labels, name)
					}
				}
			}
		}, []row{{"warning gpu-nodes": "cannot find new GPU nodes"}}, nil},
		"node without the operator's label": {func(s *cluster.State) {
			n := node(s, "gpu-1")
			unlabel(n)
			offers(n, nil)
		}, []row{{"error gpu-present gpu-1": "the operator has not labeled the node"}}, nil},
		"driver crashes, the others wait": {func(s *cluster.State) {
			s.ClusterPolicies[0].Object["status"] = map[string]any{"state": "notReady"}
			crash(pod(s, "nvidia-driver-daemonset", "gpu-1"))
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(at.Add(-time.Hour)))
			inInit(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), "toolkit-validation", running(at.Add(-time.Hour)))
			offers(node(s, "gpu-1"), nil)
			d := set(s, "nvidia-driver-daemonset")
			d.Status.NumberReady, d.Status.NumberAvailable, d.Status.NumberUnavailable = 1, 1, 1
		}, []row{
			{"error operand gpu-1": "2 DaemonSets wait for it"},
			{"error operand gpu-1": "CrashLoopBackOff after 14 restarts: back-off 5m0s restarting failed container; it ended with exit code 1 (Error)"},
			{"error operand gpu-1": "--previous"},
		}, nil},
		"driver is being built": {func(s *cluster.State) {
			p := pod(s, "nvidia-driver-daemonset", "gpu-1")
			p.Status.ContainerStatuses[0].Ready, p.Status.ContainerStatuses[0].State = false, running(at.Add(-2*time.Minute))
			inInit(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), "toolkit-validation", running(at.Add(-time.Minute)))
			offers(node(s, "gpu-1"), nil)
		}, []row{
			{"waiting operand gpu-1": " waits for it"},
		}, nil},
		"validator waits for the plugin": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "plugin-validation", running(at))
			crash(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"))
		}, []row{{"error operand gpu-1": "device-plugin"}}, nil},
		"validator waits for the toolkit": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "toolkit-validation", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "RunContainerError", Message: `no runtime for "nvidia" is configured`}})
		}, []row{{"error operand gpu-1": `init container toolkit-validation is in RunContainerError after 0 restarts: no runtime for "nvidia" is configured: it waits for the container toolkit`}}, nil},
		"init image cannot be pulled": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-device-plugin-daemonset", "gpu-2"), "config-manager-init", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}})
		}, []row{{"error operand gpu-2": "init container config-manager-init cannot get its image nvcr.io/nvidia/gpu-operator:v26.7.0"}}, nil},
		"terminating pod listed before its replacement": {func(s *cluster.State) {
			now := metav1.NewTime(at)
			p := pod(s, "nvidia-dcgm-exporter", "gpu-2")
			young := p.DeepCopy()
			p.DeletionTimestamp = &now
			crash(young)
			s.Pods = append(s.Pods, *young)
		}, []row{{"error operand gpu-2": "dcgm-exporter container nvidia-dcgm-exporter is in CrashLoopBackOff"}}, nil},
		"terminating pod listed after its replacement": {func(s *cluster.State) {
			now := metav1.NewTime(at)
			p := pod(s, "nvidia-dcgm-exporter", "gpu-2")
			old := p.DeepCopy()
			old.DeletionTimestamp = &now
			crash(p)
			s.Pods = append(s.Pods, *old)
		}, []row{{"error operand gpu-2": "dcgm-exporter container nvidia-dcgm-exporter is in CrashLoopBackOff"}}, nil},
		"missing preinstalled driver": {func(s *cluster.State) {
			own(s, "gpu-1")
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
		}, []row{
			{"error operand gpu-1": "is pre-installed"},
			{"error operand gpu-1": "nvidia.com/gpu.deploy.driver=true --overwrite"},
			{"error operand gpu-1": "driver"},
		}, nil},
		"missing driver with driver.enabled=false": {func(s *cluster.State) {
			setting(s, false, "driver", "enabled")
			s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Name == "nvidia-driver-daemonset" })
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
		}, []row{{"error operand gpu-1": "driver.enabled is false"}, {"error operand gpu-1": "driver"}}, nil},
		"no driver DaemonSet for the node's operating system": {func(s *cluster.State) {
			const key = "feature.node.kubernetes.io/system-os_release.OSTREE_VERSION"
			label(node(s, "gpu-1"), key, "418.94.202502101302-0")
			label(node(s, "gpu-2"), key, "418.94.202501221327-0")
			driverPool(s, "nvidia-driver-daemonset-418.94.202501221327-0", key, "418.94.202501221327-0")
			onlyPools(s)
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
		}, []row{
			{"error operand gpu-1": "OSTREE_VERSION=418.94.202501221327-0"},
			{"error operand gpu-1": "418.94.202502101302-0"},
			{"error operand gpu-1": "driver"},
		}, nil},
		"driver pool without nodes": {func(s *cluster.State) {
			driverPool(s, "nvidia-gpu-driver-gold", "pool", "gold")
			scheduled(s)
		}, []row{{"note daemonset": "nvidia-gpu-driver-gold"}}, nil},
		"no runtime for nvidia": {func(s *cluster.State) {
			for _, name := range withRuntimeClass {
				noSandbox(pod(s, name, "gpu-1"), hour)
			}
		}, []row{
			{"error operand gpu-1": "RuntimeClass nvidia"},
			{"error operand gpu-1": "gpuop node"},
			{"error operand gpu-1": "operator-validator"},
		}, []row{{"operand gpu-1": "the driver to be loaded"}, {"operand gpu-1": "toolkit-ready"}}},
		"no runtime for nvidia while the toolkit starts": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(hour))
			inInit(pod(s, "nvidia-driver-daemonset", "gpu-1"), "k8s-driver-manager", running(hour))
			for _, name := range withRuntimeClass {
				noSandbox(pod(s, name, "gpu-1"), hour)
			}
		}, []row{
			{"waiting operand gpu-1": "DaemonSets wait for it"},
			{"waiting operand gpu-1": "driver"},
		}, []row{{"error operand gpu-1": ""}}},
		"missing sandbox, with sandboxes of other pods": {func(s *cluster.State) {
			noSandbox(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), hour)
			pod(s, "nvidia-dcgm-exporter", "gpu-1").Spec.RuntimeClassName = new("nvidia")
		}, []row{{"waiting operand gpu-1": "a volume or the network"}}, []row{{"operand gpu-1": "no handler"}}},
		"no runtime for nvidia yet": {func(s *cluster.State) {
			noSandbox(pod(s, "nvidia-device-plugin-daemonset", "gpu-1"), at.Add(-20*time.Second))
		}, []row{{"waiting operand gpu-1": "RuntimeClass nvidia"}}, nil},
		"the first image is being pulled": {func(s *cluster.State) {
			p := pod(s, "nvidia-device-plugin-daemonset", "gpu-1")
			noSandbox(p, hour)
			p.Status.Conditions[0].Status = "True"
		}, []row{{"waiting operand gpu-1": "image"}}, []row{{"operand gpu-1": "RuntimeClass"}}},
		"missing ConfigMap of a volume": {func(s *cluster.State) {
			p := pod(s, "nvidia-device-plugin-daemonset", "gpu-1")
			noSandbox(p, hour)
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "metrics-of-ours"}}}})
		}, []row{{"error operand gpu-1": "ConfigMap/metrics-of-ours"}}, []row{{"operand gpu-1": "RuntimeClass"}}},
		"paused twice": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/mig.config.state", "pending", "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required", "nvidia.com/gpu.deploy.device-plugin", both, "nvidia.com/gpu.deploy.client", both)
			scheduled(s)
		}, []row{
			{"waiting node-operand-paused gpu-1": "until the driver upgrade ends"},
			{"waiting node-operand-paused gpu-1": "k8s-driver-manager"},
			{"waiting node-operand-paused gpu-1": "2 operands are paused this way"},
		}, []row{{"operand gpu-1": both}}},
		"a value before the pause": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu.deploy.device-plugin", "custom_paused-for-driver-upgrade", "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required")
			scheduled(s)
		}, []row{{"waiting node-operand-paused gpu-1": "until the driver upgrade ends"}}, nil},
		"paused for a failed vGPU change": {func(s *cluster.State) {
			label(node(s, "gpu-1"), "nvidia.com/gpu.deploy.device-plugin", "paused-for-vgpu-change", "nvidia.com/vgpu.config", "A100-40C", "nvidia.com/vgpu.config.state", "failed")
			scheduled(s)
		}, []row{
			{"error node-operand-paused gpu-1": "has ended (failed)"},
		}, nil},
		"the MIG manager is paused for the driver": {func(s *cluster.State) {
			for _, name := range []string{"gpu-1", "gpu-2"} {
				label(node(s, name), "nvidia.com/gpu.deploy.mig-manager", "paused-for-driver-upgrade", "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required")
			}
			scheduled(s)
		}, []row{{"waiting daemonset": "nvidia-mig-manager"}}, nil},
		"failed upgrade left over from the operator's driver": {func(s *cluster.State) {
			own(s, "gpu-1")
			label(node(s, "gpu-1"), "nvidia.com/gpu-driver-upgrade-state", "upgrade-failed")
		}, []row{{"warning driver-upgrade gpu-1": "left over"}}, nil},
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
		}, []row{{"error operand gpu-1": "mps-control-daemon"}, {"error operand gpu-1": " waits for it"}}, nil},
		"failed CUDA workload of the validator": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "cuda-validation", running(hour))
			s.Pods = append(s.Pods, workload("nvidia-cuda-validator", "gpu-1"))
		}, []row{
			{"error operand gpu-1": "nvidia-cuda-validator-x: init container cuda-validation is in CrashLoopBackOff"},
			{"error operand gpu-1": "kubectl logs -n gpu-operator nvidia-cuda-validator-x -c cuda-validation --previous"},
		}, nil},
		"no free GPU for the validator's workload": {func(s *cluster.State) {
			inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "plugin-validation", running(hour))
			p := workload("nvidia-device-plugin-validator", "gpu-1")
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfnvidia.com/gpu", Message: "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu"}
			s.Pods = append(s.Pods, p)
		}, []row{{"error operand gpu-1": "OutOfnvidia.com/gpu"}}, nil},
	} {
		s := healthy(t)
		c.change(s)
		try(name, s, c.want, c.not)
	}
}

// TestMissingKindsAreUnknown removes every combination of lists. Each removed list must yield one finding of the check
// unread, and no finding may be an error, a warning or waiting.
func TestMissingKindsAreUnknown(t *testing.T) {
	fields := map[cluster.Kind]string{cluster.Nodes: "Nodes", cluster.Pods: "Pods", cluster.DaemonSets: "DaemonSets",
		cluster.ConfigMaps: "ConfigMaps", cluster.ClusterPolicies: "ClusterPolicies",
		cluster.NVIDIADrivers: "NVIDIADrivers", cluster.GPUClusters: "GPUClusters", cluster.CRDs: "CRDs", cluster.Events: "Events"}
	kinds := judge.VerifyKinds()
	complete := healthy(t)
	for mask := range 1 << len(kinds) {
		s := *complete
		for i, kind := range kinds {
			if mask&(1<<i) != 0 {
				reflect.ValueOf(&s).Elem().FieldByName(fields[kind]).SetZero()
				s.Missing = append(s.Missing, cluster.Missing{Kind: kind, Why: cluster.Forbidden, Detail: string(kind) + " is forbidden"})
			}
		}
		unread := 0
		for _, v := range verified(t, &s) {
			if v.Check.ID == "unread" {
				unread++
			}
			if v.Severity == check.Error || v.Severity == check.Waiting || v.Severity == check.Warning {
				t.Errorf("without %v: %s %s on %q is %s: %s", s.Missing, v.Check.ID, v.Subject, v.Node, v.Severity, v.Reason)
			}
		}
		if unread != len(s.Missing) {
			t.Errorf("without %v: findings of the check unread = %d, want one for each", s.Missing, unread)
		}
	}
}

// TestGolden compares the findings of a cluster with several faults with golden files, as text and as JSON.
func TestGolden(t *testing.T) {
	s := healthy(t, load[row](t, "verify.yaml").Bases["several faults"])
	crash(pod(s, "nvidia-driver-daemonset", "gpu-1"))
	inInit(pod(s, "nvidia-container-toolkit-daemonset", "gpu-1"), "driver-validation", running(at.Add(-time.Hour)))
	inInit(pod(s, "nvidia-operator-validator", "gpu-1"), "driver-validation", running(at.Add(-time.Hour)))
	for _, name := range []string{"nvidia-device-plugin-daemonset", "gpu-feature-discovery", "nvidia-dcgm-exporter"} {
		inInit(pod(s, name, "gpu-1"), "toolkit-validation", running(at.Add(-time.Hour)))
	}
	tree := check.Report{Judged: true, Title: s.Title, At: s.At, Findings: verified(t, s)}
	tree.Sort()
	var out bytes.Buffer
	if err := tree.WriteText(&out, check.Style{}, true); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&out, "\n%s\n", tree.Summary())
	golden(t, "broken.txt", out.Bytes())
	out.Reset()
	if err := check.WriteJSON(&out, &tree); err != nil {
		t.Fatal(err)
	}
	golden(t, "broken.json", out.Bytes())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// large returns a healthy cluster of n GPU nodes.
func large(t testing.TB, n int) *cluster.State {
	read, err := gathered()
	if err != nil {
		t.Fatal(err)
	}
	s := &cluster.State{At: at, Namespace: read.Namespace, DaemonSets: read.DaemonSets, ClusterPolicies: read.ClusterPolicies,
		ConfigMaps: []corev1.ConfigMap{}, NVIDIADrivers: []unstructured.Unstructured{}, GPUClusters: []unstructured.Unstructured{}}
	for i := range n {
		name := fmt.Sprintf("gpu-%04d", i)
		for _, node := range read.Nodes {
			if node.Name == "gpu-1" {
				node.Name = name
				s.Nodes = append(s.Nodes, node)
			}
		}
		for _, pod := range read.Pods {
			if pod.Spec.NodeName == "gpu-1" || i == 0 && pod.Labels["app"] == "gpu-operator" {
				pod.Name += name
				pod.Spec.NodeName = name
				s.Pods = append(s.Pods, pod)
			}
		}
	}
	return s
}

// TestJudgeIsLinear checks that ten times the nodes cause about ten times the allocations.
func TestJudgeIsLinear(t *testing.T) {
	allocations := func(n int) float64 {
		s := large(t, n)
		if rows := verified(t, s); len(rows) != 10*n+12 {
			t.Errorf("%d nodes: %d findings, want %d", n, len(rows), 10*n+12)
		}
		return testing.AllocsPerRun(1, func() { judge.Verify(s, options) })
	}
	if small, big := allocations(100), allocations(1000); big > 10.5*small {
		t.Errorf("allocations for 1000 nodes = %.0f, want at most 10.5 times the %.0f for 100 nodes", big, small)
	}
}

func BenchmarkJudge5000(b *testing.B) {
	s := large(b, 5000)
	b.ReportAllocs()
	for b.Loop() {
		judge.Verify(s, options)
	}
}
