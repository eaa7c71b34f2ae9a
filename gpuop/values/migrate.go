package values

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// A Migration is a values file for another release, and what is different.
type Migration struct {
	From    chart.Version `json:"from"`
	To      chart.Version `json:"to"`
	Changes []Change      `json:"changes"`
	// YAML is the new values file; comments, blank lines and order are the old one's.
	YAML string `json:"values"`
	// Report is what remains wrong and cannot be put right without a decision.
	Report report.Report `json:"-"`

	table *chart.Table
	// below is where an umbrella chart has the values.
	below chart.Path
}

// A Change is one line of the change list.
type Change struct {
	// Kind is dropped, renamed, set, begins (a setting that the old release ignored), default (a
	// default that the file leaves alone and that is another now) or new (a key that the old
	// release does not have).
	Kind string `json:"kind"`
	Path string `json:"path"`
	Text string `json:"text"`
}

// ErrNoValues is returned for what is another kind of file: the values that it may carry stand at
// another place in it.
var ErrNoValues = errors.New("no values file of the chart")

// ErrDowngrade is returned for a target that is older than the release that the file is for.
var ErrDowngrade = errors.New("downgrade")

// Migrate rewrites a values file from one release to another. What is no values file is only
// judged: YAML is empty then. A target that is older is ErrDowngrade, unless downgrade allows it:
// the chart's own custom resource definitions and defaults of the newer release stay in the
// cluster.
func Migrate(table *chart.Table, name string, data []byte, from, to chart.Version, downgrade bool) (*Migration, error) {
	if to.Before(from) && !downgrade {
		return nil, fmt.Errorf("%w: %s is older than %s", ErrDowngrade, to, from)
	}
	m := &Migration{From: from, To: to, table: table}
	edits, rest := lint.Edits(table, name, data, to)
	m.Report.Add(rest...)
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		m.Report.Sort()
		return m, nil
	}
	inner, instead := model.ValuesOf(doc.Content[0])
	if inner != doc.Content[0] {
		m.below = chart.Path{"gpu-operator"}
	}
	if instead != "" {
		return nil, fmt.Errorf("%s: %w: it is %s; write its values to a file of their own", name, ErrNoValues, instead)
	}
	settings, _ := model.Settings(name, data, nil)
	for _, s := range settings {
		if now := table.Judge(to, s.Path); now.Status != chart.Known {
			continue
		}
		if before := table.Judge(from, s.Path); before.Status == chart.NotYet || before.Status == chart.Gone {
			m.change("begins", s.Path.String(), fmt.Sprintf("%s ignored it; %s obeys: %v", from, to, s.Value))
		}
	}
	if err := m.write(name, data, edits, rest); err != nil {
		return nil, err
	}
	m.defaults(settings)
	slices.SortStableFunc(m.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(order(a.Kind), order(b.Kind)), strings.Compare(a.Path, b.Path))
	})
	return m, nil
}

// order puts what happens to the file before what changes beside it.
func order(kind string) int { return slices.Index([]string{"default", "new"}, kind) }

// Dropped reports whether the new file lacks a setting of the old one.
func (m *Migration) Dropped() bool {
	return slices.ContainsFunc(m.Changes, func(c Change) bool { return c.Kind == "dropped" })
}

// write makes the edits. A correction may bring up what was hidden, so that the file is judged again.
func (m *Migration) write(name string, data []byte, edits []lint.Edit, rest []report.Row) error {
	for range 5 {
		var list []fix.Edit
		for _, e := range edits {
			list = append(list, e.Edit)
			m.edited(e)
		}
		var err error
		if data, err = fix.Apply(data, m.below, list); err != nil {
			return err
		}
		if len(edits) == 0 {
			break
		}
		edits, rest = lint.Edits(m.table, name, data, m.To)
	}
	m.YAML, m.Report = string(data), report.Report{Rows: rest}
	m.Report.Sort()
	return nil
}

func (m *Migration) change(kind, path, text string) {
	m.Changes = append(m.Changes, Change{kind, path, text})
}

// edited lists an edit.
func (m *Migration) edited(e lint.Edit) {
	path, reason := e.Path.String(), e.Finding.Reason
	switch {
	case e.Drop:
		for i, a := range e.Add {
			reason += []string{"; instead ", ", "}[min(i, 1)] + fmt.Sprintf("%s=%v", a.Path, a.Value)
		}
		m.change("dropped", path, reason)
	case e.Value != nil:
		m.change("set", path, fmt.Sprintf("%s; now %s", reason, *e.Value))
	case e.Tree != nil:
		m.change("set", path, reason)
	case e.Rename != nil:
		m.change("renamed", path, "is "+e.Rename.String()+" now")
	}
}

// discovery is the subchart, of whose many new keys the number is enough.
const discovery = "node-feature-discovery"

// defaults lists the defaults that are others in the new release and that the file leaves alone,
// and the keys that are new in it.
func (m *Migration) defaults(settings []chart.Setting) {
	table := m.table
	set := map[string]bool{}
	for _, s := range settings {
		set[s.Path.String()] = true
	}
	parts := 0
	for _, k := range table.Keys(m.To) {
		path := k.Path.String()
		before, known := k.Default(m.From)
		now, nowKnown := k.Default(m.To)
		switch {
		case set[path] || !nowKnown:
		case !k.In(m.From) && k.Path[0] == discovery:
			parts++
		case !k.In(m.From):
			m.change("new", path, "is "+short(now))
		case known && !reflect.DeepEqual(before, now):
			m.change("default", path, fmt.Sprintf("was %s, is %s%s", short(before), short(now), major(path, before, now)))
		}
	}
	if parts > 0 {
		before, _ := table.Operand(m.From, "nfd")
		now, _ := table.Operand(m.To, "nfd")
		m.change("new", discovery, fmt.Sprintf("%s has %d keys that %s did not have", now, parts, before))
	}
}

// major says so when the driver's branch is another: nodes that run with the old one get a new
// driver.
func major(path string, before, now any) string {
	a, _, _ := strings.Cut(fmt.Sprint(before), ".")
	b, _, _ := strings.Cut(fmt.Sprint(now), ".")
	if path != "driver.version" || a == b {
		return ""
	}
	return ": another major version of the driver; pin the old one to keep it"
}

// short prints a default on one line.
func short(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return fmt.Sprintf("%q", v)
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		if len(v) == 0 {
			return "{}"
		}
		return "a group"
	default:
		return fmt.Sprint(v)
	}
}
