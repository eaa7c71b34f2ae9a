package values

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
)

// Migration is a values file for another release, with the list of changes.
type Migration struct {
	From    chart.Version `json:"from"`
	To      chart.Version `json:"to"`
	Changes []Change      `json:"changes"`
	// YAML is the new values file. It keeps comments, blank lines and order.
	YAML string `json:"values"`
	// Report has the findings that remain. The user must decide about them.
	Report check.Report `json:"-"`
}

// Change is a line of the list of changes.
type Change struct {
	// Kind is dropped, renamed, set, begins or default. "set" means a new value. "begins" means that the old release
	// ignored the setting. "default" means that a default has changed and the file does not set the value.
	Kind string `json:"kind"`
	Path string `json:"path"`
	Text string `json:"text"`
}

// ErrNoValues is returned for other files that may nest values, such as a HelmRelease or a helmfile.
var ErrNoValues = errors.New("not a values file of the chart")

// ErrDowngrade is returned if the target release is older than the file's.
var ErrDowngrade = errors.New("downgrade")

// Migrate rewrites a values file for another release. A file that is not a YAML mapping is only checked, and YAML is
// empty. If the target is older and downgrade is not set, Migrate returns ErrDowngrade, because CRDs and defaults of
// the newer release stay in the cluster.
func Migrate(table *chart.Table, name string, data []byte, from, to chart.Version, downgrade bool) (*Migration, error) {
	if to.Before(from) && !downgrade {
		return nil, fmt.Errorf("%w: %s is older than %s", ErrDowngrade, to, from)
	}
	m := &Migration{From: from, To: to}
	edits, rest := lint.Edits(table, name, data, to)
	var doc yaml.Node
	err := yaml.Unmarshal(data, &doc)
	if err != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		m.Report.Add(rest...)
		return m, nil
	}
	inner, instead := model.ValuesOf(doc.Content[0])
	if instead != "" {
		return nil, fmt.Errorf("%s: %w: it is %s; write its values to a file of their own", name, ErrNoValues, instead)
	}
	var below chart.Path // the path of the values in an umbrella chart
	if inner != doc.Content[0] {
		below = chart.Path{model.OperatorNamespace}
	}
	settings, _ := model.Settings(name, data, nil)
	for _, s := range settings {
		before, now := table.Lookup(from, s.Path).Status, table.Lookup(to, s.Path).Status
		if now == chart.Known && (before == chart.NotYet || before == chart.Gone) {
			m.change("begins", s.Path, "ignored by %s, but used by %s: %v", from, to, s.Value)
		}
	}
	// an edit may reveal other problems, so check again
	for round := 0; len(edits) > 0 && round < 5; round++ {
		var list []fix.Edit
		for _, e := range edits {
			list = append(list, e.Edit)
			m.edited(e, table.Lookup(from, e.Path).Status == chart.Known)
		}
		if data, err = fix.Apply(data, below, list); err != nil {
			return nil, err
		}
		edits, rest = lint.Edits(table, name, data, to)
	}
	m.YAML = string(data)
	m.Report.Add(rest...)
	slices.SortStableFunc(m.Changes, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	m.defaults(table, settings)
	return m, nil
}

// ChangesEffect reports whether any setting was dropped, or takes effect only in the new release.
func (m *Migration) ChangesEffect() bool {
	return slices.ContainsFunc(m.Changes, func(c Change) bool { return c.Kind == "dropped" || c.Kind == "begins" })
}

func (m *Migration) change(kind string, path chart.Path, format string, args ...any) {
	m.Changes = append(m.Changes, Change{kind, path.String(), fmt.Sprintf(format, args...)})
}

// edited adds an edit to the list of changes. worked means that the old release reads the setting at its old path.
func (m *Migration) edited(e lint.Edit, worked bool) {
	switch {
	case e.Rename != nil && !worked:
		m.change("begins", e.Path, "ignored by %s; now named %s, and used by %s", m.From, e.Rename, m.To)
	case e.Drop:
		m.change("dropped", e.Path, "%s", e.Finding.Reason)
	case e.Rename != nil:
		m.change("renamed", e.Path, "renamed to %s", e.Rename)
	case e.Value != nil:
		m.change("set", e.Path, "%s; now %s", e.Finding.Reason, *e.Value)
	}
}

// defaults lists defaults that differ between the releases and that the file does not override.
func (m *Migration) defaults(table *chart.Table, settings []chart.Setting) {
	for _, k := range table.Keys(m.To) {
		before, known := k.Default(m.From)
		now, nowKnown := k.Default(m.To)
		set := slices.ContainsFunc(settings, func(s chart.Setting) bool { return slices.Equal(s.Path, k.Path) })
		if set || !known || !nowKnown || !k.In(m.From) || reflect.DeepEqual(before, now) {
			continue
		}
		was, _ := json.Marshal(before) // defaults always marshal
		is, _ := json.Marshal(now)
		hint, major := "", strings.SplitAfter(fmt.Sprint(before), ".")[0]
		if k.Path.String() == "driver.version" && !strings.HasPrefix(fmt.Sprint(now), major) {
			hint = ": the driver's major version changes; set the old version to keep it"
		}
		m.change("default", k.Path, "was %s, is %s%s", was, is, hint)
	}
}
