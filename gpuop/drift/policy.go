package drift

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// withoutRelease compares what is intended with the ClusterPolicy, by the names of the chart's values.
func (j *judging) withoutRelease() {
	if len(j.ClusterPolicies) == 0 {
		if !j.unread(cluster.ClusterPolicies) {
			j.add(j.listed(cluster.ClusterPolicies, "0 ClusterPolicies"), report.Failed, "drift-no-policy", "ClusterPolicy",
				"there is no ClusterPolicy: nothing of the operator is configured",
				"kubectl get clusterpolicies.nvidia.com", sourceOperator)
		}
		return
	}
	p := j.Policies()[0]
	release, known := j.Table.Labeled(p.GetLabels())
	if !known {
		release = j.Table.Latest()
	}
	agreed, left, change := 0, 0, ""
	if len(j.controllers) > 0 {
		change = j.controllers[0].change()
	}
	subject, fields := "ClusterPolicy/"+p.GetName(), p.GetManagedFields()
	leaves(j.Intended, nil, func(path chart.Path, want any) {
		f, found := j.Table.PolicyField(release, path)
		if !found {
			left++
			return
		}
		at := strings.Split(f.Path, ".")
		is, _, _ := unstructured.NestedFieldNoCopy(p.Object, at...)
		if same(want, is) {
			agreed++
			return
		}
		owner := OwnerOf(fields, at...)
		reason := fmt.Sprintf("%s says %s, and the ClusterPolicy %s has %s in %s",
			j.From, shown(path, want), p.GetName(), shown(path, is), f.Path) + owned(fields, owner, is)
		j.add(owner.seen(subject, f.Path, shown(path, is)), report.Failed, "drift-value", path.String(),
			reason, change, sourceOperator)
	})
	if left > 0 {
		count := counted(left, "value")
		j.add(report.Seen("values", j.From, "%s without a field", count), report.Unknown, "drift-value", "values",
			fmt.Sprintf("the ClusterPolicy has no field for %s of %s, and without a Helm release there is nothing to "+
				"compare with", count, j.From), "helm list -A --all", sourceHelm)
	}
	if agreed > 0 {
		count := counted(agreed, "value")
		j.add(report.Seen("spec", subject, "%s", count), report.OK, "drift-value", "values",
			fmt.Sprintf("the ClusterPolicy agrees with %s of %s", count, j.From), "", sourceOperator)
	}
}

// counted is "1 field" or "3 fields".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
