package dashboards

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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

var linked = regexp.MustCompile(`var-([a-z]+)=\$\{__data\.fields\["([^"]+)"\]`)

// Links between the dashboards carry the variables: those of the dashboard, and those of a row.
func TestLinksCarryVariables(t *testing.T) {
	all := dashboards(t)
	variables := map[string][]string{}
	for _, d := range all {
		for _, v := range d.Templating.List {
			variables[d.UID] = append(variables[d.UID], v.Name)
		}
	}
	links := 0
	for file, d := range all {
		if len(d.Links) != 1 || !d.Links[0].IncludeVars || !d.Links[0].KeepTime || !slices.Equal(d.Links[0].Tags, []string{"gpu-telemetry"}) {
			t.Errorf("%s: links %+v, want one to all dashboards with variables and time", file, d.Links)
		}
		if !slices.Contains(d.Tags, "gpu-telemetry") {
			t.Errorf("%s is not found by the tag of the links: %v", file, d.Tags)
		}
		for _, p := range d.everyPanel() {
			m := modelOf(t, p)
			var fields []string
			for name := range m.index {
				fields = append(fields, m.rename[name])
			}
			for name := range m.hidden {
				fields = append(fields, name)
			}
			for _, o := range p.FieldConfig.Overrides {
				for _, property := range o.Properties {
					if property.ID != "links" {
						continue
					}
					var to []struct{ URL string }
					if err := json.Unmarshal(property.Value, &to); err != nil {
						t.Fatal(err)
					}
					uid, query, _ := strings.Cut(strings.TrimPrefix(to[0].URL, "/d/"), "?")
					if variables[uid] == nil {
						t.Errorf("%s: %q links to %s, which is no dashboard", file, p.Title, uid)
					}
					set := linked.FindAllStringSubmatch(query, -1)
					if len(set) == 0 || !strings.Contains(query, "${datasource:queryparam}") || !strings.Contains(query, "${cluster:queryparam}") || !strings.Contains(query, "${__url_time_range}") {
						t.Errorf("%s: %q: a link without variables, source, cluster or time: %s", file, p.Title, query)
					}
					for _, s := range set {
						links++
						if !slices.Contains(variables[uid], s[1]) {
							t.Errorf("%s: %q sets %s, which %s does not have", file, p.Title, s[1], uid)
						}
						if !slices.Contains(fields, s[2]) {
							t.Errorf("%s: %q: a link takes the column %q; there are %q", file, p.Title, s[2], fields)
						}
					}
				}
			}
		}
	}
	if links < 15 {
		t.Errorf("only %d links", links)
	}
}
