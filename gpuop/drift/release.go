package drift

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	helm "helm.sh/helm/v3/pkg/release"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// release judges one release: its state, its values, and what its manifest has become.
func (j *judging) release(h history) {
	base := h.base()
	j.status(h)
	if j.Intended != nil {
		j.values(base)
	}
	for _, o := range base.Objects {
		j.object(base, o)
	}
}

func (j *judging) status(h history) {
	last, base, subject := h.last(), h.base(), "release/"+h.last().Name
	rollback := fmt.Sprintf("helm history %s -n %s", last.Name, last.Namespace)
	compared := ""
	if base != last {
		rollback = fmt.Sprintf("helm rollback %s %s -n %s", last.Name, base.revision(), last.Namespace)
		compared = fmt.Sprintf("; the rows below compare with revision %d, the last that was deployed", base.Version)
	}
	say := func(state report.State, next, format string, args ...any) {
		reason := last.id() + fmt.Sprintf(format, args...) + compared
		j.add(last.seen(""), state, "drift-release", subject, reason, next, sourceHelm)
	}
	began := last.Info.LastDeployed.Time
	switch status := last.Info.Status; {
	case status == helm.StatusDeployed:
		say(report.OK, "", " is deployed: chart %s, written by %s", last.chartVersion(), last.Writer)
	case status.IsPending() && !began.IsZero() && j.At.Sub(began) < helmTimeout:
		say(report.Waiting, fmt.Sprintf("helm status %s -n %s", last.Name, last.Namespace), " is %s", status)
	case status.IsPending():
		say(report.Failed, rollback, " is %s, longer than an operation of helm takes: it was interrupted, and until it is "+
			"rolled back helm refuses another with %q", status, "another operation (install/upgrade/rollback) is in progress")
	case status == helm.StatusFailed:
		why := strings.TrimSuffix(cmp.Or(last.Info.Description, "helm gives no reason"), ".")
		say(report.Failed, rollback, " has failed, and may have been applied in part: %s", why)
	default:
		say(report.Warning, rollback, " is %s, expected deployed", status)
	}
}

// upgrade is the command that makes a release what is intended.
func (j *judging) upgrade(r *Release) string {
	i := slices.IndexFunc(j.controllers, func(c controller) bool { return c.kind == "HelmRelease" })
	if i >= 0 {
		return j.controllers[i].change()
	}
	return strings.TrimSpace(fmt.Sprintf("helm upgrade %s nvidia/gpu-operator -n %s --version %s %s",
		r.Name, r.Namespace, r.chartVersion(), j.Flags))
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
		id, next := report.ID("drift-value"), j.upgrade(r)
		reason := fmt.Sprintf("%s says %s, and %s has %s", j.From, shown(path, want), r.id(), shown(path, have))
		if !found {
			reason = fmt.Sprintf("%s says %s, and %s has no such value", j.From, shown(path, want), r.id())
		}
		if known && !found && j.unknown(version, path) {
			id, next = "drift-value-unknown", "gpuop lint --version "+version.String()+" FILE"
			reason += fmt.Sprintf("; the chart %s does not know the key", r.chartVersion())
		}
		seen := r.seen("%s: %s", path, shown(path, have))
		j.add(seen, report.Failed, id, path.String(), reason, next, sourceHelm)
	})
	leaves(r.Config, nil, func(path chart.Path, have any) {
		deflt, _ := r.fallback(j.Table, path)
		if named(j.Intended, path) || same(have, deflt) {
			return
		}
		j.add(r.seen("%s: %s", path, shown(path, have)), report.Warning, "drift-value-extra", path.String(),
			fmt.Sprintf("%s was given %s, which %s does not name: without it the chart's default is %s",
				r.id(), shown(path, have), j.From, shown(path, deflt)),
			"add it to the values, or: "+j.upgrade(r), sourceHelm)
	})
	if agreed > 0 {
		reason := fmt.Sprintf("%s agrees with %s of %s", r.id(), counted(agreed, "value"), j.From)
		j.add(r.seen(""), report.OK, "drift-value", "values", reason, "", sourceHelm)
	}
}

// unknown reports whether neither values.yaml nor a template of the release knows the path or what is
// below or above it.
func (j *judging) unknown(v chart.Version, path chart.Path) bool {
	unknown := []chart.Status{chart.Unknown, chart.NotYet, chart.Gone, chart.Misspelt, chart.TooDeep}
	return slices.Contains(unknown, j.Table.Judge(v, path).Status)
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
