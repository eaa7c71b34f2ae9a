// Package reference reads what NVIDIA publishes for its exporter: the rendered chart, and what the GPU Operator
// applies. It also makes scripts of a fake engine from NVIDIA's pages. The files are in a folder next to the
// repository, and not in the repository. Only tests use the package.
package reference

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// A Workload is the configuration of an exporter's DaemonSet in a manifest.
type Workload struct {
	// Name is the file name of the rendering without .yaml, or "operator".
	Name string
	// Args and Env are those of the first container. A value from a field of the pod is given as the path of the field,
	// such as spec.nodeName.
	Args []string
	Env  map[string]string
	// Files holds the files that are mounted from ConfigMaps, by path.
	Files map[string]string
}

// OperatorState returns a file that the GPU Operator applies. name is relative to assets, such as
// state-dcgm-exporter/0800_daemonset.yaml.
func OperatorState(t testing.TB, name string) []byte {
	t.Helper()
	archive := material.Path(t, "data/upstream/gpu-operator-charts/state-dcgm-manifests.tar.xz")
	content, err := exec.Command("tar", "-xJOf", archive, "./assets/"+name).Output()
	if err != nil {
		t.Fatalf("unpack %s: %v", archive, err)
	}
	return content
}

// Chart returns the exporter's workloads in the renderings of NVIDIA's chart.
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

// Operator returns the exporter's workload in the GPU Operator's assets, before the operator fills anything in.
func Operator(t testing.TB) Workload {
	t.Helper()
	all := workloads(t, "operator", OperatorState(t, "state-dcgm-exporter/0800_daemonset.yaml"))
	if len(all) != 1 {
		t.Fatalf("operator has %d DaemonSets, want 1", len(all))
	}
	return all[0]
}

// object is the part of a manifest that configures a container.
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

// files returns the contents of a ConfigMap volume's files, by path below the mount. If the volume has items, only
// their keys become files, at the paths of the items. Otherwise, every key becomes a file of that name.
func (v volume) files(data map[string]string) map[string]string {
	if v.ConfigMap.Items == nil {
		return data
	}
	all := map[string]string{}
	for _, item := range v.ConfigMap.Items {
		all[item.Path] = data[item.Key]
	}
	return all
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
				if v.Name != m.Name {
					continue
				}
				for name, content := range v.files(data[v.ConfigMap.Name]) {
					if m.SubPath == "" {
						w.Files[path.Join(m.MountPath, name)] = content
					} else if m.SubPath == name {
						w.Files[m.MountPath] = content
					}
				}
			}
		}
		all = append(all, w)
	}
	return all
}
