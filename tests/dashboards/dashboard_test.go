package dashboards

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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
