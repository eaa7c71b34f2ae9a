package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
)

// patience bounds every wait. It is generous on purpose: no test measures speed.
const patience = 90 * time.Second

// everything returns a counters file with all fields and families of the exporter.
func everything() string {
	var b strings.Builder
	line := func(name string, typ gpu.MetricType, help string) {
		fmt.Fprintf(&b, "%s, %s, %s\n", name, typ, strings.ReplaceAll(help, ",", ""))
	}
	for _, e := range exportable() {
		line(e.Classic, kindOf(e), e.Help)
	}
	for _, d := range catalog.Families(catalog.Requested) {
		line(d.Name, d.Type, d.Summary())
	}
	return b.String()
}

// served runs the exporter on a simulated node with every family enabled. It waits until the page contains has, and
// returns the page.
func served(t *testing.T, node, faults, has string) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	dir := folder.Of(t, map[string]string{"counters.csv": everything(), "faults.yaml": "faults: [" + faults + "]\n"})
	e := exporter.Start(t, patience, app.Process{Args: []string{
		"--source=sim", "--sim-node=" + node, "--sim-scenario=" +
			filepath.Join(dir, "faults.yaml"), "--collect-interval=1s",
		"--vocabulary=both", "--xid-kernel-log=/dev/kmsg", "--collectors=" + filepath.Join(dir, "counters.csv"),
	}})
	err := wait.Until(patience, func() error {
		res, err := http.Get("http://" + e.Address + "/metrics")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		page, err := io.ReadAll(res.Body)
		if text = string(page); err == nil && !strings.Contains(text, has) {
			err = fmt.Errorf("page does not contain %q:\n%s", has, text)
		}
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", node, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err = parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%s: %v", node, err)
	}
	return text, families
}

// rows returns the type and the labels of each declared family, by name. The labels are all those that its series can
// have.
func rows(t *testing.T) map[string]row {
	t.Helper()
	t.Chdir(root)
	w := &writer{}
	byKind := map[gpu.Kind][]string{}
	for _, e := range w.labelsByKind() {
		byKind[e.kind] = append(byKind[e.kind], e.labels...)
	}
	owners := []string{"container", "namespace", "pod", "pod_uid", "vgpu", "hpc_job"}
	for _, e := range exportable() {
		if e.Type == catalog.Text {
			owners = append(owners, e.Classic, e.Current)
		}
	}
	of := func(kinds []gpu.Kind) []string {
		all := slices.Clone(owners)
		for _, k := range kinds {
			all = append(all, byKind[k]...)
		}
		return all
	}
	gpus := of(gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance).List())
	all := w.self()
	for _, e := range exportable() {
		labels := of(e.Levels.List())
		if e.Classic == "DCGM_FI_DEV_XID_ERRORS" {
			labels = append(labels, "err_code", "err_msg")
		}
		if len(byKind[e.Levels.List()[0]]) == 0 { // machine-wide fields are repeated on every GPU
			labels = gpus
		}
		for _, name := range []string{e.Classic, e.Current} {
			all[name] = row{kindOf(e).String(), labels}
		}
	}
	for _, f := range catalog.Families(catalog.Requested) {
		labels := gpus
		switch {
		case f.Health != 0:
			labels = of(f.Health.List())
		case f.Link != 0:
			labels = of([]gpu.Kind{gpu.KindNVLink})
		}
		all[f.Name] = row{f.Type.String(), append(slices.Clone(labels), f.Labels...)}
	}
	for _, f := range usage() {
		all[f.Name] = row{f.Type.String(), f.Labels}
	}
	if w.err != nil {
		t.Fatal(w.err)
	}
	return all
}

// Each family on the pages has a row in the documentation with its type and labels. No series is repeated, and every
// family passes the applicable rules of promlint. Together, the pages have every family that a counters file can
// request, and fields of every kind of entity.
func TestServedPagesAreDescribed(t *testing.T) {
	all, seen := rows(t), map[string]bool{}
	for node, want := range map[string][2]string{
		"shared": {`{fault: xid, at: 0s, devices: ["0"], xids: [79]}, {fault: gpu-lost, at: 3s, devices: ["3"]}`,
			`reason="lost"`},
		"everything": {`{fault: xid, at: 2s, devices: ["0"], xids: [149],
			text: NETIR Fatal XC0 i0 Link 08 (0x004505c6)},
			{fault: sxid, at: 3s, devices: ["nvswitch 1/3"], xids: [20034]}`, "DCGM_EXP_NVSWITCH_SXID_ERRORS_TOTAL{"},
		"gb300":  {"", "DCGM_EXP_FABRIC_INFO{"},
		"single": {`{fault: engine-down, at: 0s}`, "dcgm_exporter_collect_failures_total{"},
	} {
		text, families := served(t, node, want[0], want[1])
		for name, f := range families {
			seen[name] = true
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			checkFamily(t, f, all)
		}
		lines := map[string]bool{}
		for line := range strings.Lines(text) {
			series := line[:max(0, strings.LastIndexByte(line, ' '))]
			if !strings.HasPrefix(line, "#") && lines[series] {
				t.Errorf("%s: duplicate series: %s", node, series)
			}
			lines[series] = true
		}
		problems, err := promlint.New(strings.NewReader(text)).Lint()
		if err != nil {
			t.Error(err)
		}
		for _, p := range problems {
			if !notApplicable(p.Metric, p.Text) {
				t.Errorf("%s: %s: %s", node, p.Metric, p.Text)
			}
		}
	}
	names := []string{"dcgm_exporter_entity_up", "dcgm_exporter_collect_failures_total",
		"dcgm_exporter_attribution_success"}
	for _, d := range catalog.Families(catalog.Requested) {
		names = append(names, d.Name)
	}
	for _, name := range names {
		if !seen[name] {
			t.Errorf("%s is on none of the pages, want it on at least one so that it is checked", name)
		}
	}
	for _, k := range gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU,
		gpu.KindCPUCore, gpu.KindConnectX).List() {
		if !slices.ContainsFunc(exportable(),
			func(e catalog.Entry) bool { return e.Levels.Has(k) && seen[e.Classic] }) {
			t.Errorf("no page has a field of kind %s", k)
		}
	}
}

func checkFamily(t *testing.T, f *dto.MetricFamily, all map[string]row) {
	t.Helper()
	name := f.GetName()
	r, ok := all[name]
	if !ok {
		t.Errorf("%s is not declared", name)
		return
	}
	// under its current name, a rate is a gauge, even if it was a counter under the classic name
	renamedRate := strings.HasSuffix(name, "_PER_SECOND") && f.GetType() == dto.MetricType_GAUGE
	if kind := strings.ToLower(f.GetType().String()); kind != r.kind && !renamedRate {
		t.Errorf("type of %s = %s, want %s as in its row of the documentation", name, kind, r.kind)
	}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if !slices.Contains(r.labels, l.GetName()) {
				t.Fatalf("%s has the label %s, want only those in its row of the documentation: %q", name, l.GetName(),
					r.labels)
			}
		}
	}
}

// notApplicable reports whether a promlint rule does not apply to a metric.
func notApplicable(name, problem string) bool {
	switch {
	case strings.HasPrefix(name, "go_"), strings.HasPrefix(name, "process_"), strings.HasPrefix(name, "promhttp_"):
		return true // client_golang defines the metric
	case name == catalog.GPUVerdict:
		return strings.Contains(problem, "camelCase") // the labels of GPUs are spelled as in NVIDIA's exporter
	case !strings.HasPrefix(name, "DCGM_"):
		return false
	}
	// Names, units and types under DCGM_ come from DCGM and NVIDIA's exporter, and existing dashboards use them. They
	// have capitals, abbreviations, units that are not base units, and counters without the suffix _total.
	return slices.ContainsFunc([]string{"snake_case", "base unit", "abbreviated units", "_total",
		"metric name should not include type"},
		func(rule string) bool { return strings.Contains(problem, rule) })
}

// The tables in docs/operations.md list every family about the exporter itself, with its type and labels, and every
// reason.
func TestOperationsPageIsComplete(t *testing.T) {
	t.Chdir(root)
	w := &writer{}
	families, page := w.self(), w.operations()
	if w.err != nil {
		t.Fatal(w.err)
	}
	if len(families) < 40 {
		t.Fatalf("found %d families in the code, want at least 40", len(families))
	}
	if page != folder.Read(t, "docs/operations.md") {
		t.Error("docs/operations.md is out of date: go run ./tools/metrics")
	}
	_, section, _ := strings.Cut(folder.Read(t, "docs/operations.md"), "### Reasons\n")
	section, _, _ = strings.Cut(section, "\n### ")
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		listed[m[1]] = true
	}
	for reason := range gpu.Reasons() {
		if !listed[reason] {
			t.Errorf("docs/operations.md does not list the reason %s", reason)
		}
		delete(listed, reason)
	}
	if len(listed) > 0 {
		t.Errorf("docs/operations.md lists reasons that do not exist: %q", slices.Sorted(maps.Keys(listed)))
	}
}

func TestFlagsPageIsCurrent(t *testing.T) {
	t.Chdir(root)
	w := &writer{}
	if page := w.flags(); w.err != nil || page != folder.Read(t, "docs/flags.md") {
		t.Errorf("docs/flags.md is out of date: go run ./tools/metrics (error %v)", w.err)
	}
}

// If the name of a metric is not a string literal, the error has its position and its text.
func TestNamesAreLiterals(t *testing.T) {
	w := &writer{files: token.NewFileSet()}
	e, err := parser.ParseExprFrom(w.files, "internal/a.go", `gauge.NewState(prefix+"up", "Help.")`, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.metric(e.(*ast.CallExpr))
	if w.err == nil || !strings.HasPrefix(w.err.Error(), "internal/a.go:1:16: ") ||
		!strings.HasSuffix(w.err.Error(), `found prefix + "up"`) {
		t.Errorf("error %v, want one with the position and the text of the name", w.err)
	}
}
