package drift

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// object compares an object of the manifest with the one in the cluster.
func (j *judging) object(r *Release, o map[string]any) {
	u := unstructured.Unstructured{Object: o}
	kind, name, part := u.GetKind(), u.GetName(), "spec"
	var live *unstructured.Unstructured
	var read bool
	switch kind {
	case "ClusterPolicy":
		live, read = j.find(cluster.ClusterPolicies, j.ClusterPolicies, name)
	case "NVIDIADriver":
		live, read = j.find(cluster.NVIDIADrivers, j.NVIDIADrivers, name)
	case "GPUCluster":
		live, read = j.find(cluster.GPUClusters, j.GPUClusters, name)
	case "ConfigMap":
		live, read = j.configMap(name, cmp.Or(u.GetNamespace(), r.Namespace))
		part = "data"
	}
	if !read {
		return
	}
	subject := kind + "/" + name
	if live == nil {
		j.add(report.Seen("list", kind, "no %s", name).At(j.At), report.Failed, "drift-object-missing", subject,
			r.id()+" wrote it, and it is not in the cluster",
			fmt.Sprintf("helm get manifest %s -n %s --revision %s, and kubectl apply the %s of it",
				r.Name, r.Namespace, r.revision(), kind), sourceHelm)
		return
	}
	want, _ := o[part].(map[string]any)
	have, _ := live.Object[part].(map[string]any)
	d := &fieldDiff{judging: j, release: r, subject: subject, live: live}
	d.walk([]string{part}, want, have)
	if d.agreed > 0 {
		fields := counted(d.agreed, "field")
		j.add(report.Seen("spec", subject, "%s", fields), report.OK, "drift-field", subject,
			fmt.Sprintf("as %s wrote it, in %s", r.id(), fields), "", sourceHelm)
	}
}

// find returns the custom resource in the cluster, nil where there is none; read is false where its kind was not
// read.
func (j *judging) find(
	kind cluster.Kind, list []unstructured.Unstructured, name string,
) (live *unstructured.Unstructured, read bool) {
	for i := range list {
		if list[i].GetName() == name {
			return &list[i], true
		}
	}
	return nil, list != nil && !j.unread(kind)
}

// configMap is find of a ConfigMap: the state has those of the operator's namespace alone.
func (j *judging) configMap(name, namespace string) (live *unstructured.Unstructured, read bool) {
	for i := range j.ConfigMaps {
		c := &j.ConfigMaps[i]
		if c.Name != name || c.Namespace != namespace {
			continue
		}
		o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
		u := &unstructured.Unstructured{Object: o}
		u.SetKind("ConfigMap")
		return u, err == nil
	}
	return nil, j.ConfigMaps != nil && namespace == j.Namespace
}

// A fieldDiff compares a manifest's fields with the object's in the cluster.
type fieldDiff struct {
	*judging
	release *Release
	subject string
	live    *unstructured.Unstructured
	agreed  int
}

func (d *fieldDiff) walk(path []string, want, have map[string]any) {
	names := maps.Clone(want)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, have)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := append(path[:len(path):len(path)], name)
		w, wanted := want[name]
		h, is := have[name]
		wm, wIsMap := w.(map[string]any)
		hm, hIsMap := h.(map[string]any)
		switch {
		case wIsMap && hIsMap, wIsMap && !is, hIsMap && !wanted:
			d.walk(at, wm, hm)
		case empty(w) && empty(h):
		case same(w, h):
			d.agreed++
		default:
			d.field(at, w, h)
		}
	}
}

// field is one field that differs.
func (d *fieldDiff) field(path []string, want, have any) {
	owner := OwnerOf(d.live.GetManagedFields(), path...)
	name, by := chart.Path(path), owned(d.live.GetManagedFields(), owner, have)
	reason := ""
	switch {
	case empty(want):
		if d.defaulted(path, owner) {
			return
		}
		reason = fmt.Sprintf("the cluster has %s, and %s does not set it", shown(name, have), d.release.id()) + by
	case empty(have) && owner.Manager == "":
		reason = fmt.Sprintf("%s set %s, and the cluster has nothing: it was removed, or the CRD does not know the field, "+
			"as Helm leaves CRDs as they were installed (operator.upgradeCRD)", d.release.id(), shown(name, want))
	default:
		reason = fmt.Sprintf("%s set %s, and the cluster has %s",
			d.release.id(), shown(name, want), shown(name, have)) + by
	}
	value, found, _ := unstructured.NestedFieldNoCopy(d.Intended, path[1:]...)
	if found && path[0] == "spec" && same(value, have) {
		reason += fmt.Sprintf("; it is what %s says", d.From)
	}
	d.add(owner.seen(d.subject, name.String(), shown(name, have)), report.Failed, "drift-field",
		d.subject+" "+name.String(), reason, d.revert(path, want), sourcePatch)
}

// defaulted reports whether the API server filled the field in, or nothing says that another wrote it.
func (d *fieldDiff) defaulted(path []string, owner Owner) bool {
	if d.live.GetKind() == "ConfigMap" {
		return deploys(owner.Manager)
	}
	if owner.Manager != "" {
		return deploys(owner.Manager) || owner.Manager == d.release.Writer.Manager
	}
	v, known := d.release.version(d.Table)
	if !known {
		return true
	}
	f, found := d.Table.Field(v, d.live.GetKind(), strings.Join(path, "."))
	return found && f.Default
}

// revert puts one field back. A repeated helm upgrade does not: it patches from manifest to manifest.
func (d *fieldDiff) revert(path []string, want any) string {
	if len(d.controllers) > 0 {
		return d.controllers[0].revert()
	}
	patch := want
	if empty(want) {
		patch = nil
	}
	for _, name := range slices.Backward(path) {
		patch = map[string]any{name: patch}
	}
	data, err := json.Marshal(patch)
	if err != nil || len(data) > 500 || strings.Contains(masked(string(data)), "***") {
		return "kubectl edit " + strings.ToLower(d.subject)
	}
	object := strings.ToLower(d.subject)
	if ns := d.live.GetNamespace(); ns != "" {
		object += " -n " + ns
	}
	return fmt.Sprintf("kubectl patch %s --type=merge -p '%s'", object, strings.ReplaceAll(string(data), "'", `'\''`))
}
