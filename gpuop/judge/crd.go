package judge

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// staleCRDs compares the installed CustomResourceDefinitions with those of the operator's release. Helm installs the
// files in crds/ once and never updates them. The chart's CRD upgrade hook runs only on upgrades.
func staleCRDs(v *view) []check.Finding {
	if !v.before && !v.installed {
		return nil // the installed release is not known exactly
	}
	var stale, absent, lacks []string
	for _, k := range cluster.OperatorKinds {
		fields := v.Table.Fields(v.Release, k.Name, "")
		c := v.CRD(string(k.Kind))
		switch {
		case len(fields) == 0: // the release does not have the kind
		case c != nil && c.Schema != nil:
			if missing := v.unlisted(k.Name, "", c.Schema); len(missing) > 0 {
				stale, lacks = append(stale, c.Name), append(lacks, missing...)
			}
		case !v.before && v.why(k.Kind) == cluster.Absent:
			absent = append(absent, string(k.Kind))
		}
	}
	if len(stale)+len(absent) == 0 {
		return nil
	}
	f := check.Finding{
		Check: crdStale, Severity: check.Error, Cause: "CustomResourceDefinitions",
		Subject: "CustomResourceDefinition/" + strings.Join(append(stale, absent...), ", "),
		Fix: fmt.Sprintf("helm show crds gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version %s | "+
			"kubectl apply --server-side --force-conflicts -f -", v.Release),
		Evidence: v.listed(cluster.CRDs, "%d fields of %s are missing; not installed: %s",
			len(lacks), v.Release, cmp.Or(some(absent), "none")),
	}
	switch {
	case len(absent) > 0:
		f.Reason = fmt.Sprintf("not installed, but needed by the operator of %s: %s", v.Release, some(absent))
	case v.before && len(v.ClusterPolicies) > 0 && v.is("operator.upgradeCRD"):
		f.Severity, f.Cause, f.Fix = check.OK, "", ""
		f.Reason = fmt.Sprintf("lacks fields of %s; helm upgrade adds them because operator.upgradeCRD=true", v.Release)
	default:
		f.Reason = fmt.Sprintf("Helm has not updated it to %s: the API server drops %s", v.Release, some(lacks))
	}
	return []check.Finding{f}
}

// unlisted returns the fields of kind that the release has below path and that schema lacks. If a field is missing, the
// fields below it are not listed. A schema that preserves unknown fields lacks nothing.
func (v *view) unlisted(kind, path string, schema map[string]any) []string {
	var out []string
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	for _, f := range v.Table.Fields(v.Release, kind, path) {
		var below any
		switch name := f.Name(); name {
		case "[]":
			below = schema["items"]
		case "{}":
			below = schema["additionalProperties"]
		default:
			properties, _ := schema["properties"].(map[string]any)
			below = properties[name]
		}
		if inner, ok := below.(map[string]any); ok {
			out = append(out, v.unlisted(kind, f.Path, inner)...)
		} else {
			out = append(out, f.Path)
		}
	}
	return out
}
