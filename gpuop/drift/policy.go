package drift

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
)

// policy compares each ClusterPolicy in the release's manifest with the one of the same name in the cluster.
func (c *comparison) policy(r *release) {
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
				fmt.Sprintf("helm get manifest %s -n %s --revision %d, and kubectl apply its ClusterPolicy",
					r.Name, r.Namespace, r.Version))
			continue
		}
		live, agreed := &c.ClusterPolicies[i], 0
		want, _ := o.Object["spec"].(map[string]any)
		have, _ := live.Object["spec"].(map[string]any)
		walk(chart.Path{"spec"}, want, have, func(path chart.Path, w, h any, _ bool) {
			switch {
			case !same(w, h):
				c.field(r, live, path, w, h)
			case !empty(w):
				agreed++
			}
		})
		if agreed > 0 {
			fields := check.Count(agreed, "field")
			c.add(check.Seen("spec", subject, "%s unchanged", fields), check.OK, otherField, subject,
				fields+" unchanged since "+r.id(), "")
		}
	}
}

// field reports a field of a ClusterPolicy that differs, unless the difference is a default.
func (c *comparison) field(r *release, live *unstructured.Unstructured, path chart.Path, want, have any) {
	fields, subject := live.GetManagedFields(), "ClusterPolicy/"+live.GetName()
	owner := OwnerOf(fields, path...)
	if empty(want) && c.defaulted(r, path, owner.Manager) {
		return
	}
	shown := c.shown(path, have)
	reason := fmt.Sprintf("%s set %s, but the cluster has %s", r.id(), c.shown(path, want), shown)
	if empty(want) {
		reason = fmt.Sprintf("the cluster has %s, but %s does not set it", shown, r.id())
	}
	if empty(have) && owner.Manager == "" {
		reason += ": the field was removed, " +
			"or the installed CRD lacks it because Helm does not upgrade CRDs (operator.upgradeCRD)"
	}
	switch {
	case owner.Manager != "":
		reason += "; owner: " + written(owner)
	case len(fields) == 0:
		reason += "; owner unknown: the object has no managedFields (export it with kubectl get --show-managed-fields)"
	}
	if value, found, _ := unstructured.NestedFieldNoCopy(c.Intended, path[1:]...); found && same(value, have) {
		reason += fmt.Sprintf("; %s has the same value as the cluster", c.From)
	}
	seen := check.Seen("field", subject, "%s: %s, written by %s", path, shown, written(owner))
	if owner.Time != nil {
		seen.Time = owner.Time.Time
	}
	c.add(seen, check.Error, otherField, subject+" "+path.String(), reason,
		c.revert(strings.ToLower(subject), path, want))
}

// defaulted reports whether the manifest may lack a field that the cluster has. It is true if a deployment tool or the
// release's writer owns the field. If the owner is unknown, it is true if the CRD has a default for the field. If gpuop
// does not know the release's CRD either, defaulted assumes a default.
func (c *comparison) defaulted(r *release, path chart.Path, manager string) bool {
	if manager != "" {
		return slices.Contains(deployers, strings.ToLower(manager)) || manager == r.writer.Manager
	}
	v, _, err := c.Table.Resolve(r.chartVersion())
	if err != nil {
		return true
	}
	f := c.Table.Field(v, "ClusterPolicy", strings.Join(path, "."))
	return f != nil && f.Default
}

// revert returns the command that restores a field: kubectl patch, or kubectl edit if the patch is long or secret. helm
// upgrade would not restore the field: for custom resources, Helm only applies the differences between the old and the
// new manifest.
func (c *comparison) revert(object string, path chart.Path, want any) string {
	if empty(want) {
		want = nil
	}
	patch := nested(path, want)
	data, err := json.Marshal(patch)
	isSecret := c.Hidden.Mask(string(data)) != string(data) || !same(patch, check.MaskTree(patch))
	if err != nil || len(data) > 500 || isSecret {
		return "kubectl edit " + object
	}
	return fmt.Sprintf("kubectl patch %s --type=merge -p %s", object, input.Quote(string(data)))
}
