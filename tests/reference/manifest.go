// Package reference reads what NVIDIA publishes for its exporter, where it lies beside the
// repository: the chart as rendered, and what the GPU Operator applies. It is for tests alone, and
// the repository holds none of it.
package reference

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// A Workload is a pod of an exporter, as a manifest has it.
type Workload struct {
	// Name is that of the rendering.
	Name string
	// Args and Env are the container's. A value that a field of the pod gives is that field's path, as
	// in spec.nodeName.
	Args []string
	Env  map[string]string
	// Files are what ConfigMaps and Secrets mount, by path.
	Files map[string]string
}

// OperatorState returns one of the files that the GPU Operator applies, by its path below assets,
// such as state-dcgm-exporter/0800_daemonset.yaml.
func OperatorState(t testing.TB, path string) []byte {
	t.Helper()
	archive := material.Path(t, "data/upstream/gpu-operator-charts/state-dcgm-manifests.tar.xz")
	content, err := exec.Command("tar", "-xJOf", archive, "./assets/"+path).Output()
	if err != nil {
		t.Fatalf("unpack %s: %v", archive, err)
	}
	return content
}

// Chart returns the workloads of NVIDIA's chart, one per rendering.
func Chart(t testing.TB) []Workload {
	t.Helper()
	dir := material.Path(t, "data/upstream/dcgm-exporter/rendered")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []Workload
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, workloads(t, strings.TrimSuffix(filepath.Base(file), ".yaml"), content)...)
	}
	return all
}

// Operator returns the exporter's workload as the GPU Operator's assets have it, before the
// operator fills anything in.
func Operator(t testing.TB) Workload {
	t.Helper()
	all := workloads(t, "operator", OperatorState(t, "state-dcgm-exporter/0800_daemonset.yaml"))
	if len(all) != 1 {
		t.Fatalf("%d DaemonSets of the operator, want 1", len(all))
	}
	return all[0]
}

// object is the part of a manifest that says what a container gets.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []container
				Volumes    []volume
			}
		}
	}
}

type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	VolumeMounts []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
	} `yaml:"volumeMounts"`
}

type volume struct {
	Name      string
	ConfigMap struct {
		Name  string
		Items []struct{ Key, Path string }
	} `yaml:"configMap"`
}

// file returns what a ConfigMap has for a file of its volume.
func (v volume) file(data map[string]map[string]string, path string) (string, bool) {
	key := path
	for _, item := range v.ConfigMap.Items {
		if item.Path == path {
			key = item.Key
		}
	}
	content, ok := data[v.ConfigMap.Name][key]
	return content, ok
}

func workloads(t testing.TB, name string, content []byte) []Workload {
	t.Helper()
	var sets []object
	data := map[string]map[string]string{}
	decoder := yaml.NewDecoder(strings.NewReader(string(content)))
	for {
		var o object
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch o.Kind {
		case "DaemonSet":
			sets = append(sets, o)
		case "ConfigMap":
			data[o.Metadata.Name] = o.Data
		}
	}
	var all []Workload
	for _, s := range sets {
		pod := s.Spec.Template.Spec
		w := Workload{Name: name, Args: pod.Containers[0].Args, Env: map[string]string{}, Files: map[string]string{}}
		for _, e := range pod.Containers[0].Env {
			w.Env[e.Name] = e.Value + e.ValueFrom.FieldRef.FieldPath
		}
		for _, m := range pod.Containers[0].VolumeMounts {
			for _, v := range pod.Volumes {
				if content, ok := v.file(data, m.SubPath); v.Name == m.Name && ok {
					w.Files[m.MountPath] = content
				}
			}
		}
		all = append(all, w)
	}
	return all
}
