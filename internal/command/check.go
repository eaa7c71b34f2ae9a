package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/queries"
)

// Profiling fields have no value before their second sample, so check reads a few times. The intervals are short
// because a person is waiting.
const (
	checkCycles   = 4
	checkInterval = time.Second
)

func check(ctx context.Context, p *Process) int {
	cfg, files, code := p.config()
	if cfg == nil {
		return code
	}
	for _, notice := range cfg.Notices {
		fmt.Fprintln(p.Out, notice)
	}
	if len(files) == 0 {
		set, err := app.LoadCounters(ctx, cfg, p.ReadFile)
		if err != nil {
			return p.fail(Unable, err)
		}
		return p.checkSet(ctx, cfg, set)
	}
	for i, file := range files {
		if i > 0 {
			fmt.Fprintln(p.Out)
		}
		code = max(code, p.checkFile(ctx, cfg, file))
	}
	return code
}

// checkFile checks one file, independent of the counters that flags and variables name.
func (p *Process) checkFile(ctx context.Context, cfg *config.Config, file string) int {
	var content []byte
	var err error
	if file == "-" {
		file = "standard input"
		content, err = io.ReadAll(io.LimitReader(p.In, counters.MaxSize+1))
	} else {
		content, err = p.ReadFile(file)
	}
	if err != nil {
		return p.fail(Unable, err)
	}
	ext := strings.ToLower(path.Ext(file))
	switch list, err := queries.Read(content); {
	case err == nil:
		return p.checkQueries(ctx, cfg, file, list)
	case ext == ".json":
		return p.fail(Unable, fmt.Errorf("%s: %w", file, err))
	}
	if ext != ".yaml" && ext != ".yml" {
		set, err := app.ParseCounters(cfg, file, content)
		if err != nil {
			return p.fail(Unable, err)
		}
		return p.checkSet(ctx, cfg, set)
	}
	var set app.CounterSet
	// A counters file named by a variable would hide this one.
	env := func(name string) (string, bool) {
		switch name {
		case "DCGM_EXPORTER_CONFIG_FILE":
			return file, true
		case "DCGM_EXPORTER_COLLECTORS", "DCGM_EXPORTER_CONFIGMAP_DATA":
			return "", false
		}
		return p.Env(name)
	}
	if cfg, _, err = config.ParseOperands(p.Args, env, p.ReadFile); err == nil {
		set, err = app.LoadCounters(ctx, cfg, p.ReadFile)
	}
	if err != nil {
		fmt.Fprintln(p.Out, err) // the file's error is the result
		return Faulty
	}
	return p.checkSet(ctx, cfg, set)
}

// checkQueries prints which queries of a rules file or a dashboard do not fit the configured counters.
func (p *Process) checkQueries(ctx context.Context, cfg *config.Config, file string, list []queries.Query) int {
	set, err := app.LoadCounters(ctx, cfg, p.ReadFile)
	if err != nil {
		return p.fail(Unable, err)
	}
	fmt.Fprintln(p.Out, file)
	checker, findings := queries.New(set.Requests), 0
	for _, q := range list {
		for _, sentence := range checker.Check(q.Expr) {
			findings++
			fmt.Fprintf(p.Out, "%d: %s: %s\n", q.Line, cmp.Or(q.Name, "-"), sentence)
		}
	}
	fmt.Fprintf(p.Out, "%s, %s, with the counters of %s.\n",
		plural(len(list), "expression"), plural(findings, "finding"), set.Name)
	return min(findings, Faulty)
}

// checkSet prints the lines of one file and returns the exit code.
func (p *Process) checkSet(ctx context.Context, cfg *config.Config, set app.CounterSet) int {
	fmt.Fprintln(p.Out, set.Name)
	code, labels, unusable, warnings := OK, 0, 0, 0
	var here map[string]collected
	if cfg.Source.Named && len(set.Requests) > 0 {
		here, code = p.collectHere(ctx, cfg, set)
	}
	lines := map[int][][]string{} // rows by line
	for _, r := range set.Requests {
		verdict, unit, of := here[r.Name].verdict(), "", ""
		switch {
		case app.CompatOptions(cfg).Omits(r.Family):
			verdict = "left out: --compatibility=strict"
		case verdict == "":
			verdict = catalogVerdict(r)
		}
		if r.Family == nil {
			unit, of = string(r.Named.Unit), kinds(r.Named.Entry.Levels)
		}
		if r.Type == gpu.MetricLabel {
			labels++
		}
		row := []string{fmt.Sprint(r.Line), r.Name, r.Type.String(), cmp.Or(unit, "-"), cmp.Or(of, "-"), verdict}
		lines[r.Line] = append(lines[r.Line], row)
	}
	for _, problem := range slices.Concat(set.Problems, set.Advice) {
		mark, line := "NOT COLLECTED: ", problem.Line
		if problem.Warning {
			mark = "warning: "
			warnings++
		} else {
			unusable++
		}
		problem.File, problem.Line = "", 0 // the table already shows them
		row := []string{fmt.Sprint(line), "-", "-", "-", "-", mark + strings.TrimPrefix(problem.Error(), ": ")}
		if line == 0 {
			row[0] = "-"
		}
		lines[line] = append(lines[line], row)
	}
	table := [][]string{{"LINE", "METRIC", "TYPE", "UNIT", "OF", "SAYS"}}
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		table = append(table, lines[line]...)
	}
	p.table(table)
	if _, err := set.Plan(cfg, cfg.Collection.Interval); err != nil {
		fmt.Fprintln(p.Out, err)
		unusable++
	}
	fmt.Fprintf(p.Out, "%s, %s, %s not usable, %s.\n", plural(len(set.Requests)-labels, "metric"),
		plural(labels, "label"), plural(unusable, "line"), plural(warnings, "warning"))
	return max(code, min(unusable, Faulty))
}

// collectHere collects from the source for a few seconds. It prints what the source is, or an error, and returns the
// exit code.
func (p *Process) collectHere(
	ctx context.Context, cfg *config.Config, set app.CounterSet,
) (here map[string]collected, code int) {
	plan, err := set.Plan(cfg, checkInterval)
	if err == nil {
		about := ""
		err = p.collect(ctx, cfg, plan, checkCycles, func(s *gpu.Snapshot) {
			here, about = summarize(s), "Source "+describe(s.Topology)+".\n"
		})
		fmt.Fprint(p.Out, about)
	}
	switch {
	case err == nil:
		return here, OK
	case gpu.Reason(err) == "error": // the problem is not in the source
		return here, p.fail(Unable, err)
	}
	return here, p.fail(Faulty, err)
}

// catalogVerdict describes a counter by the catalog, without hardware.
func catalogVerdict(r counters.Request) string {
	levels := r.Named.Entry.Levels
	switch {
	case r.Family != nil && r.Family.Field != 0:
		return "computed by the exporter from events"
	case r.Family != nil && r.Family.Values != nil:
		return "computed by the exporter from fields, if the GPU has them"
	case r.Family != nil:
		return "computed by the exporter from data that not every source has"
	case r.Named.Entry.Profiling:
		return "collected if the GPU and the permissions allow profiling"
	case levels.Has(gpu.KindNode):
		return "collected, once per GPU"
	case levels.Has(gpu.KindGPU) || levels.Has(gpu.KindGPUInstance):
		return "collected if the GPU has this field"
	}
	return "collected on machines with " + kinds(levels)
}

// collected describes a metric in the last cycle.
type collected struct {
	values  int
	reasons []string // why values are missing
}

// summarize returns what was collected by counter name.
func summarize(s *gpu.Snapshot) map[string]collected {
	all := map[string]collected{}
	add := func(name string, values int, reasons ...string) {
		all[name] = collected{all[name].values + values, append(all[name].reasons, reasons...)}
	}
	for _, column := range s.Columns {
		for _, value := range column.Values {
			if !value.IsAbsent() {
				add(column.Counter.Name, 1)
			}
		}
	}
	for _, family := range s.Families {
		for i := range family.Series {
			if !family.Series[i].Value.IsAbsent() {
				add(family.Name, 1)
			}
		}
	}
	for _, missing := range s.Health.Unavailable {
		add(missing.Field, 0, missing.Reason)
	}
	for _, e := range s.Health.Entities {
		for name := range all {
			if e.Err != nil {
				add(name, 0, gpu.Reason(e.Err))
			}
		}
	}
	return all
}

// verdict describes the metric's values; "" if it had none and no reason.
func (c collected) verdict() string {
	slices.Sort(c.reasons)
	why := strings.ReplaceAll(strings.Join(slices.Compact(c.reasons), ", "), "_", " ")
	switch {
	case c.values > 0 && why == "":
		return "collected: " + plural(c.values, "value")
	case c.values > 0:
		return "collected in part: " + plural(c.values, "value") + " (" + why + ")"
	case why != "":
		return "not collected here: " + why
	}
	return ""
}

// describe summarizes a session in one line, such as "sim: 8 GPUs, 11 GPU instances, driver 570.124.06".
func describe(t *gpu.Topology) string {
	var n [gpu.KindNode + 1]int
	for i := range t.Devices {
		n[t.Devices[i].Entity.Kind]++
	}
	var words []string
	for k, n := range n {
		if n > 0 {
			words = append(words, plural(n, gpu.Kind(k).String()))
		}
	}
	for _, fact := range [][2]string{{"driver", t.Driver}, {"library", t.Library}, {"engine", t.Engine}} {
		if fact[1] != "" {
			words = append(words, fact[0]+" "+fact[1])
		}
	}
	return t.Source + ": " + cmp.Or(strings.Join(words, ", "), "no entities")
}
