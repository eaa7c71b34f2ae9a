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
		if c := v.CRD(string(k.Kind)); c != nil && c.Schema != nil {
			if missing := v.unlisted(k.Name, "", c.Schema); len(missing) > 0 {
				stale, lacks = append(stale, c.Name), append(lacks, missing...)
			}
		} else if !v.before && v.why(k.Kind) == cluster.Absent && len(v.Table.Fields(v.Release, k.Name, "")) > 0 {
			absent = append(absent, string(k.Kind))
		}
	}
	if len(stale)+len(absent) == 0 {
		return nil
	}
	f := check.Finding{Check: crdStale, Cause: "CustomResourceDefinitions",
		Subject: "CustomResourceDefinition/" + strings.Join(append(stale, absent...), ", "),
		Evidence: v.listed(cluster.CRDs, "%d fields of %s are missing; not installed: %s",
			len(lacks), v.Release, cmp.Or(some(absent), "none"))}
	say(&f, check.Error, "helm show crds gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version "+
		v.Release.String()+" | kubectl apply --server-side --force-conflicts -f -",
		"Helm has not updated it to %s: the API server drops %s", v.Release, some(lacks))
	if len(absent) > 0 {
		f.Reason = fmt.Sprintf("not installed, but needed by the operator of %s: %s", v.Release, some(absent))
	} else if v.before && len(v.ClusterPolicies) > 0 && v.is("operator.upgradeCRD") {
		say(&f, check.OK, "", "helm upgrade adds the fields of %s because operator.upgradeCRD=true", v.Release)
	}
	return []check.Finding{f}
}

// unlisted returns the fields of kind that the release has below path and that schema lacks. If a field is missing, the
// fields below it are not listed. A schema that preserves unknown fields lacks nothing.
func (v *view) unlisted(kind, path string, schema map[string]any) (out []string) {
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	for _, f := range v.Table.Fields(v.Release, kind, path) {
		properties, _ := schema["properties"].(map[string]any)
		below := properties[f.Name()]
		switch f.Name() {
		case "[]":
			below = schema["items"]
		case "{}":
			below = schema["additionalProperties"]
		}
		if inner, ok := below.(map[string]any); ok {
			out = append(out, v.unlisted(kind, f.Path, inner)...)
		} else {
			out = append(out, f.Path)
		}
	}
	return out
}
