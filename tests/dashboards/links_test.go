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

// tableModel holds the options of the transformation "organize", which hides and renames columns of a table.
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

// properties returns the value of a property for each column for which the panel sets it.
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

// TestLinksCarryVariables checks links. Links between dashboards pass on the time and all variables. Links from table
// cells to other dashboards pass on the time, the data source and the cluster. They also set variables of the other
// dashboard from columns of their row.
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
			t.Errorf("%s: tags = %q, links = %+v; want the tag gpu-telemetry, a link to its dashboards that keeps variables and time, and one to the runbooks", file, d.Tags, d.Links)
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
						t.Errorf("%s: panel %q: query of the link = %q, want %s and at least one variable from a column", file, p.Title, query, part)
					}
				}
				for _, s := range set {
					links++
					if !slices.Contains(variables[uid], s[1]) {
						t.Errorf("%s: panel %q: link sets the variable %s, which dashboard %s does not have", file, p.Title, s[1], uid)
					}
					if !slices.Contains(columns, s[2]) {
						t.Errorf("%s: panel %q: link uses the column %q, want one of %q", file, p.Title, s[2], columns)
					}
				}
			}
		}
	}
	if links < 15 {
		t.Errorf("links with variables = %d, want at least 15", links)
	}
}

// runbooks is the URL of the runbooks, to which dashboards link.
const runbooks = "https://github.com/gpu-telemetry/dcgm-exporter/blob/main/docs/runbooks.md"

// Every stat panel links to a panel with the details, and passes on the variables that both dashboards have.
func TestStatPanelsLinkToTheirLists(t *testing.T) {
	all := dashboards(t)
	panels, boards := map[string]panel{}, map[string]dashboard{}
	for _, d := range all {
		for _, p := range d.everyPanel() {
			address := fmt.Sprint("/d/", d.UID, "?viewPanel=", p.ID)
			panels[address], boards[address] = p, d
		}
	}
	want := map[string]string{
		"fleet.json GPUs down": "Down", "fleet.json GPUs with an XID": "XIDs, latest", "fleet.json GPUs throttled": "By GPU",
		"fleet.json Nodes without data": "Nodes without data", "fleet.json Allocated": "By namespace", "fleet.json GPUs": "By node",
		"node.json GPUs and instances down": "Down", "node.json GPUs up": "Who uses what", "node.json Hottest GPU": "Temperature",
		"workload.json Allocated": "Pods", "workload.json Allocated and idle": "Allocated and idle",
		"mig.json Instances": "Instances", "mig.json Free": "Profiles", "mig.json Memory in use": "Memory in use",
		"reliability.json GPUs to recover": "Problems", "reliability.json Links down": "Links not active",
		"exporter.json Not scraped": "Nodes without data", "exporter.json Reload failed": "Problems",
	}
	for file, d := range all {
		for _, p := range d.everyPanel() {
			if p.Type != "stat" {
				continue
			}
			if n := len(p.FieldConfig.Defaults.Links); n != 1 {
				t.Errorf("%s: stat panel %q has %d links, want 1", file, p.Title, n)
				continue
			}
			address, passed, _ := strings.Cut(p.FieldConfig.Defaults.Links[0].URL, "&")
			list, ok := panels[address]
			if !ok || list.Type == "stat" {
				t.Errorf("%s: stat panel %q links to %s, want the address of a table or graph", file, p.Title, address)
			}
			if title := want[file+" "+p.Title]; title != "" && title != list.Title {
				t.Errorf("%s: stat panel %q links to %q, want %q", file, p.Title, list.Title, title)
			}
			delete(want, file+" "+p.Title)
			for _, v := range d.Templating.List {
				if boards[address].has(v.Name) != strings.Contains(passed, "${"+v.Name+":queryparam}") {
					t.Errorf("%s: stat panel %q passes on %q, want the variable %s in it only if both dashboards have it",
						file, p.Title, passed, v.Name)
				}
			}
		}
	}
	for p := range want {
		t.Errorf("stat panel not found: %s", p)
	}
}

// has reports whether the dashboard has a variable.
func (d dashboard) has(variable string) bool {
	return slices.ContainsFunc(d.Templating.List, func(v variableModel) bool { return v.Name == variable })
}

// An annotation on every dashboard shows the firing alerts. The dashboards about faults also list them in a table, each
// with a link to its runbook.
func TestFiringAlertsAreShown(t *testing.T) {
	for file, d := range dashboards(t) {
		marked := slices.ContainsFunc(d.Annotations.List, func(a struct{ Name, Expr, TitleFormat, TextFormat, IconColor string }) bool {
			return a.Name == "Alerts" && strings.Contains(a.Expr, "ALERTS{")
		})
		if !marked {
			t.Errorf("%s: no annotation shows alerts", file)
		}
	}
	for _, file := range []string{"fleet", "node", "reliability"} {
		p := find(t, file, "Firing alerts", "table")
		if link := string(p.properties(t, "links")["Alert"]); !strings.Contains(link, runbooks+"#${__value.raw}") {
			t.Errorf("%s: links of the column Alert = %s, want one to the runbook of the alert", file, link)
		}
	}
}

// A node that is down, or whose exporter has no data, is counted and listed with its name and the reason. A healthy
// node is not.
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
		t.Errorf("stat panel: nodes without data = %v, want 2", got)
	}
	list := w.query(t, filled(find(t, "fleet", "Nodes without data", "table").Targets[0].Expr, ".*"), at, "node", "reason")
	for _, want := range []string{"gpu-b unavailable", "gpu-c does not answer"} {
		if _, ok := list[want]; !ok || len(list) != 2 {
			t.Errorf("table of nodes without data = %v, want two rows, one of them %q", list, want)
		}
	}
}
