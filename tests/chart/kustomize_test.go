package chart

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	helm "helm.sh/helm/v3/pkg/chart"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

var base = filepath.Join(root, "deployment", "kubernetes")

// A component is an addition to the base, with the values of the chart that say the same.
type component struct{ name, about, values string }

func components() []component {
	return []component{
		{"pod-labels", "The labels and UIDs of pods, which the API server has: list and watch pods.", "kubernetes: {enablePodLabels: true, enablePodUID: true}"},
		{"dra", "GPUs of Dynamic Resource Allocation: list and watch ResourceSlices, get ResourceClaims.", "kubernetesDRA: {enabled: true}"},
		{"profiling", "Profiling metrics of GPUs before Hopper, over DCGM: the capability SYS_ADMIN, and the image with DCGM.", "profiling: {enabled: true}\nimage: {variant: dcgm}"},
		{"shared-gpus", "Utilization and memory per pod on shared GPUs: the host's process ids, and the names in /var/log/pods.", "sharedGPUs: {enabled: true}"},
	}
}

// manifests renders the chart for kustomize: by file name, without what is Helm's, and without the
// namespace, which the kustomization sets.
func manifests(t *testing.T, c *helm.Chart, more string) map[string]map[string]any {
	t.Helper()
	values := merged(decode(t, read(t, filepath.Join(base, "values.yaml"))), decodeOrEmpty(t, more))
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, doc := range mustRender(t, c, string(text)).docs {
		o := decode(t, []byte(doc))
		bare(o)
		if spec, ok := o["spec"].(map[string]any); ok {
			delete(spec, "namespaceSelector") // a ServiceMonitor without one selects in its own
		}
		name := strings.ToLower(fmt.Sprint(o["kind"]))
		if out[name] != nil {
			t.Fatalf("two objects of kind %s", o["kind"])
		}
		out[name] = o
	}
	return out
}

func decodeOrEmpty(t *testing.T, text string) map[string]any {
	if m := decode(t, []byte(text)); m != nil {
		return m
	}
	return map[string]any{}
}

// bare takes away what is Helm's.
func bare(v any) {
	switch v := v.(type) {
	case map[string]any:
		if meta, ok := v["metadata"].(map[string]any); ok {
			delete(meta, "namespace")
			if labels, ok := meta["labels"].(map[string]any); ok {
				delete(labels, "helm.sh/chart")
				delete(labels, "app.kubernetes.io/managed-by")
			}
		}
		for _, e := range v {
			bare(e)
		}
	case []any:
		for _, e := range v {
			bare(e)
		}
	}
}

const rendered = "# Rendered from deployment/chart by \"make chart\".\n"

// generated returns the files of deployment/kubernetes that are derived from the chart.
func generated(t *testing.T) map[string][]byte {
	t.Helper()
	c := load(t, folder)
	out := map[string][]byte{}
	put := func(name string, object any, about ...string) {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		head := rendered
		for _, line := range about {
			head = "# " + line + "\n" + head
		}
		out[name] = append([]byte(head), text...)
	}
	plain := manifests(t, c, "")
	resources := []string{"namespace.yaml"}
	for _, name := range sortedKeys(plain) {
		put(name+".yaml", plain[name])
		resources = append(resources, name+".yaml")
	}
	put("kustomization.yaml", map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "namespace": namespace, "resources": resources,
	}, "kubectl apply -k deployment/kubernetes")
	for _, component := range components() {
		folder := filepath.Join("components", component.name)
		kustomization := map[string]any{"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
		var added, patches []any
		with := manifests(t, c, component.values)
		for _, name := range sortedKeys(with) {
			object := with[name]
			was := plain[name]
			if was == nil {
				// Each component has a role of its own, so that they go together.
				rename(object, "dcgm-exporter-read-pods", "dcgm-exporter-"+component.name)
				put(filepath.Join(folder, name+".yaml"), object)
				added = append(added, name+".yaml")
				continue
			}
			if patch := patchOf(t, name, was, object); patch != nil {
				put(filepath.Join(folder, name+".yaml"), patch)
				patches = append(patches, map[string]any{"path": name + ".yaml"})
			}
		}
		if added != nil {
			kustomization["resources"] = added
		}
		kustomization["patches"] = patches
		put(filepath.Join(folder, "kustomization.yaml"), kustomization, component.about)
	}
	return out
}

func rename(v any, from, to string) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if k == "name" && e == from {
				v[k] = to
			}
			rename(e, from, to)
		}
	case []any:
		for _, e := range v {
			rename(e, from, to)
		}
	}
}

// patchOf returns the strategic merge patch from one object to another, nil where there is nothing
// to change.
func patchOf(t *testing.T, kind string, was, is map[string]any) map[string]any {
	t.Helper()
	before, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	after, err := json.Marshal(is)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(before, after) {
		return nil
	}
	var like any
	switch kind {
	case "daemonset":
		like = apps.DaemonSet{}
	case "serviceaccount":
		like = core.ServiceAccount{}
	default:
		t.Fatalf("a component changes the %s", kind)
	}
	text, err := strategicpatch.CreateTwoWayMergePatch(before, after, like)
	if err != nil {
		t.Fatal(err)
	}
	patch := decode(t, text)
	ordered(patch)
	patch["apiVersion"], patch["kind"] = is["apiVersion"], is["kind"]
	patch["metadata"] = map[string]any{"name": is["metadata"].(map[string]any)["name"]}
	return patch
}

// ordered drops what says the order of lists, which kustomize does not know.
func ordered(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if strings.HasPrefix(k, "$setElementOrder/") {
				delete(v, k)
				continue
			}
			ordered(e)
		}
	case []any:
		for _, e := range v {
			ordered(e)
		}
	}
}

func TestKustomizeIsCurrent(t *testing.T) {
	want := generated(t)
	if *update {
		for name, content := range want {
			write(t, filepath.Join(base, name), content)
		}
	}
	for _, name := range sortedKeys(want) {
		got, err := os.ReadFile(filepath.Join(base, name))
		if err != nil || !bytes.Equal(got, want[name]) {
			t.Errorf("deployment/kubernetes/%s is not what the chart says: make chart (%v)", name, err)
		}
	}
	byHand := []string{"values.yaml", "namespace.yaml"}
	err := filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
		name, _ := filepath.Rel(base, path)
		if err == nil && !d.IsDir() && want[name] == nil && !slices.Contains(byHand, name) {
			t.Errorf("deployment/kubernetes/%s is not of the chart", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The base with a component is what the chart renders with the component's values, and the base
// with all of them what it renders with all.
func TestComponentsAreTheChartsValues(t *testing.T) {
	c := load(t, folder)
	all := map[string]any{}
	for _, component := range components() {
		all = merged(all, decode(t, []byte(component.values)))
		t.Run(component.name, func(t *testing.T) { holds(t, c, component.values, component) })
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("all", func(t *testing.T) { holds(t, c, string(text), components()...) })
}

func holds(t *testing.T, c *helm.Chart, values string, components ...component) {
	t.Helper()
	with := manifests(t, c, values)
	var want, got apps.DaemonSet
	text, err := json.Marshal(with["daemonset"])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSON(read(t, filepath.Join(base, "daemonset.yaml"))); err != nil {
		t.Fatal(err)
	}
	for _, component := range components {
		patch, err := yaml.YAMLToJSON(read(t, filepath.Join(base, "components", component.name, "daemonset.yaml")))
		if err != nil {
			t.Fatal(err)
		}
		if text, err = strategicpatch.StrategicMergePatch(text, patch, apps.DaemonSet{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	for _, set := range []*apps.DaemonSet{&want, &got} {
		pod := &set.Spec.Template.Spec
		slices.SortFunc(pod.Containers[0].Env, func(a, b core.EnvVar) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(pod.Containers[0].VolumeMounts, func(a, b core.VolumeMount) int { return cmp.Compare(a.MountPath, b.MountPath) })
		slices.SortFunc(pod.Volumes, func(a, b core.Volume) int { return cmp.Compare(a.Name, b.Name) })
	}
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("the DaemonSet (-chart +kustomize):\n%s", d)
	}
}
