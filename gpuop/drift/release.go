package drift

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	helm "helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// release judges one release: its state, its values, and what its manifest has become.
func (j *judging) release(h history) {
	base := h.base()
	j.status(h)
	j.operator(base)
	if j.Intended != nil {
		j.values(base)
	}
	for _, o := range base.Objects {
		j.object(base, o)
	}
}

func (j *judging) status(h history) {
	last, subject := h.last(), "release/"+h.last().Name
	deployed := h.deployed()
	rollback := fmt.Sprintf("helm history %s -n %s", last.Name, last.Namespace)
	compared := ""
	if deployed != nil && deployed != last {
		rollback = fmt.Sprintf("helm rollback %s %s -n %s", last.Name, revision(deployed), last.Namespace)
		compared = fmt.Sprintf("; the rows below compare with revision %d, the last that was deployed", deployed.Revision)
	}
	say := func(state report.State, next, format string, args ...any) {
		j.add(last.seen(), state, "drift-release", subject, last.id()+fmt.Sprintf(format, args...)+compared, next, sourceHelm)
	}
	switch status := last.Status; {
	case status == helm.StatusDeployed:
		say(report.OK, "", " is deployed: chart %s, written by %s", last.Chart, last.Writer)
	case status.IsPending() && !last.Deployed.IsZero() && j.At.Sub(last.Deployed) < helmTimeout:
		say(report.Waiting, fmt.Sprintf("helm status %s -n %s", last.Name, last.Namespace), " is %s", status)
	case status.IsPending():
		say(report.Failed, rollback, " is %s, longer than an operation of helm takes: it was interrupted, and until it is rolled back helm refuses another with %q",
			status, "another operation (install/upgrade/rollback) is in progress")
	case status == helm.StatusFailed:
		say(report.Failed, rollback, " has failed, and may have been applied in part: %s", strings.TrimSuffix(cmp.Or(last.Description, "helm gives no reason"), "."))
	default:
		say(report.Warning, rollback, " is %s, expected deployed", status)
	}
}

// operator compares the operator that runs with the one that the release installed.
func (j *judging) operator(r *Release) {
	want := ""
	for _, o := range r.Objects {
		if o["kind"] != "Deployment" || text(o, "metadata", "name") != "gpu-operator" {
			continue
		}
		containers, _ := get(o, "spec", "template", "spec", "containers")
		if list, _ := containers.([]any); len(list) > 0 {
			first, _ := list[0].(map[string]any)
			want = text(first, "image")
		}
	}
	if _, unread := j.missed(cluster.Pods); unread || want == "" {
		return
	}
	images := map[string]bool{}
	for i := range j.Pods {
		p := &j.Pods[i]
		if !operatorPod(p) || p.Namespace != r.Namespace {
			continue
		}
		for _, c := range p.Spec.Containers {
			if c.Name != "gpu-operator" || images[c.Image] {
				continue
			}
			images[c.Image] = true
			seen := report.Seen("spec", "Pod/"+p.Name, "image %s", c.Image)
			if c.Image != want {
				j.add(seen, report.Failed, "drift-operator-image", "Pod/"+p.Name,
					fmt.Sprintf("the running operator is %s, and %s of chart %s installs %s: its Deployment was changed, or has not rolled out", c.Image, r.id(), r.Chart, want),
					fmt.Sprintf("kubectl rollout status deployment/gpu-operator -n %s", r.Namespace), sourceOperator)
				continue
			}
			j.add(seen, report.OK, "drift-operator-image", "Pod/"+p.Name, fmt.Sprintf("the running operator is %s, as the release installs it", c.Image), "", sourceOperator)
		}
	}
	if len(images) == 0 {
		j.add(j.listed(cluster.Pods, "none of %d is the operator's", len(j.Pods)), report.Failed, "drift-operator-image", "Deployment/gpu-operator", fmt.Sprintf("no pod of the operator runs in the namespace %s: what the ClusterPolicy says is not carried out", r.Namespace),
			fmt.Sprintf("kubectl describe deployment gpu-operator -n %s", r.Namespace), sourceOperator)
		return
	}
	if tag := tagOf(want); strings.TrimPrefix(tag, "v") != strings.TrimPrefix(cmp.Or(r.App, r.Chart), "v") && !strings.Contains(want, "@") {
		j.add(report.Seen("release", r.seen().Object, "image %s", want), report.Warning, "drift-operator-version", "operator.version", fmt.Sprintf("chart %s installs the operator %s: its CRDs and templates are made for %s", r.Chart, tag, cmp.Or(r.App, r.Chart)),
			"leave operator.version out, or install the chart of that version", sourceOperator)
	}
}

func operatorPod(p *corev1.Pod) bool {
	return p.Labels["app"] == "gpu-operator" || p.Labels["app.kubernetes.io/component"] == "gpu-operator"
}

// tagOf is the tag of an image's name; "" without one.
func tagOf(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

// upgrade is the command that makes a release what is intended.
func (j *judging) upgrade(r *Release) string {
	if i := slices.IndexFunc(j.controllers, func(c controller) bool { return c.kind == "HelmRelease" }); i >= 0 {
		return j.controllers[i].change()
	}
	return strings.TrimSpace(fmt.Sprintf("helm upgrade %s nvidia/gpu-operator -n %s --version %s %s", r.Name, r.Namespace, r.Chart, j.Flags))
}

// values compares what is intended with what the release was given.
func (j *judging) values(r *Release) {
	agreed := 0
	version, known := r.version(j.Table)
	leaves(j.Intended, nil, func(path chart.Path, want any) {
		have, found := r.value(j.Table, path)
		if same(want, have) {
			agreed++
			return
		}
		id, reason, next := "drift-value", fmt.Sprintf("%s says %s, and %s has %s", j.From, shown(path, want), r.id(), shown(path, have)), j.upgrade(r)
		if !found {
			reason = fmt.Sprintf("%s says %s, and %s has no such value", j.From, shown(path, want), r.id())
		}
		if known && !found && j.unknown(version, path) {
			id, next = "drift-value-unknown", "gpuop lint --version "+version.String()+" FILE"
			reason += fmt.Sprintf("; the chart %s does not know the key", r.Chart)
		}
		j.add(report.Seen("release", r.seen().Object, "%s: %s", path, shown(path, have)).At(r.Deployed), report.Failed, id, path.String(), reason, next, sourceHelm)
	})
	leaves(r.Config, nil, func(path chart.Path, have any) {
		if named(j.Intended, path) {
			return
		}
		deflt, _ := r.fallback(j.Table, path)
		if same(have, deflt) {
			return
		}
		j.add(report.Seen("release", r.seen().Object, "%s: %s", path, shown(path, have)).At(r.Deployed), report.Warning, "drift-value-extra", path.String(),
			fmt.Sprintf("%s was given %s, which %s does not name: without it the chart's default is %s", r.id(), shown(path, have), j.From, shown(path, deflt)),
			"add it to the values, or: "+j.upgrade(r), sourceHelm)
	})
	if agreed > 0 {
		j.add(r.seen(), report.OK, "drift-value", "values", fmt.Sprintf("%s agrees with %s of %s", r.id(), counted(agreed, "value"), j.From), "", sourceHelm)
	}
}

// unknown reports whether neither values.yaml nor a template of the release knows the path or what is
// below or above it.
func (j *judging) unknown(v chart.Version, path chart.Path) bool {
	return slices.Contains([]chart.Status{chart.Unknown, chart.NotYet, chart.Gone, chart.GroupGone, chart.Misspelt, chart.TooDeep}, j.Table.Judge(v, path).Status)
}

// named reports whether the tree has a value at the path, above it, or a group in its place.
func named(tree map[string]any, path chart.Path) bool {
	var at any = tree
	for _, name := range path {
		m, isMap := at.(map[string]any)
		if !isMap {
			return true // a value in the place of the group
		}
		value, found := m[name]
		if !found {
			return false
		}
		at = value
	}
	return true
}
