package dashboards

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/promql/parser"
)

// configuration scrapes the exporter at %[1]s twice, as instance "honored" and
// as instance "exported". The target has the labels that service discovery
// gives it in a cluster: those of the exporter's own pod.
const configuration = `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: honored
    honor_labels: true
    static_configs: [{targets: ["%[1]s"], labels: {instance: honored, namespace: gpu-monitoring, pod: dcgm-exporter-x7k2p, container: exporter}}]
  - job_name: exported
    static_configs: [{targets: ["%[1]s"], labels: {instance: exported, namespace: gpu-monitoring, pod: dcgm-exporter-x7k2p, container: exporter}}]
`

func instances() []string { return []string{"honored", "exported"} }

func TestPrometheusAnswersEveryQuery(t *testing.T) {
	p := startPrometheus(t, fmt.Sprintf(configuration, exporter(t, troubled)))
	for file, d := range dashboards(t) {
		asked := 0
		for _, instance := range instances() {
			for _, q := range d.queries() {
				// A default stands in for data; here there is data.
				for _, expr := range []string{q.Expr, withoutDefault(t, q.Expr)} {
					asked++
					eventually(t, func() (bool, string) {
						got, err := p.ask(filled(expr, instance), q.Instant)
						if err != nil {
							t.Fatalf("%s: %s: %v\n%s", file, q.where, err, expr)
						}
						return len(got) > 0, fmt.Sprintf("%s: %s: an answer to\n%s", file, q.where, expr)
					})
				}
			}
			for _, v := range d.Templating.List {
				if v.Type == "query" {
					asked++
					p.offers(t, v.Query, instance)
				}
			}
		}
		t.Logf("%s: %d queries answered", file, asked)
	}
}

// withoutDefault returns the first part of "x or vector(0)", and every other
// query as it is.
func withoutDefault(t *testing.T, expr string) string {
	t.Helper()
	first, found := strings.CutSuffix(expr, " or vector(0)")
	if strings.Contains(first, "vector(") {
		t.Fatalf("a default that this test does not see: %s", expr)
	}
	if !found {
		return expr
	}
	return first
}

// offers checks that a variable of the form label_values(selector, label) has
// values.
func (p *prometheus) offers(t *testing.T, raw json.RawMessage, instance string) {
	t.Helper()
	var q struct{ Query string }
	if err := json.Unmarshal(raw, &q); err != nil {
		t.Fatal(err)
	}
	inner, ok := strings.CutPrefix(strings.TrimSuffix(q.Query, ")"), "label_values(")
	comma := strings.LastIndex(inner, ", ")
	if !ok || comma < 0 {
		t.Fatalf("variable %s: expected label_values(selector, label)", q.Query)
	}
	selector, label := inner[:comma], inner[comma+2:]
	eventually(t, func() (bool, string) {
		got, err := p.ask(filled(selector, instance), true)
		if err != nil {
			t.Fatalf("variable %s: %v", q.Query, err)
		}
		return slices.ContainsFunc(got, func(m map[string]string) bool { return m[label] != "" }), "values of " + q.Query
	})
}

// Who uses a GPU is told from the labels of the workload's pod. With either
// setting Prometheus also puts the exporter's own pod on some series, which
// would be blamed for every idle GPU.
func TestUsageIsOfTheWorkloadsPod(t *testing.T) {
	p := startPrometheus(t, fmt.Sprintf(configuration, exporter(t, troubled)))
	var usage query
	for _, q := range dashboards(t)["node.json"].queries() {
		if strings.Contains(q.where, "Who uses what") {
			usage = q
		}
	}
	want := map[string]string{
		"0": "research/llm-pretrain-0/trainer",
		"4": "//", // two pods share it: the device series is nobody's
		"5": "//", // free
	}
	for _, instance := range instances() {
		eventually(t, func() (bool, string) {
			answer, err := p.ask(filled(usage.Expr, instance), true)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, m := range answer {
				if _, ok := want[m["gpu"]]; ok {
					got[m["gpu"]] = m["namespace"] + "/" + m["pod"] + "/" + m["container"]
				}
			}
			diff := cmp.Diff(want, got)
			return diff == "", instance + ": users of GPUs (-want +got):\n" + diff
		})
	}
}

// A legend names labels of the series that it stands for.
func TestLegendsNameLabelsOfTheirSeries(t *testing.T) {
	pages := []map[string]*dto.MetricFamily{
		page(t, exporter(t, troubled), "DCGM_FI_DEV_GPU_TEMP{"),
		page(t, exporter(t, "faults: []\n", "--sim-node=divided", "--devices=f+c"), "GPU_CI_ID="),
	}
	for file, d := range dashboards(t) {
		for _, q := range d.queries() {
			known := map[string]bool{"instance": true}
			for _, s := range selectors(t, q) {
				for _, families := range pages {
					for _, m := range families[s.Name].GetMetric() {
						for _, l := range m.GetLabel() {
							known[l.GetName()] = true
						}
					}
				}
			}
			for _, part := range strings.Split(q.LegendFormat, "{{")[1:] {
				label, _, closed := strings.Cut(part, "}}")
				if !closed || !known[label] {
					t.Errorf("%s: %s: legend %q names %q, which none of the series has", file, q.where, q.LegendFormat, label)
				}
			}
			for _, s := range selectors(t, q) {
				checkMatchers(t, file, q, s, known)
			}
		}
	}
}

func checkMatchers(t *testing.T, file string, q query, s *parser.VectorSelector, known map[string]bool) {
	t.Helper()
	for _, m := range s.LabelMatchers {
		if m.Name != "__name__" && !known[m.Name] {
			t.Errorf("%s: %s: %s asks for the label %s, which none of its series has", file, q.where, s, m.Name)
		}
	}
}
