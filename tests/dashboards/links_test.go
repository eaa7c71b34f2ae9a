package dashboards

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A tableModel describes the transformation of a table, which merges queries and renames their columns.
type tableModel struct {
	ExcludeByName map[string]bool
	RenameByName  map[string]string
}

func modelOf(t *testing.T, p panel) (m tableModel) {
	t.Helper()
	for _, tr := range p.Transformations {
		if tr.ID != "organize" {
			continue
		}
		if err := json.Unmarshal(tr.Options, &m); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// properties returns the values of a property that a panel sets for its columns, by column.
func (p panel) properties(t *testing.T, id string) map[string]json.RawMessage {
	t.Helper()
	all := map[string]json.RawMessage{}
	for _, o := range p.FieldConfig.Overrides {
		var column string
		if err := json.Unmarshal(o.Matcher.Options, &column); err != nil {
			t.Fatal(err)
		}
		for _, property := range o.Properties {
			if property.ID == id {
				all[column] = property.Value
			}
		}
	}
	return all
}

var linked = regexp.MustCompile(`var-([a-z]+)=\$\{__data\.fields\["([^"]+)"\]`)

// Links between dashboards must pass on the variables of the dashboard and those of a table row.
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
		tag := []string{"gpu-telemetry"}
		if len(d.Links) != 1 || !d.Links[0].IncludeVars || !d.Links[0].KeepTime || !slices.Equal(d.Links[0].Tags, tag) || !slices.Contains(d.Tags, tag[0]) {
			t.Errorf("%s: links %+v, want one to all dashboards with variables and time", file, d.Links)
		}
		for _, p := range d.everyPanel() {
			columns := slices.Collect(maps.Values(modelOf(t, p).RenameByName))
			columns = slices.AppendSeq(columns, maps.Keys(p.properties(t, "custom.hidden")))
			for _, value := range p.properties(t, "links") {
				var to []struct{ URL string }
				if err := json.Unmarshal(value, &to); err != nil {
					t.Fatal(err)
				}
				uid, query, _ := strings.Cut(strings.TrimPrefix(to[0].URL, "/d/"), "?")
				set := linked.FindAllStringSubmatch(query, -1)
				for _, part := range []string{"${datasource:queryparam}", "${cluster:queryparam}", "${__url_time_range}"} {
					if len(set) == 0 || !strings.Contains(query, part) {
						t.Errorf("%s: %q: a link without variables or %s: %s", file, p.Title, part, query)
					}
				}
				for _, s := range set {
					links++
					if !slices.Contains(variables[uid], s[1]) {
						t.Errorf("%s: %q sets %s, which the dashboard %q does not have", file, p.Title, s[1], uid)
					}
					if !slices.Contains(columns, s[2]) {
						t.Errorf("%s: %q: a link takes the column %q; there are %q", file, p.Title, s[2], columns)
					}
				}
			}
		}
	}
	if links < 15 {
		t.Errorf("only %d links", links)
	}
}
