package dashboards

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// A cost is what a query makes Prometheus read.
type cost struct{ series, samples int }

// costOf counts the series that the selectors of a query touch on one node, and the samples that
// they load of them for one step.
func (w *world) costOf(t *testing.T, q query, host string) (c cost) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(w.filledFor(q.Expr, map[string]string{"instance": w.instanceOf(host)}))
	if err != nil {
		t.Fatalf("%s: %v", q.where, err)
	}
	parser.Inspect(expr, func(n parser.Node, path []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		depth := 1
		if m, ok := path[len(path)-1].(*parser.MatrixSelector); ok {
			depth = int(m.Range/scrapeEvery) + 1
		}
		found := w.matching(host, s.LabelMatchers)
		c.series += found
		c.samples += found * depth
		return nil
	})
	return c
}

// matching counts the series of a node at the end of the play.
func (w *world) matching(host string, matchers []*labels.Matcher) (n int) {
	i := slices.IndexFunc(w.nodes, func(p *played) bool { return p.host == host })
	for _, h := range w.nodes[i].series {
		if h.samples[len(h.samples)-1].at == w.end.UnixMilli() &&
			!slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(h.metric.Get(m.Name)) }) {
			n++
		}
	}
	return n
}

// The bounds of what a query may touch: with All of 1,000 nodes on the dashboards that open so, and
// with one node on the other. Prometheus' own limit is 50 million samples (--query.max-samples).
const (
	nodesOfFleet    = 1000
	maxSeries       = 450_000
	maxSamples      = 3_000_000
	maxSeriesOfNode = 2_000
)

const costHeading = "| dashboard | panels | queries | series, 1 node | series, 1,000 nodes | the heaviest query there |\n|---|---|---|---|---|---|\n"

// costIsBounded computes what the dashboards cost, and holds that docs/dashboards.md says so.
func (w *world) costIsBounded(t *testing.T) {
	w.t = t
	table := costHeading
	for _, file := range []string{"fleet", "node", "workload", "mig", "reliability", "exporter"} {
		d := dashboards(t)[file+".json"]
		total, heaviest, where := 0, cost{}, ""
		queries := 0
		for _, p := range d.everyPanel() {
			for _, target := range p.Targets {
				queries++
				// A node of eight GPUs whose instances, owners and links are as many as anywhere.
				c := w.costOf(t, query{target, p.Title}, "gpu-a-01")
				total += c.series
				if c.series > heaviest.series {
					heaviest, where = c, p.Title
				}
				if file == "node" {
					if c.series > maxSeriesOfNode {
						t.Errorf("%s: %s %s touches %d series of one node, more than %d", file, p.Title, target.RefID, c.series, maxSeriesOfNode)
					}
					continue
				}
				long := strings.Contains(target.Expr, "$__range]") // its samples are the range's
				if c.series*nodesOfFleet > maxSeries || !long && c.samples*nodesOfFleet > maxSamples {
					t.Errorf("%s: %s %s touches %d series and %d samples of %d nodes; the bounds are %d and %d",
						file, p.Title, target.RefID, c.series*nodesOfFleet, c.samples*nodesOfFleet, nodesOfFleet, maxSeries, maxSamples)
				}
			}
		}
		if total == 0 {
			t.Errorf("%s touches nothing", file)
		}
		table += fmt.Sprintf("| %s | %d | %d | %d | %s | %s: %s |\n", file, len(d.everyPanel())-rows(d), queries, total,
			thousands(total*nodesOfFleet), where, thousands(heaviest.series*nodesOfFleet))
	}
	path := filepath.Join(root, "docs", "dashboards.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin := bytes.Index(page, []byte(costHeading))
	if begin < 0 {
		t.Fatalf("docs/dashboards.md has no table of costs:\n%s", table)
	}
	end := begin + bytes.Index(page[begin:], []byte("|\n\n")) + 2
	if string(page[begin:end]) == table {
		return
	}
	if !*update {
		t.Errorf("docs/dashboards.md is not current: go test ./tests/dashboards -run TestDashboardsOverHours -update\n%s", table)
		return
	}
	if err := os.WriteFile(path, slices.Concat(page[:begin], []byte(table), page[end:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

func rows(d dashboard) (n int) {
	for _, p := range d.Panels {
		if p.Type == "row" {
			n++
		}
	}
	return n
}

// thousands writes a number for reading.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
