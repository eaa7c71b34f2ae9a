package dashboards

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// root is the root of the repository.
var root = filepath.Join("..", "..")

// A dashboard is the part of Grafana's model that the tests need.
type dashboard struct {
	UID    string
	Panels []panel
	Tags   []string
	Links  []struct {
		URL                   string
		Tags                  []string
		IncludeVars, KeepTime bool
	}
	Annotations struct {
		List []struct{ Name, Expr, TitleFormat, TextFormat, IconColor string }
	}
	Templating struct{ List []variableModel }
}

type variableModel struct {
	Name, Label, Type, Regex string
	Query                    json.RawMessage
}

type panel struct {
	ID              int
	Type            string
	Title           string
	Targets         []target
	Panels          []panel // panels of a collapsed row
	Transformations []struct {
		ID      string
		Options json.RawMessage
	}
	FieldConfig struct {
		Defaults struct {
			Unit  string
			Links []struct{ URL string }
		}
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
	Instant      bool
}

// A query belongs to a panel or an annotation. where identifies it in test messages.
type query struct {
	target
	where string
}

// dashboards returns the dashboards of grafana by file name.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	all := map[string]dashboard{}
	for _, path := range files(t, "grafana", "*.json") {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, path)), &d); err != nil {
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
			all = append(all, query{q, fmt.Sprintf("panel %d %q %s", p.ID, p.Title, q.RefID)})
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
	return strings.NewReplacer("$cluster", ".*", "$instance", instance, "$gpu", ".*", "$namespace", ".*", "$pod", ".*", "$__rate_interval", "4m", "$__range", "30m").Replace(expr)
}

// Each selector of a query filters by the dashboard's instance, so that other nodes' data is not shown.
func TestEverySelectorKeepsToTheInstance(t *testing.T) {
	for file, d := range dashboards(t) {
		for _, q := range d.queries() {
			for _, s := range selectors(t, q) {
				// alerts about GPUs have no instance label, so queries join them by host name
				if !strings.Contains(s.String(), `instance=~"some"`) && s.Name != "ALERTS" {
					t.Errorf("%s: %s: selector %s lacks instance=~\"$instance\"", file, q.where, s)
				}
			}
		}
	}
}

// selectors returns the vector selectors of a query, with "some" for the dashboard's instance.
func selectors(t *testing.T, q query) []*parser.VectorSelector {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(filled(q.Expr, "some"))
	if err != nil {
		t.Fatalf("%s: %v", q.where, err)
	}
	var all []*parser.VectorSelector
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			all = append(all, s)
		}
		return nil
	})
	return all
}
