package dashboards

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// root is the root of the repository.
var root = filepath.Join("..", "..")

// A dashboard is the part of Grafana's model that the tests need.
type dashboard struct {
	UID         string
	Panels      []panel
	Annotations struct{ List []struct{ Name, Expr string } }
	Templating  struct{ List []struct{ Name string } }
}

type panel struct {
	Type            string
	Title           string
	Targets         []target
	Panels          []panel // panels of a collapsed row
	Transformations []struct {
		ID      string
		Options json.RawMessage
	}
	FieldConfig struct {
		Defaults  struct{ Unit string }
		Overrides []struct {
			Matcher    struct{ Options json.RawMessage }
			Properties []struct {
				ID    string
				Value json.RawMessage
			}
		}
	}
}

type target struct {
	Expr         string
	LegendFormat string
	RefID        string
}

// A query belongs to a panel or an annotation. where identifies it in test messages.
type query struct {
	target
	where string
}

// dashboards returns the dashboards in the folder grafana, by file name.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	all := map[string]dashboard{}
	for _, path := range folder.Files(t, root, "grafana", "*.json") {
		var d dashboard
		if err := json.Unmarshal([]byte(folder.Read(t, path)), &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[filepath.Base(path)] = d
	}
	return all
}

// everyPanel returns all panels, including those inside rows.
func (d dashboard) everyPanel() []panel {
	var all []panel
	for _, p := range d.Panels {
		all = append(append(all, p), p.Panels...)
	}
	return all
}

func (d dashboard) queries() []query {
	var all []query
	for _, p := range d.everyPanel() {
		for _, q := range p.Targets {
			all = append(all, query{q, fmt.Sprintf("panel %q %s", p.Title, q.RefID)})
		}
	}
	for _, a := range d.Annotations.List {
		all = append(all, query{target{Expr: a.Expr}, "annotation " + a.Name})
	}
	return all
}

// filled returns a query with the dashboard's variables filled in like Grafana does for an interval of one minute. All
// variables except the instance are set to All.
func filled(expr, instance string) string {
	return strings.NewReplacer("$cluster", ".*", "$instance", instance, "$gpu", ".*", "$namespace", ".*", "$pod", ".*",
		"$__rate_interval", "4m", "$__range", "30m").Replace(expr)
}

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

// TestLinksCarryVariables checks the links from table cells to other dashboards. A link must set variables of its
// target from columns of the row. It must also pass on the time, the data source and the cluster.
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
				for _, part := range []string{"${datasource:queryparam}", "${cluster:queryparam}",
					"${__url_time_range}"} {
					if len(set) == 0 || !strings.Contains(query, part) {
						t.Errorf("%s: panel %q: link = %q, want %s and a variable from a column", file, p.Title, query,
							part)
					}
				}
				for _, s := range set {
					links++
					if !slices.Contains(variables[uid], s[1]) {
						t.Errorf("%s: panel %q: link sets the variable %s, which dashboard %s does not have", file,
							p.Title, s[1], uid)
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

// runbooks is the URL of the runbooks. Links to them need no variables.
const runbooks = "https://github.com/gpu-telemetry/dcgm-exporter/blob/main/docs/runbooks.md"

// TestNodesWithoutData plays a healthy node, a node whose exporter has no data, and a node that is down. The fleet
// dashboard must count the last two, and list each with its name and the reason.
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
	list := w.query(t, filled(find(t, "fleet", "Nodes without data", "table").Targets[0].Expr, ".*"), at, "node",
		"reason")
	for _, want := range []string{"gpu-b unavailable", "gpu-c does not answer"} {
		if _, ok := list[want]; !ok || len(list) != 2 {
			t.Errorf("table of nodes without data = %v, want two rows, one of them %q", list, want)
		}
	}
}
