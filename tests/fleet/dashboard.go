package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// A query is a query of a dashboard, with the variables replaced in Expr.
type query struct {
	Expr    string
	Instant bool

	title    string // title of the panel, followed by the query's position if the panel has several queries
	recorded string // a query of recorded series that has the same answer, or ""
}

// all replaces the variables of a dashboard with the values that Grafana uses if all nodes are selected and the scrape
// interval is 30 seconds.
var all = strings.NewReplacer("$cluster", ".*", "$instance", ".*", "$__rate_interval", "2m")

// recorded maps the title of a panel to queries of recorded series with the same answers, in the order of the panel's
// queries. A query is "" if no recorded series has the answer.
var recorded = map[string][]string{
	"GPUs":               {"sum(cluster:gpus:count)"},
	"Allocated":          {"sum(cluster:gpus_allocated:sum)"},
	"Used":               {"sum(cluster:gpus_used:sum)"},
	"Allocated and idle": {"sum(cluster:gpus_wasted:sum)"},
	"Free":               {"sum(cluster:gpus:count) - sum(cluster:gpus_allocated:sum)"},
	"Power":              {"sum(cluster:gpu_power:watts)"},
	"Capacity, allocated, used": {"sum(cluster:gpus:count)", "sum(cluster:gpus_allocated:sum)",
		"sum(cluster:gpus_used:sum)"},
	"Power by model":            {"sum by (modelName) (model:gpu_power:watts)"},
	"Clocks limited, by reason": {"sum by (clock_event) (cluster:gpus_clock_limited:sum)"},
	"By model": {"sum by (modelName) (model:gpus:count)", "sum by (modelName) (model:gpus_allocated:sum)",
		"sum by (modelName) (model:gpus_used:sum)",
		"sum by (modelName) (model:gpus_wasted:sum)", "sum by (modelName) (model:gpu_power:watts)"},
	"By namespace": {"sum by (namespace) (namespace:gpus_allocated:sum)",
		"sum by (namespace) (namespace:gpus_used:sum)",
		"sum by (namespace) (namespace:gpus_wasted:sum)", "sum by (namespace) (namespace:gpu_energy:joules_rate5m)"},
	"By node": {"count by (node) (gpu:power:watts)", "", "sum by (node) (node:gpus_allocated:sum)",
		"sum by (node) (node:gpus_used:sum)",
		"sum by (node) (node:gpus_wasted:sum)", "sum by (node) (node:gpu_power:watts)"},
}

// dashboardQueries returns the queries of a dashboard file.
func dashboardQueries(file string) ([]query, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []query
			Panels  []json.RawMessage
		}
	}
	if err := json.Unmarshal(content, &board); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var queries []query
	for _, p := range board.Panels {
		if len(p.Panels) > 0 {
			return nil, fmt.Errorf("%s: row %q is collapsed: expand it, so that its panels are read", file, p.Title)
		}
		for i, q := range p.Targets {
			q.Expr, q.title = all.Replace(q.Expr), p.Title
			if len(p.Targets) > 1 {
				q.title = fmt.Sprintf("%s (%d)", p.Title, i+1)
			}
			if i < len(recorded[p.Title]) {
				q.recorded = recorded[p.Title][i]
			}
			queries = append(queries, q)
		}
	}
	return queries, nil
}
