package values

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/lint"
)

// A Migration is a values file for another release, and what is different.
type Migration struct {
	From    chart.Version `json:"from"`
	To      chart.Version `json:"to"`
	Changes []Change      `json:"changes"`
	// YAML is the new values file; comments and order are the old one's.
	YAML string `json:"values"`
	// Report is what remains wrong and cannot be put right without a decision.
	Report finding.Report `json:"-"`
}

// A Change is one line of the change list.
type Change struct {
	// Kind is dropped, renamed, set, begins (a setting that the old release ignored) or default (a default that the
	// file leaves alone and that is another now).
	Kind string `json:"kind"`
	Path string `json:"path"`
	Text string `json:"text"`
}

// ErrAnchor is returned for a file whose YAML anchors stand in settings that the new release does not have.
var ErrAnchor = errors.New("values file cannot be rewritten")

// Migrate rewrites a values file from one release to another. What is no values file is only judged: YAML is empty then.
func Migrate(name string, data []byte, from, to chart.Version) (*Migration, error) {
	m := &Migration{From: from, To: to}
	edits, rest := lint.Edits(name, data, to)
	m.Report.Add(rest...)
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		m.Report.Sort()
		return m, nil
	}
	table := chart.Load()
	settings, _ := lint.Settings(name, data, nil)
	for _, s := range settings {
		if now := table.Judge(to, s.Path); now.Status != chart.Known {
			continue
		}
		if before := table.Judge(from, s.Path); before.Status == chart.NotYet || before.Status == chart.GroupGone {
			m.change("begins", s.Path.String(), fmt.Sprintf("%s ignored it; %s obeys: %v", from, to, s.Value))
		}
	}
	root := doc.Content[0]
	for _, e := range edits {
		if err := m.apply(root, e); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Path, err)
		}
	}
	if err := m.write(name, &doc); err != nil {
		return nil, err
	}
	m.defaults(table, settings)
	slices.SortStableFunc(m.Changes, func(a, b Change) int {
		if a.Kind == "default" != (b.Kind == "default") {
			if a.Kind == "default" {
				return 1
			}
			return -1
		}
		return strings.Compare(a.Path, b.Path)
	})
	return m, nil
}

// write renders the document; a correction may bring up what was hidden before, so that it is judged again.
func (m *Migration) write(name string, doc *yaml.Node) error {
	for range 4 {
		var out bytes.Buffer
		enc := yaml.NewEncoder(&out)
		enc.SetIndent(2)
		if err := enc.Encode(doc); err != nil {
			return err
		}
		if err := enc.Close(); err != nil {
			return err
		}
		*doc = yaml.Node{}
		if err := yaml.Unmarshal(out.Bytes(), doc); err != nil || len(doc.Content) == 0 {
			return fmt.Errorf("%w: a setting that goes carries an anchor that others refer to; write the values out", ErrAnchor)
		}
		m.YAML = out.String()
		edits, rest := lint.Edits(name, out.Bytes(), m.To)
		m.Report = finding.Report{Findings: rest}
		if len(edits) == 0 {
			break
		}
		for _, e := range edits {
			if err := m.apply(doc.Content[0], e); err != nil {
				return fmt.Errorf("%s: %w", e.Path, err)
			}
		}
	}
	m.Report.Sort()
	return nil
}

func (m *Migration) change(kind, path, text string) {
	m.Changes = append(m.Changes, Change{kind, path, text})
}

func (m *Migration) apply(root *yaml.Node, e lint.Edit) error {
	reason := e.Finding.Reason
	switch {
	case e.Drop:
		take(root, e.Path)
		text := reason
		if len(e.Add) > 0 {
			text += "; instead " + strings.Join(e.Add, ", ")
		}
		m.change("dropped", e.Path.String(), text)
	case e.Rename != nil:
		value := take(root, e.Path)
		if value == nil {
			return nil
		}
		if err := put(root, e.Rename, value, ""); err != nil {
			return err
		}
		m.change("renamed", e.Path.String(), "is "+e.Rename.String()+" now")
	case e.Value != nil:
		if err := put(root, e.Path, *e.Value, ""); err != nil {
			return err
		}
		m.change("set", e.Path.String(), fmt.Sprintf("%s; now %s", reason, *e.Value))
	}
	for _, a := range e.Add {
		list, err := lint.ParseSet(a)
		if err != nil {
			return err
		}
		for _, s := range list {
			if err := put(root, s.Path, s.Value, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// defaults lists the defaults that are others in the new release and that the file leaves alone. An operand's version
// changes with every release and is not listed.
func (m *Migration) defaults(table *chart.Table, settings []lint.Setting) {
	set := map[string]bool{}
	for _, s := range settings {
		set[s.Path.String()] = true
	}
	for _, k := range table.Keys(m.To) {
		path := k.Path.String()
		before, known := k.Default(m.From)
		now, nowKnown := k.Default(m.To)
		if !k.In(m.From) || set[path] || !known || !nowKnown || k.Path[len(k.Path)-1] == "version" || reflect.DeepEqual(before, now) {
			continue
		}
		m.change("default", path, fmt.Sprintf("was %s, is %s", short(before), short(now)))
	}
}

// short prints a default on one line.
func short(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return "a group"
	default:
		return fmt.Sprint(v)
	}
}
