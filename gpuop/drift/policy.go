package drift

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
)

// version is that of the operator which runs or which wrote the ClusterPolicy; zero where nothing says
// it.
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
			j.add(j.listed(cluster.ClusterPolicies, "0 ClusterPolicies"), verdict.Failed, "drift-no-policy", "ClusterPolicy", "there is no ClusterPolicy: nothing of the operator is configured", "kubectl get clusterpolicies.nvidia.com", sourceOperator)
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
		have, _ := get(p.Object, at...)
		if same(want, have) {
			agreed++
			return
		}
		owner := OwnerOf(p.GetManagedFields(), at...)
		seen := owner.seen("ClusterPolicy/"+p.GetName(), f.Path, nil)
		seen.Text = fmt.Sprintf("%s: %s, written by %s", f.Path, shown(path, have), owner)
		j.add(seen, verdict.Failed, "drift-value", path.String(),
			fmt.Sprintf("%s says %s, and the ClusterPolicy %s has %s in %s", j.From, shown(path, want), p.GetName(), shown(path, have), f.Path)+owned(p.GetManagedFields(), owner, have), j.change(), sourceOperator)
	})
	if left > 0 {
		j.add(verdict.Seen("values", j.From, "%s without a field", counted(left, "value")), verdict.Unknown, "drift-value", "values", fmt.Sprintf("%s of %s %s no field of the ClusterPolicy, and without a Helm release there is nothing to compare with", counted(left, "value"), j.From, map[bool]string{true: "has", false: "have"}[left == 1]),
			"helm list -A --all", sourceHelm)
	}
	if agreed > 0 {
		j.add(verdict.Seen("spec", "ClusterPolicy/"+p.GetName(), "%s", counted(agreed, "value")), verdict.OK, "drift-value", "values", fmt.Sprintf("%s of %s %s what the ClusterPolicy has", counted(agreed, "value"), j.From, are(agreed)), "", sourceOperator)
	}
}

func (j *judging) change() string {
	if len(j.controllers) > 0 {
		return j.controllers[0].change()
	}
	return ""
}

// policy compares a ClusterPolicy with the DaemonSets that the operator makes of it.
func (j *judging) policy(p *unstructured.Unstructured) {
	if inForce := j.Policies()[0]; p != inForce {
		owner := OwnerOf(p.GetManagedFields(), "spec")
		j.add(j.listed(cluster.ClusterPolicies, "%d ClusterPolicies", len(j.ClusterPolicies)), verdict.Warning, "drift-policy-ignored", "ClusterPolicy/"+p.GetName(), fmt.Sprintf("the operator acts on %s and ignores this one", inForce.GetName())+owned(p.GetManagedFields(), owner, p.Object["spec"]),
			"kubectl delete clusterpolicy "+p.GetName(), "gpu-operator controllers/clusterpolicy_controller.go")
		return
	}
	if j.DaemonSets == nil {
		return
	}
	spec, _ := p.Object["spec"].(map[string]any)
	version := j.version(p)
	operands, seen := j.operands(version), map[string]bool{}
	for i := range j.DaemonSets {
		ds := &j.DaemonSets[i]
		at := slices.IndexFunc(operands, func(o chart.Operand) bool { return makes(o, ds.Name) })
		if at < 0 || ds.Namespace != j.Namespace {
			continue
		}
		op := operands[at]
		seen[op.DaemonSet] = true
		if owner := metav1.GetControllerOf(ds); owner != nil && owner.Kind != "ClusterPolicy" {
			continue // an NVIDIADriver's
		}
		j.daemonSet(p, spec, ds, op, version)
	}
	j.absent(p, spec, operands, seen)
}

func (j *judging) daemonSet(p *unstructured.Unstructured, spec map[string]any, ds *appsv1.DaemonSet, op chart.Operand, version chart.Version) {
	subject := "DaemonSet/" + ds.Name
	if why, key, _ := excluded(op, spec); why != "" {
		v := j.add(j.listed(cluster.DaemonSets, "%s", ds.Name), verdict.Failed, "drift-daemonset-left", subject, fmt.Sprintf("ClusterPolicy %s %s, and the DaemonSet is still there", p.GetName(), why),
			fmt.Sprintf("kubectl logs -n %s deployment/gpu-operator", j.Namespace), sourceOperator)
		j.settle(v, OwnerOf(p.GetManagedFields(), append([]string{"spec"}, key...)...))
		return
	}
	differences, checked := compare(spec, ds, op, version)
	reported := map[string]bool{}
	for _, d := range differences {
		owner := OwnerOf(ds.ManagedFields, d.path...)
		reported[edit{path: d.path}.name()] = true
		reason := fmt.Sprintf("ClusterPolicy %s specifies %s in %s, and the DaemonSet has %s", p.GetName(), show(d.want), d.from, show(d.have)) + owned(ds.ManagedFields, owner, d.have)
		next, source := fmt.Sprintf("kubectl logs -n %s deployment/gpu-operator", j.Namespace), sourceOperator
		if owner.Manager != "" && !slices.Contains(operators, owner.Manager) {
			reason += "; the operator does not put it back until the ClusterPolicy changes, as it compares the hash of what it wrote last"
			next, source = j.rewrite(ds), sourceHash
		}
		v := j.add(owner.seen(subject, d.field, d.have), verdict.Failed, "drift-daemonset", subject+" "+d.field, reason, next, source)
		if slices.Contains(operators, owner.Manager) || owner.Manager == "" {
			j.settle(v, OwnerOf(p.GetManagedFields(), append([]string{"spec"}, strings.Split(d.from, ".")...)...))
		}
	}
	j.edited(ds, subject, reported)
	if left := checked - len(differences); left > 0 {
		j.add(verdict.Seen("spec", subject, "%s", counted(left, "field")), verdict.OK, "drift-daemonset", subject, fmt.Sprintf("%s %s as ClusterPolicy %s specifies", counted(left, "field"), are(left), p.GetName()), "", sourceOperator)
	}
	j.rolledOut(ds, subject)
}

// rewrite makes the operator write the DaemonSet again: it does so where its own hash is not there.
func (j *judging) rewrite(ds *appsv1.DaemonSet) string {
	return fmt.Sprintf("kubectl annotate daemonset %s -n %s nvidia.com/last-applied-hash-", ds.Name, ds.Namespace)
}

// settle turns a failure into waiting where the ClusterPolicy's field was written so recently that the
// operator may be about to follow.
func (j *judging) settle(v *verdict.Verdict, changed Owner) {
	if changed.Time.IsZero() {
		if all := j.Policies(); len(all) > 0 {
			p := all[0]
			changed = OwnerOf(p.GetManagedFields(), "spec")
		}
	}
	if changed.Time.IsZero() || j.At.Sub(changed.Time) >= settling {
		return
	}
	v.State = verdict.Waiting
	v.Reason += fmt.Sprintf("; the ClusterPolicy was written by %s, and the operator may be about to follow", changed)
	v.Since = changed.Time
}

// edited are the fields of a DaemonSet that another than the operator wrote, and that the
// ClusterPolicy says nothing about.
func (j *judging) edited(ds *appsv1.DaemonSet, subject string, reported map[string]bool) {
	byOwner := map[Owner][]string{}
	var owners []Owner
	for _, e := range edits(ds.ManagedFields, operators) {
		name := e.name()
		if strings.HasSuffix(name, "annotations.kubectl.kubernetes.io/restartedAt") || reported[name] {
			continue // kubectl rollout restart, or a row of its own
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
		j.add(verdict.Seen("managedFields", subject, "%s: %s", o.Manager, strings.Join(names, ", ")).At(o.Time), verdict.Failed, "drift-daemonset-edited", subject,
			fmt.Sprintf("%s wrote %s%s; the operator does not put it back until the ClusterPolicy changes, as it compares the hash of what it wrote last", o, strings.Join(names, ", "), more), j.rewrite(ds), sourceHash)
	}
}

// rolledOut compares the DaemonSet with its pods.
func (j *judging) rolledOut(ds *appsv1.DaemonSet, subject string) {
	s := ds.Status
	if s.DesiredNumberScheduled == 0 || s.UpdatedNumberScheduled >= s.DesiredNumberScheduled {
		return
	}
	old := s.DesiredNumberScheduled - s.UpdatedNumberScheduled
	seen := verdict.Seen("status", subject, "desired %d, updated %d", s.DesiredNumberScheduled, s.UpdatedNumberScheduled)
	if ds.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		j.add(seen, verdict.Warning, "drift-not-rolled-out", subject,
			fmt.Sprintf("%d of %d pods run an older template, and the DaemonSet replaces a pod only when it is deleted: the driver's upgrade controller does so, node by node", old, s.DesiredNumberScheduled),
			"kubectl get nodes -L nvidia.com/gpu-driver-upgrade-state", sourceOperator)
		return
	}
	j.add(seen, verdict.Waiting, "drift-not-rolled-out", subject, fmt.Sprintf("%d of %d pods run an older template", old, s.DesiredNumberScheduled),
		fmt.Sprintf("kubectl rollout status daemonset/%s -n %s", ds.Name, ds.Namespace), sourceOperator)
}

// absent are the operands that are enabled and have no DaemonSet. Without a GPU node the operator makes
// none.
func (j *judging) absent(p *unstructured.Unstructured, spec map[string]any, operands []chart.Operand, seen map[string]bool) {
	if !slices.ContainsFunc(j.Nodes, func(n corev1.Node) bool { return n.Labels["nvidia.com/gpu.present"] == "true" }) {
		return
	}
	custom, _ := get(spec, "driver", "useNvidiaDriverCRD")
	for _, op := range operands {
		why, _, said := excluded(op, spec)
		if why != "" || !said || seen[op.DaemonSet] || op.Main().System && custom == true || strings.HasSuffix(op.DaemonSet, "mps-control-daemon") {
			continue
		}
		v := j.add(j.listed(cluster.DaemonSets, "no %s among %d", op.DaemonSet, len(j.DaemonSets)), verdict.Failed, "drift-daemonset-missing", "DaemonSet/"+op.DaemonSet, fmt.Sprintf("ClusterPolicy %s enables %s, there are GPU nodes, and the DaemonSet is not there", p.GetName(), op.Settings),
			fmt.Sprintf("kubectl logs -n %s deployment/gpu-operator", j.Namespace), sourceOperator)
		j.settle(v, OwnerOf(p.GetManagedFields(), "spec", op.Settings, "enabled"))
	}
}

// drivers compares NVIDIADrivers with their DaemonSets.
func (j *judging) drivers() {
	for i := range j.NVIDIADrivers {
		d := &j.NVIDIADrivers[i]
		spec, _ := d.Object["spec"].(map[string]any)
		repository, image, version := text(spec, "repository"), text(spec, "image"), text(spec, "version")
		if image == "" || version == "" {
			continue
		}
		want := strings.Trim(repository+"/"+image, "/") + ":" + version
		for k := range j.DaemonSets {
			ds := &j.DaemonSets[k]
			owner := metav1.GetControllerOf(ds)
			if owner == nil || owner.Kind != "NVIDIADriver" || owner.Name != d.GetName() {
				continue
			}
			for _, c := range ds.Spec.Template.Spec.Containers {
				if c.Name != "nvidia-driver-ctr" {
					continue
				}
				subject := "DaemonSet/" + ds.Name + " containers[" + c.Name + "].image"
				if c.Image == want || strings.HasPrefix(c.Image, want+"-") {
					j.add(verdict.Seen("spec", "DaemonSet/"+ds.Name, "image %s", c.Image), verdict.OK, "drift-daemonset", subject, fmt.Sprintf("it is %s, as NVIDIADriver %s specifies", finding.OneLine(c.Image), d.GetName()), "", sourceOperator)
					continue
				}
				by := OwnerOf(ds.ManagedFields, "spec", "template", "spec", "containers", element(c.Name), "image")
				v := j.add(by.seen("DaemonSet/"+ds.Name, "image", c.Image), verdict.Failed, "drift-daemonset", subject, fmt.Sprintf("NVIDIADriver %s specifies %s, and the DaemonSet has %s", d.GetName(), want, c.Image)+owned(ds.ManagedFields, by, c.Image),
					fmt.Sprintf("kubectl logs -n %s deployment/gpu-operator", j.Namespace), sourceOperator)
				j.settle(v, OwnerOf(d.GetManagedFields(), "spec", "version"))
			}
		}
	}
}
