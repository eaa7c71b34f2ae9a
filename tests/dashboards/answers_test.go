package dashboards

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// configuration scrapes the exporter at %[1]s twice, as instance "honored" and as instance
// "exported". The target has the labels that service discovery gives it in a cluster: those of the
// exporter's own pod.
const configuration = `
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
  - job_name: honored
    honor_labels: true
    static_configs: [{targets: ["%[1]s"], labels: {instance: honored, namespace: gpu-monitoring, pod: dcgm-exporter-x7k2p, container: exporter}}]
  - job_name: exported
    static_configs: [{targets: ["%[1]s"], labels: {instance: exported, namespace: gpu-monitoring, pod: dcgm-exporter-x7k2p, container: exporter}}]
`

// nvidias is the dashboard that NVIDIA publishes (12239), whose queries must go on to answer.
const nvidias = "upstream/dcgm-exporter/dcgm-exporter-dashboard.json"

func TestNVIDIAsDashboardAnswers(t *testing.T) {
	t.Parallel() // it waits for scrapes
	var d dashboard
	if err := json.Unmarshal(material.Read(t, nvidias), &d); err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, fmt.Sprintf(configuration, exporter(t, troubled)))
	queries := d.queries()
	if len(queries) < 8 {
		t.Fatalf("%d queries", len(queries))
	}
	for _, q := range queries {
		eventually(t, func() (bool, string) {
			got, err := p.ask(filled(q.Expr, "honored"), q.Instant)
			if err != nil {
				t.Fatalf("%s: %v", q.where, err)
			}
			return len(got) > 0, q.where + ": an answer to " + q.Expr
		})
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		var text string
		if err := json.Unmarshal(v.Query, &text); err != nil {
			t.Fatal(err)
		}
		family, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "label_values("), ")"), ", ")
		got, err := p.ask(family, true)
		if err != nil || len(got) == 0 || got[0][label] == "" {
			t.Errorf("variable %s: %v, %v", text, got, err)
		}
	}
}

// What app registers is on no played page: whole exporters answer for it, one of them with a
// configuration that cannot be read anymore, and one without its kubelet.
func TestExporterDashboardLive(t *testing.T) {
	t.Parallel() // it waits for scrapes
	counters := file(t, "counters.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n")
	broken := exporter(t, "faults: []\n", "--collectors="+counters, "--web-enable-lifecycle")
	lonely := exporter(t, "faults: []\n", "--kubernetes", "--pod-resources-kubelet-socket="+filepath.Join(t.TempDir(), "none.sock"))
	healthy := exporter(t, troubled)
	if err := os.WriteFile(counters, []byte("DCGM_FI_DEV_GPU_TEMPERATURE_OF_THE_SUN, gauge, Hot.\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+broken+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	p := startPrometheus(t, fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n  - job_name: gpu\n    static_configs: [{targets: [%q, %q, %q]}]\n", broken, lonely, healthy))
	want := map[string]float64{
		"Exporters": 3, "Not scraped": 0, "Without data": 0, "Reload failed": 1, "Owners not known": 1, "On the fallback": 0,
	}
	for _, panel := range dashboards(t)["exporter.json"].everyPanel() {
		for _, q := range panel.Targets {
			// A default stands in for data where nothing is wrong.
			expr := filled(q.Expr, ".*")
			eventually(t, func() (bool, string) {
				got, err := p.values(expr)
				if err != nil {
					t.Fatalf("%q: %v", panel.Title, err)
				}
				if v, known := want[panel.Title]; known && panel.Type == "stat" {
					return len(got) == 1 && got[0] == v, fmt.Sprintf("%q shows %v, want %v", panel.Title, got, v)
				}
				return len(got) > 0 || !slices.Contains(onlyOfApp, panel.Title), fmt.Sprintf("%q: an answer to\n%s", panel.Title, expr)
			})
		}
	}
}

// Who uses a GPU follows from the labels of the workload's pod. With either setting of honor_labels
// Prometheus also puts the exporter's own pod on some series, which would be blamed for every idle
// GPU.
func TestUsageIsOfTheWorkloadsPod(t *testing.T) {
	t.Parallel() // it waits for scrapes
	p := startPrometheus(t, fmt.Sprintf(configuration, exporter(t, troubled)))
	usage := find(t, "node", "Who uses what", "table").Targets[0]
	want := map[string][]string{
		"0": {"research/llm-pretrain-0/"},
		"3": {"//48213"}, // a job outside pods
		"4": {"serving/chat-7f9c6d5b8-x2kqv/", "serving/rerank-5b9d7c6f4-tq8wn/"},
		"5": {"//"}, // free
	}
	for _, instance := range []string{"honored", "exported"} {
		eventually(t, func() (bool, string) {
			answer, err := p.ask(filled(usage.Expr, instance), true)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]string{}
			for _, m := range answer {
				if _, ok := want[m["gpu"]]; ok {
					got[m["gpu"]] = append(got[m["gpu"]], m["namespace"]+"/"+m["pod"]+"/"+m["hpc_job"])
				}
			}
			for _, list := range got {
				slices.Sort(list)
			}
			diff := cmp.Diff(want, got)
			return diff == "", instance + ": users of GPUs (-want +got):\n" + diff
		})
	}
}

// The variables of namespaces and pods take the workload's labels, whether or not the scrape honors
// them.
func TestNamespacesAreOfWorkloads(t *testing.T) {
	t.Parallel() // it waits for scrapes
	p := startPrometheus(t, fmt.Sprintf(configuration, exporter(t, troubled)))
	for _, v := range dashboards(t)["workload.json"].Templating.List {
		if v.Name != "namespace" {
			continue
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Fatal(err)
		}
		expr := strings.TrimSuffix(strings.TrimPrefix(q.Query, "query_result("), ")")
		for _, instance := range []string{"honored", "exported"} {
			eventually(t, func() (bool, string) {
				answer, err := p.ask(filled(expr, instance), true)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, m := range answer {
					got = append(got, m["namespace"])
				}
				slices.Sort(got)
				diff := cmp.Diff([]string{"analytics", "media", "notebooks", "research", "serving"}, got)
				return diff == "", instance + ": namespaces (-want +got):\n" + diff
			})
		}
		return
	}
	t.Error("no variable namespace")
}

// withoutDefault returns the first part of "x or vector(0)", and every other query as it is: a
// default stands in for data.
func withoutDefault(t *testing.T, expr string) string {
	t.Helper()
	first, _ := strings.CutSuffix(expr, " or vector(0)")
	if strings.Contains(first, "vector(") {
		t.Fatalf("a default that this test does not see: %s", expr)
	}
	return first
}
