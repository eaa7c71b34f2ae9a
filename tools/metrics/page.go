package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// exportable returns the fields that have a row. A base-unit field that replaces another field has no row: its name is
// in the row of the other field.
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

// entityLabels are the labels on the series of one kind of entity.
type entityLabels struct {
	kind   gpu.Kind
	what   string
	labels []string
}

// labelsByKind returns the labels that the encoder writes for each kind of entity if all properties are known.
func (w *writer) labelsByKind() []entityLabels {
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
			Columns: []gpu.Column{{Counter: &gpu.Counter{Name: "column", Type: gpu.MetricGauge, Help: "x"},
				Values: []gpu.Value{gpu.Int(1)}}},
			Health: gpu.Health{Entities: make([]gpu.EntityHealth, 1)},
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
		w.fail("found labels for %d kinds of entities, expected at least 8", len(all))
	}
	return all
}

// groups returns the sections of the table of fields. A field is in the first section that matches.
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

// cell escapes text for a table cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }

//go:embed metrics.tmpl
var page string

// reference returns docs/metrics.md.
func (w *writer) reference() string {
	var b strings.Builder
	err := template.Must(template.New("metrics.tmpl").Parse(page)).Execute(&b, map[string]string{
		"Version": catalog.ModuleVersion, "Labels": w.labelRows(), "Fields": w.fieldTables(),
		"Families": w.familyRows(), "Usage": usageRows(), "Exporter": w.exporterRows(),
	})
	if err != nil {
		w.fail("%w", err)
	}
	return b.String()
}

func (w *writer) labelRows() string {
	var b strings.Builder
	for _, e := range w.labelsByKind() {
		fmt.Fprintf(&b, "| %s | %s |\n", e.what, code(e.labels))
	}
	return b.String()
}

// fieldTables returns a section with a table for each group of fields.
func (w *writer) fieldTables() string {
	var b strings.Builder
	rest := exportable()
	for _, g := range groups() {
		var out []catalog.Entry
		fmt.Fprintf(&b, "\n### %s\n\n", g.title)
		b.WriteString("| classic (4.8) | current (4.9) | id | type | unit | of | from | meaning |\n")
		b.WriteString("|---|---|---|---|---|---|---|---|\n")
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
				e.Classic, current, e.ID, kindOf(e), unitsOf(e), levels(e), w.from(e.Classic, kindOf(e)), cell(e.Help))
		}
		rest = out
	}
	return b.String()
}

func (w *writer) familyRows() string {
	var b strings.Builder
	for _, d := range catalog.Families(catalog.Requested) {
		var of []string
		for _, id := range append(slices.Clone(d.Values), d.Field, d.Link) {
			if e, ok := catalog.ByID(id); ok && id != 0 {
				of = append(of, fmt.Sprintf("%d `%s`", id, e.Classic))
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s |\n",
			d.Name, d.Type, promisedUnit(d.Name), code(d.Labels), cmp.Or(strings.Join(of, ", "), "–"),
			w.from(d.Name, d.Type), cell(d.Summary()))
	}
	return b.String()
}

func usageRows() string {
	var b strings.Builder
	for _, f := range usage() {
		labels := f.Labels
		if f.Group == catalog.XIDOwners {
			labels = append(slices.Clone(labels), "…") // "…" stands for the labels of the GPU and its owner
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n",
			f.Name, f.Type, promisedUnit(f.Name), code(labels), cell(f.HelpLine()))
	}
	return b.String()
}

func (w *writer) exporterRows() string {
	var b strings.Builder
	families := w.self()
	for _, name := range slices.Sorted(maps.Keys(families)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, families[name].kind, code(families[name].labels))
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

// from returns the names of the sources that can read a field or family, as in --source.
func (w *writer) from(name string, typ gpu.MetricType) string {
	request, err := counters.NewRequest(name, typ, "")
	if err != nil {
		w.fail("%w", err)
	}
	plan := counters.NewPlan([]counters.Request{request}, gpu.Plan{})
	var names []string
	for _, source := range []struct {
		name  string
		reads func(*gpu.Plan) bool
	}{{"dcgm", dcgm.Reads}, {"nvml", nvml.Reads}, {"sim", sim.Reads}} {
		if source.reads(plan) {
			names = append(names, source.name)
		}
	}
	if len(names) == 0 {
		w.fail("%s: no source reads it", name)
	}
	return strings.Join(names, ", ")
}

// promisedUnit returns the unit in the name of a family, or "".
func promisedUnit(name string) string {
	name = strings.TrimSuffix(strings.ToLower(name), "_total")
	for _, unit := range []gpu.Unit{catalog.Seconds, catalog.Bytes, catalog.Joules, catalog.Ratio} {
		if strings.HasSuffix(name, "_"+string(unit)) {
			return string(unit)
		}
	}
	return ""
}
