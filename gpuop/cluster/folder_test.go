package cluster_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

var all = []cluster.Kind{cluster.Nodes, cluster.Pods, cluster.DaemonSets, cluster.ClusterPolicies, cluster.NVIDIADrivers, cluster.ConfigMaps}

// readFolder reads all kinds from a folder with the files.
func readFolder(t *testing.T, files map[string]string) *cluster.State {
	t.Helper()
	s, err := cluster.Folder(folder.Of(t, files)).Read(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// gathered returns the files in testdata/must-gather, which are as must-gather.sh writes them.
func gathered(t testing.TB) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, path := range folder.Files(t, "testdata", "must-gather", "*") {
		files[filepath.Base(path)] = folder.Read(t, path)
	}
	return files
}

func TestMustGatherIsPartial(t *testing.T) {
	s := readFolder(t, gathered(t))
	if want := []string{"gpu-operator/gpu-operator-1", "gpu-operator/plugin"}; !cmp.Equal(want, podNames(s)) {
		t.Errorf("pods = %v, want %v without duplicates", podNames(s), want)
	}
	want := map[cluster.Kind]cluster.Why{cluster.Nodes: cluster.Partial, cluster.Pods: cluster.Partial, cluster.NVIDIADrivers: cluster.Unread, cluster.ConfigMaps: cluster.Unread}
	missing := map[cluster.Kind]cluster.Why{}
	for _, m := range s.Missing {
		missing[m.Kind] = m.Why
	}
	if diff := cmp.Diff(want, missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if s.DaemonSets == nil || len(s.DaemonSets) != 0 || s.NVIDIADrivers != nil || s.Namespace != "gpu-operator" {
		t.Errorf("DaemonSets = %v, NVIDIADrivers = %v, namespace = %q; want an empty list, nil and gpu-operator", s.DaemonSets, s.NVIDIADrivers, s.Namespace)
	}
	if want := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC); !s.At.Equal(want) {
		t.Errorf("time of the folder = %s, want the newest one, %s", s.At, want)
	}
	if len(s.Nodes) != 2 {
		t.Fatalf("nodes = %d, want 2", len(s.Nodes))
	}
	n := s.Nodes[0]
	allocatable := n.Status.Allocatable["nvidia.com/gpu"]
	info := n.Status.NodeInfo
	if n.Name != "gpu-1" || allocatable.Value() != 7 || info.Architecture != "amd64" || info.ContainerRuntimeVersion != "containerd://2.1.4" || info.OSImage != "Ubuntu 22.04.5 LTS" ||
		len(n.Spec.Taints) != 1 || n.Spec.Unschedulable || len(n.Status.Conditions) != 1 || n.Status.Conditions[0].Reason != "KubeletNotReady" {
		t.Errorf("node = %+v, want the values of kubectl describe", n)
	}
	if !s.Nodes[1].Spec.Unschedulable {
		t.Error("gpu-2: unschedulable = false, want true")
	}
}

func TestIncompleteFolder(t *testing.T) {
	gathered := gathered(t)
	for name, c := range map[string]struct {
		files map[string]string
		kind  cluster.Kind
		why   cluster.Why
		says  string
	}{
		"truncated pods":                {map[string]string{"gpu_operand_pods.yaml": gathered["gpu_operand_pods.yaml"] + "- apiVersion: v1\n  kind: [Po"}, cluster.Pods, cluster.Failed, "gpu_operand_pods.yaml: line 1"},
		"truncated JSON":                {map[string]string{"nodes.json": "{\"kind\":\"NodeList\",\n\"items\":[{"}, cluster.Nodes, cluster.Failed, "nodes.json: unexpected EOF"},
		"a field of the wrong type":     {map[string]string{"nodes.yaml": "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nspec: {taints: 7}\n"}, cluster.Nodes, cluster.Failed, "nodes.yaml: Node:"},
		"an item that is not an object": {map[string]string{"nodes.yaml": "apiVersion: v1\nkind: List\nitems:\n- 7\n"}, cluster.Nodes, cluster.Failed, "nodes.yaml: json: cannot unmarshal number"},
		"an empty file":                 {map[string]string{"gpu_operand_pods.yaml": "", "gpu_operand_ds.yaml": gathered["gpu_operand_ds.yaml"]}, cluster.Pods, cluster.Unread, "the folder contains no pods"},
		"no ClusterPolicy":              {map[string]string{"cluster_policy.missing": ""}, cluster.ClusterPolicies, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := readFolder(t, c.files)
			m := s.Lacks(c.kind)
			if c.why == "" {
				if m != nil || s.ClusterPolicies == nil {
					t.Errorf("missing = %+v, ClusterPolicies = %v; want nil and an empty list", m, s.ClusterPolicies)
				}
				return
			}
			if m == nil || m.Why != c.why || !strings.Contains(m.Detail, c.says) {
				t.Errorf("missing = %+v, want %s with a detail that contains %q", m, c.why, c.says)
			}
			if i := slices.Index(all, c.kind); i == 0 && s.Nodes != nil {
				t.Errorf("nodes from a broken list = %v, want none", s.Nodes)
			}
		})
	}
}

func TestUnusableFolder(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		says string
	}{
		"absent":                       {"/nowhere/at/all", "no such file"},
		"empty":                        {t.TempDir(), "contains no Kubernetes objects"},
		"invalid file of unknown kind": {folder.Of(t, map[string]string{"notes.yaml": "a: {b"}), "notes.yaml: line 1: "},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := cluster.Folder(c.path).Read(t.Context(), all...); !errors.Is(err, cluster.ErrInput) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("error = %v, want ErrInput with %q", err, c.says)
			}
		})
	}
}

func FuzzFolder(f *testing.F) {
	for _, text := range gathered(f) {
		f.Add(text)
	}
	f.Add(`{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, name := range []string{"pods.yaml", "gpu_nodes.descr"} {
			s, err := cluster.Folder(folder.Of(t, map[string]string{name: text})).Read(t.Context(), all...)
			if err != nil {
				if !errors.Is(err, cluster.ErrInput) {
					t.Fatalf("error = %v, want one that wraps ErrInput", err)
				}
				continue
			}
			for _, k := range all {
				if m := s.Lacks(k); m != nil && m.Detail == "" {
					t.Fatalf("%s: the detail of the missing kind is empty, want a reason", k)
				}
			}
		}
	})
}

// Read reads the logs of driver pods, including the log from before a restart, and no other logs.
func TestMustGatherHasDriverLogs(t *testing.T) {
	files := gathered(t)
	files["gpu_operand_pod_nvidia-driver-daemonset-414.92.1-0-abcde.previous.log"] = "Could not resolve Linux kernel version\n"
	files["gpu_operand_pod_nvidia-driver-daemonset-414.92.1-0-abcde.log"] = "Resolving Linux kernel version...\n"
	files["gpu_operand_pod_gpu-feature-discovery-abcde.log"] = "nothing\n"
	s := readFolder(t, files)
	want := map[string]string{"nvidia-driver-daemonset-414.92.1-0-abcde": "Resolving Linux kernel version...\nCould not resolve Linux kernel version\n"}
	if diff := cmp.Diff(want, s.DriverLogs); diff != "" {
		t.Errorf("logs (-want +got):\n%s", diff)
	}
}
