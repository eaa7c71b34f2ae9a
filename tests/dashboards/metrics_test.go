package dashboards

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// exportable are the fields that have a row: one for the two names of a field.
func exportable() []catalog.Entry {
	var all []catalog.Entry
	for e := range catalog.All() {
		if e.Exportable() && e.BaseOf == 0 {
			all = append(all, e)
		}
	}
	return all
}

func kindOf(e catalog.Entry) gpu.MetricType {
	switch {
	case e.Type == catalog.Text:
		return gpu.MetricLabel
	case e.Monotonic:
		return gpu.MetricCounter
	default:
		return gpu.MetricGauge
	}
}

// everything is a counters file that names every field and every family of the exporter.
func everything() string {
	var b strings.Builder
	for _, e := range exportable() {
		fmt.Fprintf(&b, "%s, %s, %s\n", e.Classic, kindOf(e), strings.ReplaceAll(e.Help, ",", ""))
	}
	for _, d := range catalog.Families() {
		fmt.Fprintf(&b, "%s, %s, %s\n", d.Name, d.Type, strings.ReplaceAll(d.Help, ",", ""))
	}
	return b.String()
}

// kindsOfNodes are simulated nodes that have every kind of entity between them.
func kindsOfNodes() []string {
	return []string{"shared", "everything"}
}

// wholePage returns the page of a simulated node with everything on it, under both vocabularies.
func wholePage(t *testing.T, node string) string {
	t.Helper()
	address := exporter(t, "faults:\n  - {fault: xid, at: 0s, devices: [\"0\"], xids: [79]}\n",
		"--sim-node="+node, "--vocabulary=both", "--collectors="+file(t, "everything.csv", everything()))
	var text string
	eventually(t, func() (bool, string) {
		text = get(t, "http://"+address+"/metrics")
		return strings.Contains(text, "DCGM_EXP_XID_ERRORS_COUNT{"), "a GPU's events on\n" + text
	})
	return text
}

// A metric is what docs/metrics.md says of a name.
type metric struct {
	kind   string   // counter, gauge or label
	labels []string // its own
	of     []string // kinds of entities, whose labels it has too
}

// described returns the metrics of docs/metrics.md by name, and the labels of each kind of entity.
func described(t *testing.T) (metrics map[string]metric, labels map[string][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	metrics, labels = map[string]metric{}, map[string][]string{}
	spans := func(cell string) (all []string) {
		for _, m := range codeSpan.FindAllStringSubmatch(cell, -1) {
			all = append(all, m[1])
		}
		return all
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 {
			continue
		}
		names := spans(cells[0])
		switch m := (metric{kind: cells[1]}); {
		case len(cells) == 2 && len(names) == 0:
			kind, _, _ := strings.Cut(strings.TrimSpace(cells[0]), " of a")
			labels[kind] = append(labels[kind], spans(cells[1])...)
		case len(names) == 0:
		case len(cells) >= 8: // a field; its text may have a bar
			m.kind, m.of = cells[3], strings.Split(cells[5], ", ")
			if names[0] == "DCGM_FI_DEV_XID_ERRORS" {
				m.labels = []string{"err_code", "err_msg"}
			}
			for _, name := range append(names, spans(cells[1])...) {
				metrics[name] = m
			}
		case len(cells) == 7:
			m.labels, m.of = spans(cells[3]), []string{"GPU"}
			metrics[names[0]] = m
		case len(cells) == 5:
			m.labels = spans(cells[3])
			metrics[names[0]] = m
		case len(cells) == 3:
			m.labels = spans(cells[2])
			metrics[names[0]] = m
		}
	}
	if len(metrics) < 300 || len(labels) < 7 {
		t.Fatalf("docs/metrics.md: %d names, labels of %d kinds", len(metrics), len(labels))
	}
	return metrics, labels
}

func TestWholePages(t *testing.T) {
	pages := map[string]string{}
	for _, node := range kindsOfNodes() {
		pages[node] = wholePage(t, node)
	}
	t.Run("are reported", func(t *testing.T) { checkReported(t, pages) })
	t.Run("are valid", func(t *testing.T) { checkValid(t, pages) })
}

// checkReported holds that whatever is served has a row, with its type and its labels; and that the
// pages have every kind of entity, so that this says something of each.
func checkReported(t *testing.T, pages map[string]string) {
	t.Helper()
	rows, byKind := described(t)
	owners := []string{"container", "namespace", "pod", "pod_uid", "vgpu", "hpc_job"}
	for e := range catalog.All() {
		if e.Type == catalog.Text {
			owners = append(owners, e.Classic, e.Current)
		}
	}
	seen := map[string]bool{}
	for node, text := range pages {
		p := expfmt.NewTextParser(model.LegacyValidation)
		families, err := p.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range families {
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			seen[name] = true
			row, ok := rows[name]
			if !ok {
				t.Errorf("%s: docs/metrics.md has no row for %s", node, name)
				continue
			}
			checkFamily(t, node, f, row, byKind, owners)
		}
	}
	for _, d := range catalog.Families() {
		if !seen[d.Name] {
			t.Errorf("%s is on no page, so this test checks less than it says", d.Name)
		}
	}
	for _, k := range gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX).List() {
		if !slices.ContainsFunc(exportable(), func(e catalog.Entry) bool { return e.Levels.Has(k) && seen[e.Classic] }) {
			t.Errorf("no page has a field of a %s", k)
		}
	}
}

func checkFamily(t *testing.T, node string, f *dto.MetricFamily, row metric, byKind map[string][]string, owners []string) {
	t.Helper()
	name := f.GetName()
	// A rate under its current name is a gauge, whatever it was called.
	renamedRate := strings.HasSuffix(name, "_PER_SECOND") && f.GetType() == dto.MetricType_GAUGE
	if kind := strings.ToLower(f.GetType().String()); kind != row.kind && !renamedRate {
		t.Errorf("%s: %s is a %s, docs/metrics.md says %s", node, name, kind, row.kind)
	}
	known := slices.Clone(row.labels)
	if row.of != nil {
		known = append(known, owners...)
		for _, kind := range row.of {
			if kind == "node" { // fields of the machine stand at every GPU
				kind = "GPU"
			}
			known = append(known, byKind[kind]...)
		}
	}
	for _, l := range labelsOf(f) {
		if !slices.Contains(known, l) {
			t.Errorf("%s: %s has the label %s, which docs/metrics.md does not name", node, name, l)
		}
	}
}

// notApplicable says which of promlint's rules do not apply to a name, and why.
func notApplicable(name, problem string) bool {
	switch {
	case strings.HasPrefix(name, "go_"), strings.HasPrefix(name, "process_"), strings.HasPrefix(name, "promhttp_"):
		return true // client_golang's own
	case !strings.HasPrefix(name, "DCGM_"):
		return false
	}
	// The names, units and types under DCGM_ are DCGM's and the reference's: capitals, units that are
	// no base units, abbreviations, and counters that do not end in _total are what dashboards
	// query.
	for _, rule := range []string{"snake_case", "base unit", "abbreviated units", "_total", "metric name should not include type"} {
		if strings.Contains(problem, rule) {
			return true
		}
	}
	return false
}

// checkValid holds that the pages are read by both of Prometheus' parsers to the same number of
// samples, and pass promlint.
func checkValid(t *testing.T, pages map[string]string) {
	t.Helper()
	for node, text := range pages {
		p := expfmt.NewTextParser(model.LegacyValidation)
		families, err := p.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Errorf("%s: expfmt: %v", node, err)
			continue
		}
		want := 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				want++
				if h := m.GetHistogram(); h != nil {
					want += len(h.GetBucket()) + 1
				}
				if s := m.GetSummary(); s != nil {
					want += len(s.GetQuantile()) + 1
				}
			}
		}
		if got := samples(t, node, text); got < 100 || got != want {
			t.Errorf("%s: %d samples for a server, %d for expfmt", node, got, want)
		}
		problems, err := promlint.New(bytes.NewReader([]byte(text))).Lint()
		if err != nil {
			t.Errorf("%s: promlint: %v", node, err)
		}
		for _, problem := range problems {
			if !notApplicable(problem.Metric, problem.Text) {
				t.Errorf("%s: %s: %s", node, problem.Metric, problem.Text)
			}
		}
	}
}

// samples reads a page as a Prometheus server does, and returns how many samples it has. No two may
// be of one series.
func samples(t *testing.T, node, text string) int {
	t.Helper()
	seen := map[string]bool{}
	for s := range prom.Samples(t, []byte(text)) {
		if seen[string(s.Series)] {
			t.Errorf("%s: twice on the page: %s", node, s.Series)
		}
		seen[string(s.Series)] = true
	}
	return len(seen)
}
