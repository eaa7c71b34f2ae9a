package drift

import (
	"cmp"
	"fmt"
	"strings"

	helm "helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// status checks the status of the last revision.
func (c *comparison) status(h history) {
	last, compared := h.last, ""
	in := last.Name + " -n " + last.Namespace
	rollback := "helm history " + in
	if h.base != last {
		rollback = fmt.Sprintf("helm rollback %s %d -n %s", last.Name, h.base.Version, last.Namespace)
		compared = fmt.Sprintf("; the findings below compare with revision %d, the last deployed one", h.base.Version)
	}
	say := func(state check.Severity, next, format string, args ...any) {
		c.add(last.seen("status %s, chart %s", last.Info.Status, last.chartVersion()), state, releaseState,
			"release/"+last.Name, last.id()+fmt.Sprintf(format, args...)+compared, next)
	}
	began := last.Info.LastDeployed.Time
	switch status := last.Info.Status; {
	case status == helm.StatusDeployed:
		say(check.OK, "", " is deployed: chart %s, written by %s", last.chartVersion(), written(last.writer))
	case status.IsPending() && !began.IsZero() && c.At.Sub(began) < helmTimeout:
		say(check.Waiting, "helm status "+in, " is %s", status)
	case status.IsPending():
		say(check.Error, rollback, " has been %s for longer than helm's default timeout of 5 minutes: helm was "+
			"probably interrupted, and answers %q until you roll back",
			status, "another operation (install/upgrade/rollback) is in progress")
	case status == helm.StatusFailed:
		why := strings.TrimSuffix(cmp.Or(last.Info.Description, "helm gives no reason"), ".")
		say(check.Error, rollback, " failed and may be partially applied: %s", why)
	default:
		say(check.Warning, rollback, " is %s, expected deployed", status)
	}
}

// values compares the intended values with the values of the release.
func (c *comparison) values(r *release) {
	// for a Flux HelmRelease, upgrade says where to change the values
	upgrade := strings.TrimSpace(fmt.Sprintf("helm upgrade %s nvidia/gpu-operator -n %s --version %s %s",
		r.Name, r.Namespace, r.chartVersion(), c.Flags))
	if c.controller.kind == "HelmRelease" {
		upgrade = c.controller.change()
	}
	agreed := 0
	walk(nil, c.Intended, r.Config, func(path chart.Path, want, _ any, wanted bool) {
		have, fallback := c.value(r, path, r.Config, r.Chart.Values), c.value(r, path, r.Chart.Values)
		shown := c.shown(path, have)
		switch {
		case !wanted && !same(have, fallback):
			c.add(r.seen("%s: %s", path, shown), check.Warning, extraValue, path.String(),
				fmt.Sprintf("%s sets %s, but %s does not; the chart's default is %s",
					r.id(), shown, c.From, c.shown(path, fallback)),
				"add it to the values, or remove it from the release: "+upgrade)
		case wanted && !same(want, have):
			c.add(r.seen("%s: %s", path, shown), check.Error, otherValue, path.String(),
				fmt.Sprintf("%s sets %s, but %s has %s", c.From, c.shown(path, want), r.id(), shown), upgrade)
		case wanted:
			agreed++
		}
	})
	if agreed > 0 {
		reason := fmt.Sprintf("%s matches %s of %s", r.id(), check.Count(agreed, "value"), c.From)
		c.add(r.seen("chart %s", r.chartVersion()), check.OK, otherValue, "values", reason, "")
	}
}

// value returns the value at a path in the first tree that has it or, if none has it, the default in the table. A
// release does not contain the defaults of subcharts.
func (c *comparison) value(r *release, path chart.Path, trees ...map[string]any) any {
	for _, tree := range trees {
		if v, found, err := unstructured.NestedFieldNoCopy(tree, path...); found && err == nil {
			return v
		}
	}
	v, _, err := c.Table.Resolve(r.chartVersion())
	if err != nil {
		return nil
	}
	value, _ := c.Table.Default(v, path.String())
	return value
}
