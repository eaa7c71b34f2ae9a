package drift

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// version returns the version of the running operator, or of the chart that wrote the ClusterPolicy; zero
// if unknown.
func (j *judging) version(p *unstructured.Unstructured) chart.Version {
	words := []string{p.GetLabels()["app.kubernetes.io/version"], strings.TrimPrefix(p.GetLabels()["helm.sh/chart"], "gpu-operator-")}
	for i := range j.Pods {
		if pod := &j.Pods[i]; operatorPod(pod) && len(pod.Spec.Containers) > 0 {
			words = append([]string{tagOf(pod.Spec.Containers[0].Image)}, words...)
		}
	}
	for _, w := range words {
		if v, err := chart.ParseVersion(w); err == nil {
			return v
		}
	}
	return chart.Version{}
}

// withoutRelease compares what is intended with the ClusterPolicy, by the names of the chart's values.
func (j *judging) withoutRelease() {
	if len(j.ClusterPolicies) == 0 {
		if _, unread := j.missed(cluster.ClusterPolicies); !unread {
			j.add(j.listed(cluster.ClusterPolicies, "0 ClusterPolicies"), report.Failed, "drift-no-policy", "ClusterPolicy", "there is no ClusterPolicy: nothing of the operator is configured", "kubectl get clusterpolicies.nvidia.com", sourceOperator)
		}
		return
	}
	p := j.Policies()[0]
	v, _, err := j.Table.Resolve(j.version(p).String())
	if err != nil {
		v = j.Table.Latest()
	}
	agreed, left := 0, 0
	leaves(j.Intended, nil, func(path chart.Path, want any) {
		f, found := j.Table.PolicyField(v, path)
		if !found {
			left++
			return
		}
		at := strings.Split(f.Path, ".")
		is, _ := get(p.Object, at...)
		if same(want, is) {
			agreed++
			return
		}
		owner := OwnerOf(p.GetManagedFields(), at...)
		j.add(owner.seen("ClusterPolicy/"+p.GetName(), f.Path, shown(path, is)), report.Failed, "drift-value", path.String(),
			fmt.Sprintf("%s says %s, and the ClusterPolicy %s has %s in %s", j.From, shown(path, want), p.GetName(), shown(path, is), f.Path)+owned(p.GetManagedFields(), owner, is), j.change(), sourceOperator)
	})
	if left > 0 {
		j.add(report.Seen("values", j.From, "%s without a field", counted(left, "value")), report.Unknown, "drift-value", "values", fmt.Sprintf("the ClusterPolicy has no field for %s of %s, and without a Helm release there is nothing to compare with", counted(left, "value"), j.From),
			"helm list -A --all", sourceHelm)
	}
	if agreed > 0 {
		j.add(report.Seen("spec", "ClusterPolicy/"+p.GetName(), "%s", counted(agreed, "value")), report.OK, "drift-value", "values", fmt.Sprintf("the ClusterPolicy agrees with %s of %s", counted(agreed, "value"), j.From), "", sourceOperator)
	}
}

func (j *judging) change() string {
	if len(j.controllers) > 0 {
		return j.controllers[0].change()
	}
	return ""
}

// daemonSets are the fields of the operands' DaemonSets that another than the operator wrote: whatever the
// operator writes follows from its ClusterPolicy or NVIDIADriver.
func (j *judging) daemonSets() {
	known, unknown, edited := 0, 0, false
	for i := range j.DaemonSets {
		ds := &j.DaemonSets[i]
		maker := metav1.GetControllerOf(ds)
		if ds.Namespace != j.Namespace || maker == nil || !strings.HasPrefix(maker.APIVersion, "nvidia.com/") {
			continue
		}
		if len(ds.ManagedFields) == 0 {
			unknown++
			continue
		}
		known++
		edited = j.edited(ds, maker.Kind) || edited
	}
	if unknown > 0 {
		j.add(j.listed(cluster.DaemonSets, "%s without managedFields", counted(unknown, "DaemonSet")), report.Unknown, "drift-daemonset-edited", "DaemonSets",
			fmt.Sprintf("who wrote the fields of %s is not known: there are no managedFields", counted(unknown, "DaemonSet")),
			fmt.Sprintf("kubectl get daemonsets -n %s -o yaml --show-managed-fields", j.Namespace), sourceHash)
	}
	if known > 0 && !edited {
		j.add(j.listed(cluster.DaemonSets, "managedFields of %s", counted(known, "DaemonSet")), report.OK, "drift-daemonset-edited", "DaemonSets",
			fmt.Sprintf("no one but the operator wrote the fields of %s", counted(known, "DaemonSet")), "", sourceHash)
	}
}

// edited is a row for each that wrote fields of a DaemonSet beside the operator. It reports whether there is one.
func (j *judging) edited(ds *appsv1.DaemonSet, maker string) bool {
	byOwner := map[Owner][]string{}
	var owners []Owner
	for _, e := range edits(ds.ManagedFields) {
		name := e.name()
		if strings.HasSuffix(name, "annotations.kubectl.kubernetes.io/restartedAt") {
			continue // kubectl rollout restart
		}
		if OwnerOf(ds.ManagedFields, e.path...) != e.owner {
			continue // the operator has written it again since
		}
		if byOwner[e.owner] == nil {
			owners = append(owners, e.owner)
		}
		byOwner[e.owner] = append(byOwner[e.owner], strings.TrimPrefix(name, "spec.template."))
	}
	for _, o := range owners {
		names := byOwner[o]
		more := ""
		if len(names) > 5 {
			more = fmt.Sprintf(" and %d more", len(names)-5)
			names = names[:5]
		}
		subject := "DaemonSet/" + ds.Name
		j.add(report.Seen("managedFields", subject, "%s: %s", o.Manager, strings.Join(names, ", ")).At(o.Time), report.Failed, "drift-daemonset-edited", subject,
			fmt.Sprintf("%s wrote %s%s; the operator does not put it back until the %s changes, as it compares the hash of what it wrote last", o, strings.Join(names, ", "), more, maker),
			// the operator writes a DaemonSet that has no hash
			fmt.Sprintf("kubectl annotate daemonset %s -n %s nvidia.com/last-applied-hash-", ds.Name, ds.Namespace), sourceHash)
	}
	return len(owners) > 0
}

// counted is "1 field" or "3 fields".
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
