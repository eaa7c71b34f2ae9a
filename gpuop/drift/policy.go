package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
)

// policy compares each ClusterPolicy in the release's manifest with the one of the same name in the cluster.
func (c *comparison) policy(r *Release) {
	if c.unread(cluster.ClusterPolicies) {
		return
	}
	for _, o := range r.policies {
		name := o.GetName()
		subject := "ClusterPolicy/" + name
		i := slices.IndexFunc(c.ClusterPolicies, func(u unstructured.Unstructured) bool { return u.GetName() == name })
		if i < 0 {
			c.add(check.Seen("list", "ClusterPolicy", "no %s", name).At(c.At), check.Error, missingObject, subject,
				r.id()+" created it, but it is no longer in the cluster",
				fmt.Sprintf("helm get manifest %s -n %s --revision %s, and "+
					"kubectl apply its ClusterPolicy", r.Name, r.Namespace, r.revision()))
			continue
		}
		d := &fieldDiff{comparison: c, release: r, subject: subject, live: &c.ClusterPolicies[i]}
		want, _ := o.Object["spec"].(map[string]any)
		have, _ := d.live.Object["spec"].(map[string]any)
		d.walk([]string{"spec"}, want, have)
		if d.agreed > 0 {
			fields := check.Count(d.agreed, "field")
			c.add(check.Seen("spec", subject, "%s unchanged", fields), check.OK, otherField, subject,
				fmt.Sprintf("%s unchanged since %s", fields, r.id()), "")
		}
	}
}

// fieldDiff compares an object in the manifest with the same object in the cluster.
type fieldDiff struct {
	*comparison
	release *Release
	subject string
	live    *unstructured.Unstructured
	agreed  int
}

func (d *fieldDiff) walk(path []string, want, have map[string]any) {
	names := map[string]any{}
	maps.Copy(names, want)
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

// field reports a field that differs, unless the difference is a default.
func (d *fieldDiff) field(path []string, want, have any) {
	fields := d.live.GetManagedFields()
	owner, name := OwnerOf(fields, path...), chart.Path(path)
	if empty(want) && d.defaulted(path, owner) {
		return
	}
	id, shown := d.release.id(), d.shown(path, have)
	reason := fmt.Sprintf("%s set %s, but the cluster has %s", id, d.shown(path, want), shown)
	switch {
	case empty(want):
		reason = fmt.Sprintf("the cluster has %s, but %s does not set it", shown, id)
	case empty(have) && owner.Manager == "":
		reason += ": the field was removed, " +
			"or the installed CRD lacks it because Helm does not upgrade CRDs (operator.upgradeCRD)"
	}
	switch {
	case owner.Manager != "":
		reason += "; owner: " + owner.String()
	case len(fields) == 0:
		reason += "; owner unknown: the object has no managedFields (export it with kubectl get --show-managed-fields)"
	}
	value, found, _ := unstructured.NestedFieldNoCopy(d.Intended, path[1:]...)
	if found && same(value, have) {
		reason += fmt.Sprintf("; %s has the same value as the cluster", d.From)
	}
	seen := check.Seen("field", d.subject, "%s: %s, written by %s", name, shown, owner).At(owner.Time)
	d.add(seen, check.Error, otherField, d.subject+" "+name.String(), reason, d.revert(path, want))
}

// defaulted reports whether the manifest may lack a field that the cluster has. It is true if a deployment tool or the
// release's writer owns the field. If the owner is unknown, it is true if the CRD has a default for the field. If gpuop
// does not know the release's CRD either, defaulted assumes a default.
func (d *fieldDiff) defaulted(path []string, owner Owner) bool {
	if owner.Manager != "" {
		return deploys(owner.Manager) || owner.Manager == d.release.Writer.Manager
	}
	v, _, err := d.Table.Resolve(d.release.chartVersion())
	if err != nil {
		return true
	}
	f, found := d.Table.Field(v, "ClusterPolicy", strings.Join(path, "."))
	return found && f.Default
}

// revert returns the command that restores a field: kubectl patch, or kubectl edit if the patch is long or secret. helm
// upgrade would not restore the field: for custom resources, Helm only applies the differences between the old and the
// new manifest.
func (d *fieldDiff) revert(path []string, want any) string {
	if empty(want) {
		want = nil
	}
	patch := nested(path, want)
	data, err := json.Marshal(patch)
	isSecret := d.Hidden.Mask(string(data)) != string(data) || !same(patch, check.MaskTree(patch))
	if err != nil || len(data) > 500 || isSecret {
		return "kubectl edit " + strings.ToLower(d.subject)
	}
	return fmt.Sprintf("kubectl patch %s --type=merge -p %s", strings.ToLower(d.subject), input.Quote(string(data)))
}
