package drift

import (
	"cmp"
	"fmt"
	"strings"

	helm "helm.sh/helm/v3/pkg/release"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// release checks a release: its status, its values if values are intended, and its ClusterPolicy.
func (c *comparison) release(h history) {
	c.status(h)
	if c.Intended != nil {
		c.values(h.base())
	}
	c.policy(h.base())
}

func (c *comparison) status(h history) {
	last, base, subject := h.last(), h.base(), "release/"+h.last().Name
	rollback := fmt.Sprintf("helm history %s -n %s", last.Name, last.Namespace)
	compared := ""
	if base != last {
		rollback = fmt.Sprintf("helm rollback %s %s -n %s", last.Name, base.revision(), last.Namespace)
		compared = fmt.Sprintf("; the findings below compare with revision %d, the last deployed one", base.Version)
	}
	say := func(state check.Severity, next, format string, args ...any) {
		reason := last.id() + fmt.Sprintf(format, args...) + compared
		c.add(last.seenStatus(), state, releaseState, subject, reason, next)
	}
	began := last.Info.LastDeployed.Time
	switch status := last.Info.Status; {
	case status == helm.StatusDeployed:
		say(check.OK, "", " is deployed: chart %s, written by %s", last.chartVersion(), last.Writer)
	case status.IsPending() && !began.IsZero() && c.At.Sub(began) < helmTimeout:
		say(check.Waiting, fmt.Sprintf("helm status %s -n %s", last.Name, last.Namespace), " is %s", status)
	case status.IsPending():
		say(check.Error, rollback,
			" has been %s for longer than helm's default timeout of 5 minutes: "+
				"helm was probably interrupted, and answers "+
				"%q until you roll back", status, "another operation (install/upgrade/rollback) is in progress")
	case status == helm.StatusFailed:
		why := strings.TrimSuffix(cmp.Or(last.Info.Description, "helm gives no reason"), ".")
		say(check.Error, rollback, " failed and may be partially applied: %s", why)
	default:
		say(check.Warning, rollback, " is %s, expected deployed", status)
	}
}

// upgrade returns the command that applies the intended values. For a Flux HelmRelease, it says where to change them.
func (c *comparison) upgrade(r *Release) string {
	if c.controller.kind == "HelmRelease" {
		return c.controller.change()
	}
	return strings.TrimSpace(fmt.Sprintf("helm upgrade %s nvidia/gpu-operator -n %s --version %s %s",
		r.Name, r.Namespace, r.chartVersion(), c.Flags))
}

// values compares the intended values with the values of the release.
func (c *comparison) values(r *Release) {
	agreed := 0
	leaves(c.Intended, nil, func(path chart.Path, want any) {
		have, found := r.value(c.Table, path)
		if same(want, have) {
			agreed++
			return
		}
		shown := c.shown(path, have)
		reason := fmt.Sprintf("%s sets %s, but %s ", c.From, c.shown(path, want), r.id())
		if found {
			reason += "has " + shown
		} else {
			reason += "does not have this value"
		}
		c.add(r.seen("%s: %s", path, shown), check.Error, otherValue, path.String(), reason, c.upgrade(r))
	})
	leaves(r.Config, nil, func(path chart.Path, have any) {
		fallback, _ := r.fallback(c.Table, path)
		if named(c.Intended, path) || same(have, fallback) {
			return
		}
		shown := c.shown(path, have)
		c.add(r.seen("%s: %s", path, shown), check.Warning, extraValue, path.String(),
			fmt.Sprintf("%s sets %s, but %s does not; the chart's default is %s",
				r.id(), shown, c.From, c.shown(path, fallback)),
			"add it to the values, or remove it from the release: "+c.upgrade(r))
	})
	if agreed > 0 {
		reason := fmt.Sprintf("%s matches %s of %s", r.id(), check.Count(agreed, "value"), c.From)
		c.add(r.seenStatus(), check.OK, otherValue, "values", reason, "")
	}
}

// named reports whether the tree has a value at the path or at a group around it.
func named(tree map[string]any, path chart.Path) bool {
	var at any = tree
	for _, name := range path {
		m, isMap := at.(map[string]any)
		if !isMap {
			return true // a scalar or list replaces the group
		}
		value, found := m[name]
		if !found {
			return false
		}
		at = value
	}
	return true
}
