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
func (j *judge) staleCRDs() {
	if j.by == verify && !j.installed {
		return // the installed release is not known exactly
	}
	var stale, absent, lacks []string
	for _, k := range cluster.OperatorKinds {
		fields := j.Table.Fields(j.Release, k.Name, "")
		c := j.CRD(string(k.Kind))
		switch {
		case len(fields) == 0: // the release does not have the kind
		case c != nil && c.Schema != nil:
			if missing := j.unlisted(k.Name, "", c.Schema); len(missing) > 0 {
				stale, lacks = append(stale, c.Name), append(lacks, missing...)
			}
		case j.by == verify && j.absent(k.Kind):
			absent = append(absent, string(k.Kind))
		}
	}
	if len(stale)+len(absent) == 0 {
		return
	}
	v := check.Finding{
		Check: crdStale, Severity: check.Error, Cause: "CustomResourceDefinitions",
		Subject: "CustomResourceDefinition/" + strings.Join(append(stale, absent...), ", "),
		Fix: fmt.Sprintf("helm show crds gpu-operator --repo https://helm.ngc.nvidia.com/nvidia --version %s | "+
			"kubectl apply --server-side --force-conflicts -f -", j.Release),
		Evidence: j.listed(cluster.CRDs, "%d fields of %s are missing; not installed: %s",
			len(lacks), j.Release, cmp.Or(some(absent), "none")),
	}
	switch {
	case len(absent) > 0:
		v.Reason = fmt.Sprintf("not installed, but needed by the operator of %s: %s", j.Release, some(absent))
	case j.by == preflight && len(j.ClusterPolicies) > 0 && j.is("operator.upgradeCRD"):
		v.Severity, v.Cause, v.Fix = check.OK, "", ""
		v.Reason = fmt.Sprintf("lacks fields of %s; helm upgrade adds them because operator.upgradeCRD=true", j.Release)
	default:
		v.Reason = fmt.Sprintf("Helm has not updated it to %s: the API server drops %s", j.Release, some(lacks))
	}
	j.add(v)
}

// unlisted returns the fields of kind that the release has below path and that schema lacks. If a field is missing, the
// fields below it are not listed. A schema that preserves unknown fields lacks nothing.
func (j *judge) unlisted(kind, path string, schema map[string]any) []string {
	var out []string
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		return nil
	}
	for _, f := range j.Table.Fields(j.Release, kind, path) {
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
			out = append(out, j.unlisted(kind, f.Path, inner)...)
		} else {
			out = append(out, f.Path)
		}
	}
	return out
}
