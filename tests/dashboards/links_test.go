package dashboards

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
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
		if len(d.Links) != 2 || d.Links[1].URL != runbooks || !d.Links[0].IncludeVars || !d.Links[0].KeepTime || !slices.Equal(d.Links[0].Tags, tag) || !slices.Contains(d.Tags, tag[0]) {
			t.Errorf("%s: links %+v, want one to all dashboards with variables and time, and one to the runbooks", file, d.Links)
		}
		for _, p := range d.everyPanel() {
			columns := slices.Collect(maps.Values(modelOf(t, p).RenameByName))
			columns = slices.AppendSeq(columns, maps.Keys(p.properties(t, "custom.hidden")))
			for _, value := range p.properties(t, "links") {
				var to []struct{ URL string }
				if err := json.Unmarshal(value, &to); err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(to[0].URL, runbooks+"#") {
					continue
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

// runbooks is the URL of the runbooks, to which dashboards link.
const runbooks = "https://github.com/gpu-telemetry/dcgm-exporter/blob/main/docs/runbooks.md"

// A panel that counts problems must link to the list of them. The list must be a panel of that dashboard.
func TestFiguresLinkToTheirLists(t *testing.T) {
	all := dashboards(t)
	panels := map[string]panel{}
	for _, d := range all {
		for _, p := range d.everyPanel() {
			panels[fmt.Sprint("/d/", d.UID, "?viewPanel=", p.ID)] = p
		}
	}
	for file, want := range map[string]map[string]string{
		"fleet.json": {"GPUs down": "Down", "GPUs with an XID": "XIDs, latest", "Nodes without data": "Nodes without data",
			"GPUs throttled": "By GPU", "Allocated": "By namespace", "GPUs": "By node"},
		"reliability.json": {"GPUs down": "Down", "GPUs to recover": "What to look at", "GPUs throttled": "By GPU"},
		"exporter.json":    {"Not scraped": "Nodes without data", "Without data": "Without data"},
	} {
		for _, p := range all[file].everyPanel() {
			links := p.FieldConfig.Defaults.Links
			if title := want[p.Title]; p.Type == "stat" && title != "" {
				if len(links) != 1 {
					t.Errorf("%s: %q has %d links, want 1", file, p.Title, len(links))
					continue
				}
				address, variables, _ := strings.Cut(links[0].URL, "&")
				if list := panels[address]; list.Title != title || list.Type == "stat" || !strings.Contains(variables, "${instance:queryparam}") {
					t.Errorf("%s: %q links to the %s %q with %s, want the list %q", file, p.Title, list.Type, list.Title, variables, title)
				}
			}
		}
	}
}

// The alerts that fire must be on the dashboards about faults, each with a link to its runbook, and mark graphs everywhere.
func TestFiringAlertsAreShown(t *testing.T) {
	for file, d := range dashboards(t) {
		marked := slices.ContainsFunc(d.Annotations.List, func(a struct{ Name, Expr, TitleFormat, TextFormat, IconColor string }) bool {
			return a.Name == "Alerts" && strings.Contains(a.Expr, "ALERTS{")
		})
		if !marked {
			t.Errorf("%s has no annotation about alerts", file)
		}
	}
	for _, file := range []string{"fleet", "node", "reliability"} {
		p := find(t, file, "Firing alerts", "table")
		if link := string(p.properties(t, "links")["Alert"]); !strings.Contains(link, runbooks+"#${__value.raw}") {
			t.Errorf("%s: an alert links to %s", file, link)
		}
	}
}

// A node that is dead, or whose exporter has no data, must be counted and listed with its name and the reason. A node that
// was never an exporter must not.
func TestNodesWithoutData(t *testing.T) {
	file := shipped(t, "health")
	w := play(t, 30*time.Minute,
		machine{host: "gpu-a", file: file, node: "single"},
		machine{host: "gpu-b", file: file, node: "single", scenario: "faults: [{fault: engine-down, at: 20m}]"},
		machine{host: "gpu-c", file: file, node: "single"})
	for key, series := range w.Series {
		name := series.Metric.Get("__name__")
		if series.Metric.Get("instance") != "gpu-c" {
			continue
		}
		if ups := series.Floats; name == "up" {
			for i := len(ups) - 20; i < len(ups); i++ {
				ups[i].F = 0
			}
		} else if len(ups) > 20 {
			w.Series[key].Floats = ups[:len(ups)-20]
		}
	}
	at := w.end.Add(-time.Second)
	tile := filled(find(t, "fleet", "Nodes without data", "stat").Targets[0].Expr, ".*")
	if got := w.query(t, tile, at); got[""] != 2 {
		t.Errorf("nodes without data: %v, want 2", got)
	}
	list := w.query(t, filled(find(t, "fleet", "Nodes without data", "table").Targets[0].Expr, ".*"), at, "node", "reason")
	for _, want := range []string{"gpu-b unavailable", "gpu-c does not answer"} {
		if _, ok := list[want]; !ok || len(list) != 2 {
			t.Errorf("list of nodes without data: %v, want %q in two", list, want)
		}
	}
}
