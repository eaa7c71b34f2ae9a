package dashboards

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// A shown is a table as Grafana shows it: rows by the texts of the visible label columns, and in
// each the values by the title of the column.
type shown map[string]map[string]float64

// A tableModel is what shapes a table: the transformations, and the columns that are hidden.
type tableModel struct {
	exclude map[string]bool
	rename  map[string]string
	index   map[string]float64
	hidden  map[string]bool
}

func modelOf(t *testing.T, p panel) tableModel {
	t.Helper()
	m := tableModel{exclude: map[string]bool{}, rename: map[string]string{}, index: map[string]float64{}, hidden: map[string]bool{}}
	for _, tr := range p.Transformations {
		switch tr.ID {
		case "merge":
		case "organize":
			var o struct {
				ExcludeByName map[string]bool
				RenameByName  map[string]string
				IndexByName   map[string]float64
			}
			if err := json.Unmarshal(tr.Options, &o); err != nil {
				t.Fatal(err)
			}
			maps.Copy(m.exclude, o.ExcludeByName)
			maps.Copy(m.rename, o.RenameByName)
			maps.Copy(m.index, o.IndexByName)
		default:
			t.Fatalf("%q: transformation %q, which this test does not know", p.Title, tr.ID)
		}
	}
	for _, o := range p.FieldConfig.Overrides {
		for _, property := range o.Properties {
			if property.ID == "custom.hidden" {
				var name string
				if err := json.Unmarshal(o.Matcher.Options, &name); err != nil {
					t.Fatal(err)
				}
				m.hidden[name] = true
			}
		}
	}
	return m
}

// A tableLine is a row before it is shown: its labels, and values by the name of their field.
type tableLine struct {
	labels map[string]string
	values map[string]float64
}

// merged runs the queries of a table and joins their rows by the labels that all of them have.
func (w *world) merged(p panel, at time.Time, values map[string]string) []tableLine {
	w.t.Helper()
	answers := make([][]point, len(p.Targets))
	var common map[string]bool // labels that every answer has
	for i, q := range p.Targets {
		answers[i] = w.instant(w.filledFor(q.Expr, values), at)
		if len(answers[i]) == 0 {
			continue
		}
		names := map[string]bool{}
		for _, x := range answers[i] {
			for name := range x.Metric {
				names[name] = true
			}
		}
		if common == nil {
			common = names
			continue
		}
		maps.DeleteFunc(common, func(name string, _ bool) bool { return !names[name] })
	}
	keys := slices.Sorted(maps.Keys(common))
	byKey := map[string][]*tableLine{}
	var order []*tableLine
	for i, q := range p.Targets {
		field := "Value"
		if len(p.Targets) > 1 {
			field = "Value #" + q.RefID
		}
		for _, x := range answers[i] {
			var texts []string
			for _, k := range keys {
				texts = append(texts, x.Metric[k])
			}
			key := strings.Join(texts, "\x00")
			var into *tableLine
			for _, r := range byKey[key] {
				_, taken := r.values[field]
				clash := false
				for k, v := range x.Metric {
					if had, ok := r.labels[k]; ok && had != v {
						clash = true
					}
				}
				if !taken && !clash {
					into = r
					break
				}
			}
			if into == nil {
				into = &tableLine{map[string]string{}, map[string]float64{}}
				byKey[key] = append(byKey[key], into)
				order = append(order, into)
			}
			maps.Copy(into.labels, x.Metric)
			into.values[field] = x.value(w.t)
		}
	}
	var rows []tableLine
	for _, r := range order {
		rows = append(rows, *r)
	}
	return rows
}

// table returns what a table shows at a time.
func (w *world) table(p panel, at time.Time, values map[string]string) shown {
	w.t.Helper()
	m := modelOf(w.t, p)
	var columns []string // label columns in their order
	for name := range m.index {
		if !strings.HasPrefix(name, "Value") {
			columns = append(columns, name)
		}
	}
	slices.SortFunc(columns, func(a, b string) int { return int(m.index[a] - m.index[b]) })
	all := shown{}
	for _, r := range w.merged(p, at, values) {
		var texts []string
		for _, c := range columns {
			texts = append(texts, r.labels[c])
		}
		for name := range r.labels {
			if _, placed := m.index[name]; !placed && !m.exclude[name] && !m.hidden[name] {
				w.t.Errorf("%q: the label %s is neither a column nor hidden", p.Title, name)
			}
		}
		key := strings.Join(texts, "/")
		if _, twice := all[key]; twice {
			w.t.Errorf("%q: two rows %s", p.Title, key)
		}
		all[key] = map[string]float64{}
		for name, v := range r.values {
			if !m.exclude[name] {
				all[key][m.rename[name]] = v
			}
		}
	}
	return all
}
