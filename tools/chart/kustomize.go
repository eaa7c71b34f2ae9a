package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

const (
	namespace = "gpu-monitoring"
	rendered  = "# Rendered from deployment/chart by \"make chart\".\n"
)

// component is a kustomize component. values are the chart values that have the same effect.
type component struct{ name, about, values string }

func components() []component {
	return []component{
		{"pod-labels", "Adds labels and UIDs of pods. Permissions: list and watch pods.",
			"kubernetes: {enablePodLabels: true, enablePodUID: true}"},
		{"dra", "Adds the owners of GPUs that are allocated through Dynamic Resource Allocation. " +
			"Permissions: list and watch ResourceSlices, get ResourceClaims.", "kubernetesDRA: {enabled: true}"},
		{"nvml", "Uses the small image without DCGM, and no capability. " +
			"Lacks profiling metrics before Hopper and NVSwitch metrics.",
			"image: {variant: nvml}"},
		{"no-profiling", "Removes the capability SYS_ADMIN. Lacks profiling metrics before Hopper.",
			"profiling: {enabled: false}"},
		{"shared-gpus", "Adds utilization and memory per pod on shared GPUs. " +
			"Uses the host's PID namespace and the names in /var/log/pods.", "sharedGPUs: {enabled: true}"},
		{"kernel-log", "Adds XIDs with details, and SXIDs, from the kernel log. " +
			"Uses a privileged container with /dev/kmsg.", "kernelLog: {enabled: true}"},
	}
}

// render renders the chart with the values in base. Those in more take precedence. It returns the objects by lower-case
// kind, without Helm's labels and without the namespace, which the kustomization sets.
func render(c *chart.Chart, base, more []byte) (map[string]map[string]any, error) {
	values, err := chartutil.ReadValues(base)
	if err != nil {
		return nil, err
	}
	extra, err := chartutil.ReadValues(more)
	if err != nil {
		return nil, err
	}
	values = chartutil.CoalesceTables(extra, values)
	values, err = chartutil.ToRenderValues(c, values,
		chartutil.ReleaseOptions{Name: "dcgm-exporter", Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, values)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]any{}
	for file, text := range files {
		if strings.HasSuffix(file, "NOTES.txt") {
			continue
		}
		for doc := range strings.SplitSeq("\n"+text, "\n---") {
			var o map[string]any
			if err := yaml.Unmarshal([]byte(doc+"\n"), &o); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if o == nil {
				continue
			}
			bare(o)
			if spec, ok := o["spec"].(map[string]any); ok {
				// without this selector, a ServiceMonitor selects in its own namespace
				delete(spec, "namespaceSelector")
			}
			name := strings.ToLower(fmt.Sprint(o["kind"]))
			if out[name] != nil {
				return nil, fmt.Errorf("the chart renders two objects of kind %s", o["kind"])
			}
			out[name] = o
		}
	}
	return out, nil
}

// walk calls visit for every map in v.
func walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v)
		for _, e := range v {
			walk(e, visit)
		}
	case []any:
		for _, e := range v {
			walk(e, visit)
		}
	}
}

// bare removes the namespace and Helm's labels from every metadata in an object.
func bare(object map[string]any) {
	walk(object, func(m map[string]any) {
		if meta, ok := m["metadata"].(map[string]any); ok {
			delete(meta, "namespace")
			if labels, ok := meta["labels"].(map[string]any); ok {
				delete(labels, "helm.sh/chart")
				delete(labels, "app.kubernetes.io/managed-by")
			}
		}
	})
}

// tree maps the path of a file to its content.
type tree map[string][]byte

// put adds an object as a YAML file. The lines of about become comments at its top.
func (f tree) put(name string, object any, about ...string) error {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err
	}
	head := rendered
	for _, line := range about {
		head = "# " + line + "\n" + head
	}
	f[name] = append([]byte(head), text...)
	return nil
}

// kustomize returns the files of deployment/kubernetes that are derived from the chart in folder. The values for them
// are in values.yaml in base.
func kustomize(folder, base string) (tree, error) {
	c, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	values, err := os.ReadFile(filepath.Join(base, "values.yaml"))
	if err != nil {
		return nil, err
	}
	plain, err := render(c, values, nil)
	if err != nil {
		return nil, err
	}
	out, resources := tree{}, []string{"namespace.yaml"}
	for _, name := range slices.Sorted(maps.Keys(plain)) {
		if err := out.put(name+".yaml", plain[name]); err != nil {
			return nil, err
		}
		resources = append(resources, name+".yaml")
	}
	err = out.put("kustomization.yaml", map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": namespace,
		"resources": resources,
	}, "kubectl apply -k deployment/kubernetes")
	if err != nil {
		return nil, err
	}
	for _, one := range components() {
		with, err := render(c, values, []byte(one.values))
		if err != nil {
			return nil, err
		}
		if err := out.component(one, plain, with); err != nil {
			return nil, fmt.Errorf("%s: %w", one.name, err)
		}
	}
	return out, nil
}

// component adds the objects and patches of a kustomize component. plain has the objects that the chart renders without
// the component, and with has those that it renders with the component.
func (f tree) component(one component, plain, with map[string]map[string]any) error {
	folder := filepath.Join("components", one.name)
	kustomization := map[string]any{"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
	var added, patches []any
	for _, name := range slices.Sorted(maps.Keys(with)) {
		object, was := with[name], plain[name]
		if was == nil {
			// each component has its own role, so that components can be combined
			walk(object, func(m map[string]any) {
				if m["name"] == "dcgm-exporter-read-pods" {
					m["name"] = "dcgm-exporter-" + one.name
				}
			})
			added = append(added, name+".yaml")
		} else {
			patch, err := patchOf(name, was, object)
			if err != nil {
				return err
			}
			if patch == nil {
				continue
			}
			object = patch
			patches = append(patches, map[string]any{"path": name + ".yaml"})
		}
		if err := f.put(filepath.Join(folder, name+".yaml"), object); err != nil {
			return err
		}
	}
	if added != nil {
		kustomization["resources"] = added
	}
	kustomization["patches"] = patches
	return f.put(filepath.Join(folder, "kustomization.yaml"), kustomization, one.about)
}

// patchOf returns the strategic merge patch from one object to another. It is nil if nothing changes.
func patchOf(kind string, was, is map[string]any) (map[string]any, error) {
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(is)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(before, after) {
		return nil, nil
	}
	var like any
	switch kind {
	case "daemonset":
		like = apps.DaemonSet{}
	case "serviceaccount":
		like = core.ServiceAccount{}
	default:
		return nil, fmt.Errorf("a component may change only the daemonset and the serviceaccount, not the %s", kind)
	}
	text, err := strategicpatch.CreateTwoWayMergePatch(before, after, like)
	if err != nil {
		return nil, err
	}
	var patch map[string]any
	if err := json.Unmarshal(text, &patch); err != nil {
		return nil, err
	}
	// kustomize does not support directives about the order of lists
	walk(patch, func(m map[string]any) {
		maps.DeleteFunc(m, func(key string, _ any) bool { return strings.HasPrefix(key, "$setElementOrder/") })
	})
	patch["apiVersion"], patch["kind"] = is["apiVersion"], is["kind"]
	patch["metadata"] = map[string]any{"name": is["metadata"].(map[string]any)["name"]}
	return patch, nil
}
