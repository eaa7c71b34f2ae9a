package dashboards

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

// A metric is a row of docs/metrics.md.
type metric struct {
	kind   string   // counter, gauge or label
	labels []string // its own, beside those of the entity
	levels gpu.Kinds
}

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

// attribution returns the families of attribution as the code spells them out.
func attribution(t *testing.T) []gpu.Family {
	t.Helper()
	types := map[string]gpu.MetricType{"MetricGauge": gpu.MetricGauge, "MetricCounter": gpu.MetricCounter}
	named := constants(t)
	var all []gpu.Family
	walkCode(t, func(n ast.Node) {
		literal, ok := n.(*ast.CompositeLit)
		if !ok {
			return
		}
		var f gpu.Family
		typed := false
		for _, e := range literal.Elts {
			kv, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			key, _ := kv.Key.(*ast.Ident)
			switch {
			case key == nil:
			case key.Name == "Name":
				f.Name, _ = stringOf(kv.Value)
				if id, ok := kv.Value.(*ast.Ident); ok {
					f.Name = named[id.Name]
				}
			case key.Name == "Help":
				f.Help, _ = stringOf(kv.Value)
			case key.Name == "Type":
				if s, ok := kv.Value.(*ast.SelectorExpr); ok {
					f.Type, typed = types[s.Sel.Name]
				}
			}
		}
		if typed && (strings.HasPrefix(f.Name, "dcgm_pod_gpu_") || strings.HasPrefix(f.Name, "dcgm_gpu_")) {
			all = append(all, f)
		}
	})
	if len(all) < 10 {
		t.Fatalf("only %d families of attribution found in the code", len(all))
	}
	return all
}

// constants returns the strings that the code gives a name.
func constants(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	walkCode(t, func(n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != len(spec.Values) {
			return
		}
		for i, v := range spec.Values {
			if s, ok := stringOf(v); ok {
				all[spec.Names[i].Name] = s
			}
		}
	})
	return all
}

// attributionLabels are the labels of a family of attribution.
func attributionLabels(name string) []string {
	list := []string{"gpu", "UUID", "GPU_I_ID"}
	if strings.HasPrefix(name, "dcgm_pod_") {
		list = append(list, "namespace", "pod", "container", "hpc_job")
	}
	if name == "dcgm_pod_gpu_info" {
		list = append(list, "pod_uid", "resource", "sharing", "replicas")
	}
	return list
}

// An entityLabels is what the series of a kind of entity carry.
type entityLabels struct {
	kind   gpu.Kind
	what   string
	labels []string
}

// labelsByKind returns which labels the encoder gives each kind of entity, with everything known
// that can be known of it.
func labelsByKind(t *testing.T) []entityLabels {
	t.Helper()
	whole := gpu.Device{
		UUID: "GPU-1", PCIBusID: "00000000:1B:00.0", Model: "model", Profile: "1g.10gb", Serial: "serial",
		GPU: 1, NVMLIndex: 1, InstanceID: 1, Link: 1,
	}
	var all []entityLabels
	add := func(what string, e gpu.Entity) {
		d := whole
		d.Entity = e
		topology := gpu.NewTopology([]gpu.Device{d})
		encoder := exposition.NewEncoder(exposition.Options{Hostname: "node"})
		page := encoder.Encode(&gpu.Snapshot{
			Topology: topology,
			Columns:  []gpu.Column{{Counter: &gpu.Counter{Name: "column", Type: gpu.MetricGauge, Help: "x"}, Values: []gpu.Value{gpu.Int(1)}}},
			Health:   gpu.Health{Entities: make([]gpu.EntityHealth, 1)},
		})
		for line := range strings.Lines(string(page.Bytes())) {
			if !strings.HasPrefix(line, "column{") {
				continue
			}
			var names []string
			for _, pair := range strings.Split(line[len("column{"):strings.IndexByte(line, '}')], ",") {
				name, _, _ := strings.Cut(pair, "=")
				names = append(names, name)
			}
			all = append(all, entityLabels{e.Kind, what, names})
		}
	}
	for _, k := range gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance).List() {
		add(k.String(), gpu.Entity{Kind: k})
	}
	add("NVLink of a GPU", gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindGPU})
	add("NVLink of an NVSwitch", gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindNVSwitch})
	for _, k := range gpu.KindsOf(gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX).List() {
		add(k.String(), gpu.Entity{Kind: k})
	}
	if len(all) < 8 {
		t.Fatalf("labels of only %d kinds", len(all))
	}
	return all
}

// groups are the sections of fields, the first that fits.
func groups() []struct {
	title string
	fits  func(catalog.Entry) bool
} {
	has := func(kinds ...gpu.Kind) func(catalog.Entry) bool {
		return func(e catalog.Entry) bool {
			return slices.ContainsFunc(kinds, e.Levels.Has)
		}
	}
	return []struct {
		title string
		fits  func(catalog.Entry) bool
	}{
		{"Labels", func(e catalog.Entry) bool { return e.Type == catalog.Text }},
		{"Profiling", func(e catalog.Entry) bool { return e.Profiling }},
		{"GPUs and their instances", has(gpu.KindGPU, gpu.KindGPUInstance)},
		{"NVLinks", has(gpu.KindNVLink)},
		{"NVSwitches", has(gpu.KindNVSwitch)},
		{"Grace CPUs and their cores", has(gpu.KindCPU, gpu.KindCPUCore)},
		{"ConnectX cards", has(gpu.KindConnectX)},
		{"The machine", func(catalog.Entry) bool { return true }},
	}
}

func code(names []string) string {
	if len(names) == 0 {
		return "–"
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// cell keeps a text within its cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

// reference returns docs/metrics.md.
func reference(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `<!-- Generated by go test ./tests/dashboards -run TestMetricsPage -update. Do not edit. -->
# Metrics

Every family that the exporter can serve. What is served is what the counters file names; the exporter's own series and
those of attribution come by themselves. `+"`dcgm-exporter fields WORD…`"+` searches the fields, `+"`dcgm-exporter check FILE`"+`
says which of a file this machine can give.

A field has a name in each vocabulary: that of dcgm-exporter 4.8 (classic, the default) and that of 4.9 (current).
`+"`--vocabulary=both`"+` serves both from the same sample. A counters file may use either and gets what it names. "4.8 unit → 4.9 unit" means that
the current name is in another unit. The type is the one that suits the field; the file decides. "from" names the sources
that read it (`+"`--source`"+`), which the hardware, the driver and the engine may still not have. The catalog is made from
go-dcgm %s.

## Labels

| of | labels |
|---|---|
`, catalog.ModuleVersion)
	for _, e := range labelsByKind(t) {
		fmt.Fprintf(&b, "| %s | %s |\n", e.what, code(e.labels))
	}
	b.WriteString(`
Behind these come the label-typed counters of the file, and on GPUs and instances those of the owner: ` + "`container`, `namespace`, `pod`" + `,
and where configured ` + "`pod_uid`, `vgpu`, `hpc_job`, `dra_…`" + ` and the pod's labels. ` + "`DCGM_FI_DEV_XID_ERRORS`" + ` has ` + "`err_code` and `err_msg`" + ` too. What is
not known is left out. Fields of the machine stand at every GPU. Fields that hold structures, and those of vGPUs, cannot
be exported and are not listed here; ` + "`dcgm-exporter fields`" + ` shows them. [flags.md](flags.md) has what changes label names.

## Fields
`)
	rest := exportable()
	for _, g := range groups() {
		var out []catalog.Entry
		fmt.Fprintf(&b, "\n### %s\n\n| classic (4.8) | current (4.9) | id | type | unit | of | from | what |\n|---|---|---|---|---|---|---|---|\n", g.title)
		for _, e := range rest {
			if !g.fits(e) {
				out = append(out, e)
				continue
			}
			current := "same"
			if e.Current != e.Classic {
				current = "`" + e.Current + "`"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s | %s | %s | %s |\n",
				e.Classic, current, e.ID, kindOf(e), unitsOf(e), levels(e), from(t, e.Classic, kindOf(e)), cell(e.Help))
		}
		rest = out
	}
	b.WriteString(`
## Families of the exporter

They are named in the counters file like fields, are the same in both vocabularies, and carry the labels of their GPU
and its owner beside their own.

| name | type | unit | own labels | made of field | from | what |
|---|---|---|---|---|---|---|
`)
	for _, d := range catalog.Families() {
		source := "–"
		if d.Field != 0 {
			e, _ := catalog.ByID(d.Field)
			source = fmt.Sprintf("%d `%s`", d.Field, e.Classic)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n",
			d.Name, d.Type, promisedUnit(d.Name), code(d.Labels), source, from(t, d.Name, d.Type), cell(d.Help))
	}
	b.WriteString(`
## Who uses what

They come where owners are known ([attribution.md](attribution.md)); [Shared GPUs](attribution.md#shared-gpus) says how they are reckoned. They are the
same in both vocabularies.

| name | type | unit | labels | what |
|---|---|---|---|---|
`)
	for _, f := range attribution(t) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.Type, promisedUnit(f.Name), code(attributionLabels(f.Name)), cell(f.Help))
	}
	b.WriteString(`
## The exporter itself

[The exporter's own series](operations.md#the-exporters-own-series) says what each means and what to do. Beside them are those of the Go runtime and of the process, ` + "`go_…` and `process_…`" + `.

| name | type | labels |
|---|---|---|
`)
	rows := documented(t)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, rows[name].kind, code(rows[name].labels))
	}
	return b.String()
}

func unitsOf(e catalog.Entry) string {
	classic, _ := catalog.Lookup(e.Classic)
	current, _ := catalog.Lookup(e.Current)
	if classic.Unit == current.Unit {
		return string(classic.Unit)
	}
	return fmt.Sprintf("%s → %s", classic.Unit, current.Unit)
}

func levels(e catalog.Entry) string {
	var words []string
	for _, k := range e.Levels.List() {
		words = append(words, k.String())
	}
	return strings.Join(words, ", ")
}

func TestMetricsPage(t *testing.T) {
	needDrivers(t)
	path := filepath.Join(root, "docs", "metrics.md")
	want := reference(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/metrics.md is not what the code says: run go test ./tests/dashboards -run ^TestMetricsPage$ -update (-code +page):\n%s", diff)
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

// described returns what docs/metrics.md says, by name.
func described(t *testing.T) map[string]metric {
	t.Helper()
	all := map[string]metric{}
	for _, e := range exportable() {
		named := kindOf(e).String()
		for _, name := range []string{e.Classic, e.Current} {
			m := metric{kind: named, levels: e.Levels}
			if e.ID == catalog.XIDErrors {
				m.labels = []string{"err_code", "err_msg"}
			}
			all[name] = m
		}
	}
	for _, d := range catalog.Families() {
		all[d.Name] = metric{kind: d.Type.String(), labels: d.Labels, levels: gpu.KindsOf(gpu.KindGPU)}
	}
	for _, f := range attribution(t) {
		all[f.Name] = metric{kind: f.Type.String(), labels: attributionLabels(f.Name)}
	}
	for name, r := range documented(t) {
		all[name] = metric{kind: r.kind, labels: r.labels}
	}
	return all
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
	rows := described(t)
	byKind := map[gpu.Kind][]string{}
	for _, e := range labelsByKind(t) {
		byKind[e.kind] = append(byKind[e.kind], e.labels...)
	}
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

func checkFamily(t *testing.T, node string, f *dto.MetricFamily, row metric, byKind map[gpu.Kind][]string, owners []string) {
	t.Helper()
	name := f.GetName()
	// A rate under its current name is a gauge, whatever it was called.
	renamedRate := strings.HasSuffix(name, "_PER_SECOND") && f.GetType() == dto.MetricType_GAUGE
	if kind := strings.ToLower(f.GetType().String()); kind != row.kind && !renamedRate {
		t.Errorf("%s: %s is a %s, docs/metrics.md says %s", node, name, kind, row.kind)
	}
	known := slices.Clone(row.labels)
	if row.levels != 0 {
		known = append(known, owners...)
		levels := row.levels
		if levels.Has(gpu.KindNode) {
			levels |= gpu.KindsOf(gpu.KindGPU)
		}
		for _, k := range levels.List() {
			known = append(known, byKind[k]...)
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
