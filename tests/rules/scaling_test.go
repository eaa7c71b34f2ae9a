package rules

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// scrapeEvery is the interval of the ServiceMonitor in deployment/kubernetes.
const scrapeEvery = 30 * time.Second

// bytesPerSample is the middle of what Prometheus' documentation names.
const bytesPerSample = 1.5

// gpusOf returns how many GPUs are up on a page.
func (r recording) gpusOf() int {
	n := 0
	for _, s := range r.series {
		if s.name == "dcgm_exporter_entity_up" && strings.Contains(s.labels, "UUID=") && !strings.Contains(s.labels, "GPU_I_ID=") {
			n++
		}
	}
	return n
}

// grouped writes a number with commas.
func grouped(n float64) string {
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// reads returns how many series of a page the selectors of a name read.
func (r recording) reads(name string) (n int) {
	for _, s := range r.series {
		if s.name == name {
			n++
		}
	}
	return n
}

// docs/scaling.md says what pages of simulated nodes have.
func TestScaling(t *testing.T) {
	fleetFile, ok := etc.File(etc.FleetName)
	if !ok {
		t.Fatal("no fleet counters")
	}
	page := func(node string, file []byte) recording {
		return play{node: node, faults: "faults: []", counters: file, step: scrapeEvery, scrapes: 2}.scraped(t)
	}
	var b strings.Builder
	b.WriteString("| node | GPUs | default: series | of a GPU | page in KiB | fleet: series | of a GPU | page in KiB |\n|---|---|---|---|---|---|---|---|\n")
	var standard, fleet recording
	for _, node := range sim.Nodes() {
		d, f := page(node, etc.Default()), page(node, fleetFile)
		n := d.gpusOf()
		if n == 0 || n != f.gpusOf() || len(f.series) <= len(d.series) {
			t.Fatalf("%s: %d and %d GPUs, %d and %d series", node, n, f.gpusOf(), len(d.series), len(f.series))
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %d | %d | %s | %d | %d |\n", node, n,
			grouped(float64(len(d.series))), len(d.series)/n, d.bytes>>10, grouped(float64(len(f.series))), len(f.series)/n, f.bytes>>10)
		if node == "h100x8" {
			standard, fleet = d, f
		}
	}
	written(t, "scaling.md", "series", b.String())

	b.Reset()
	b.WriteString("| nodes | GPUs | counters | series | samples per second | GB a day | MB/s of pages |\n|---|---|---|---|---|---|---|\n")
	for _, nodes := range []float64{100, 1000, 2000} {
		for _, c := range []struct {
			name string
			recording
		}{{"default", standard}, {"fleet", fleet}} {
			series := nodes * float64(len(c.series))
			rate := series / scrapeEvery.Seconds()
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.1f | %.1f |\n", grouped(nodes), grouped(nodes*8), c.name, grouped(series), grouped(rate),
				rate*86400*bytesPerSample/1e9, nodes*float64(c.bytes)/scrapeEvery.Seconds()/1e6)
		}
	}
	written(t, "scaling.md", "fleet", b.String())

	// What a panel reads at 1,000 nodes, raw and recorded. A rate over five minutes reads ten samples.
	b.Reset()
	b.WriteString("| question at 1,000 nodes | raw series | samples a step | recorded series | samples a step |\n|---|---|---|---|---|\n")
	const nodes, perRate = 1000, int(5 * time.Minute / scrapeEvery)
	namespaces := map[string]bool{}
	for _, s := range standard.series {
		if _, rest, ok := strings.Cut(s.labels, `namespace="`); ok {
			name, _, _ := strings.Cut(rest, `"`)
			namespaces[name] = true
		}
	}
	gpus := nodes * standard.gpusOf()
	for _, q := range []struct {
		what, metric string
		samples      int
		recorded     int
	}{
		{"power of the fleet", "DCGM_FI_DEV_POWER_USAGE", 1, 1},
		{"power by node", "DCGM_FI_DEV_POWER_USAGE", 1, nodes},
		{"GPUs allocated by namespace", "dcgm_pod_gpu_allocated_seconds_total", perRate, len(namespaces)},
		{"GPUs used by namespace", "dcgm_pod_gpu_active_seconds_total", perRate, len(namespaces)},
		{"energy by namespace", "dcgm_pod_gpu_energy_joules_total", perRate, len(namespaces)},
		{"GPUs allocated of the fleet", "dcgm_pod_gpu_allocated_seconds_total", perRate, 1},
		{"power of each GPU, one vocabulary for all", "DCGM_FI_DEV_POWER_USAGE", 1, gpus},
	} {
		raw := nodes * standard.reads(q.metric)
		if raw < gpus {
			t.Errorf("%s: %d series of %s", q.what, raw, q.metric)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", q.what, grouped(float64(raw)), grouped(float64(raw*q.samples)),
			grouped(float64(q.recorded)), grouped(float64(q.recorded)))
	}
	written(t, "scaling.md", "rules", b.String())
}

// The recorded sums of a fleet are equal by whatever they are grouped: nothing is lost or counted
// twice on GPUs that are shared or cut by MIG.
func TestRecordedSumsAgree(t *testing.T) {
	prom.Program(t, "promtool")
	wanted := families(t)
	const minutesPlayed = 20
	test := unitTest{Name: "sums", Interval: "1m"}
	for _, node := range []string{"demo", "shared", "mixed"} {
		p := play{node: node, faults: "faults: []", counters: etc.Default(), step: time.Minute, scrapes: minutesPlayed + 1, wanted: wanted}
		test.Input = append(test.Input, p.scraped(t).inputs(node, minutesPlayed+1)...)
	}
	const all = `{}`
	for _, what := range []string{"allocated", "used", "wasted"} {
		for _, level := range []string{"namespace", "model", "cluster"} {
			test.Exprs = append(test.Exprs, exprTest{
				Expr:     fmt.Sprintf("abs(sum(%s:gpus_%s:sum) / sum(node:gpus_%s:sum) - 1) < bool 1e-9", level, what, what),
				EvalTime: fmt.Sprintf("%dm", minutesPlayed), Samples: []expSample{{all, 1}},
			})
		}
	}
	// Eight GPUs of demo, six of shared and five of mixed.
	test.Exprs = append(test.Exprs,
		exprTest{Expr: "sum(cluster:gpus:count)", EvalTime: fmt.Sprintf("%dm", minutesPlayed), Samples: []expSample{{all, 19}}},
		exprTest{Expr: "sum(cluster:gpus_allocated:sum) < bool 19", EvalTime: fmt.Sprintf("%dm", minutesPlayed), Samples: []expSample{{all, 1}}},
	)
	if out, ok := runTests(t, testFile{RuleFiles: []string{"recording.yml"}, Evaluation: "1m", Tests: []unitTest{test}}.write(t)); !ok {
		t.Error(out)
	}
}
