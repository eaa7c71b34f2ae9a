package dashboards

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// offered returns what a variable offers: text by value.
func (w *world) offered(v variableModel, values map[string]string) map[string]string {
	w.t.Helper()
	var q struct{ Query string }
	if err := json.Unmarshal(v.Query, &q); err != nil {
		w.t.Fatal(err)
	}
	found := map[string]string{}
	if inner, ok := strings.CutPrefix(q.Query, "label_values("); ok {
		inner = strings.TrimSuffix(inner, ")")
		comma := strings.LastIndex(inner, ", ")
		for _, x := range w.instant(w.filledFor(inner[:comma], values), w.asked()) {
			if text := x.Metric[inner[comma+2:]]; text != "" {
				found[text] = text
			}
		}
		return found
	}
	inner, ok := strings.CutPrefix(q.Query, "query_result(")
	if !ok {
		w.t.Fatalf("variable %s: a query that this test does not know: %s", v.Name, q.Query)
	}
	pattern := regexp.MustCompile(strings.Trim(strings.ReplaceAll(v.Regex, "(?<", "(?P<"), "/"))
	for _, x := range w.instant(w.filledFor(strings.TrimSuffix(inner, ")"), values), w.asked()) {
		// As Grafana writes a result: name{label="value", …} value time, with the labels in order.
		var labels []string
		for _, k := range slices.Sorted(maps.Keys(x.Metric)) {
			labels = append(labels, k+`="`+x.Metric[k]+`"`)
		}
		m := pattern.FindStringSubmatch("{" + strings.Join(labels, ", ") + "} 1 1")
		if m == nil {
			continue
		}
		value, text := m[1], m[1]
		if i := pattern.SubexpIndex("value"); i > 0 {
			value, text = m[i], m[pattern.SubexpIndex("text")]
		}
		if text == "" {
			text = value
		}
		found[value] = text
	}
	return found
}

// variablesOffer holds what each variable offers.
func (w *world) variablesOffer(t *testing.T) {
	w.t = t
	nodes := map[string]string{}
	for _, p := range w.nodes {
		if p.silent == 0 {
			nodes[p.instance()] = p.host
		}
	}
	nodes[w.instanceOf("gpu-c-01")] = w.instanceOf("gpu-c-01") // without data there is no host name
	same := func(names ...string) map[string]string {
		m := map[string]string{}
		for _, n := range names {
			m[n] = n
		}
		return m
	}
	want := map[string]map[string]string{
		"cluster":   same("east"),
		"instance":  nodes,
		"gpu":       same("0", "1", "2", "3", "4", "5", "6", "7"),
		"namespace": same("research", "serving", "analytics", "notebooks", "media"),
	}
	checked := 0
	for file, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			checked++
			if v.Name == "pod" {
				got := w.offered(v, map[string]string{"namespace": "media", "pod": "none"})
				if diff := cmp.Diff(same("thumbs-5d9fb-kk2xp", "thumbs-0", "thumbs-1"), got); diff != "" {
					t.Errorf("%s: pods of the namespace media (-want +got):\n%s", file, diff)
				}
				continue
			}
			got := w.offered(v, nil)
			if diff := cmp.Diff(want[v.Name], got); diff != "" {
				t.Errorf("%s: $%s (-want +got):\n%s", file, v.Name, diff)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d variables", checked)
	}
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
