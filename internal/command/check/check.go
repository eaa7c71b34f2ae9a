package check

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const name = "check"

// Usage is the text of "check --help".
const Usage = `Usage: dcgm-exporter check [flags] [FILE...]

Says line by line what a counters file (CSV) or a configuration file (YAML)
would collect, what not, and why. Without FILE it checks what the flags and
variables say; - is a counters file on standard input.

With --source it also collects from that source for a few seconds, and says for
each metric how many entities have it here. The other flags are those of the
exporter itself (dcgm-exporter --help).

Exit code: 0 every line can be used; 1 a line cannot, or the source does not
open; 2 the check could not be done.
`

// A Command is the subcommand.
type Command struct {
	command.Process
	// Open makes the source if one was chosen.
	Open command.Opener
}

// cycles is how often the source is read. Profiling fields have no value before their second
// sample, and a reading may come just before it.
const cycles = 4

// interval is the time between two readings: short, since a person waits.
const interval = time.Second

// Run checks and returns the exit code.
func (c Command) Run(ctx context.Context) int {
	cfg, files, code := c.Config(name, Usage)
	if cfg == nil {
		return code
	}
	for _, notice := range cfg.Notices {
		fmt.Fprintln(c.Out, notice)
	}
	if len(files) == 0 {
		set, err := app.LoadCounters(ctx, cfg, c.ReadFile)
		if err != nil {
			return c.Fail(name, err)
		}
		return c.check(ctx, cfg, set)
	}
	for i, file := range files {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		code = max(code, c.file(ctx, cfg, file))
	}
	return code
}

// file checks one file by itself, whatever flags and variables say.
func (c Command) file(ctx context.Context, cfg *config.Config, file string) int {
	var set app.CounterSet
	var err error
	switch strings.ToLower(path.Ext(file)) {
	case ".yaml", ".yml":
		if _, err := c.ReadFile(file); err != nil {
			return c.Fail(name, err)
		}
		if cfg, err = c.withFile(file); err == nil {
			set, err = app.LoadCounters(ctx, cfg, c.ReadFile)
		}
		if err != nil {
			// What is wrong with the file is the result.
			fmt.Fprintf(c.Out, "%s\n", err)
			return command.Faulty
		}
	default:
		var content []byte
		if file == "-" {
			file = "standard input"
			content, err = io.ReadAll(io.LimitReader(c.In, counters.MaxSize+1))
		} else {
			content, err = c.ReadFile(file)
		}
		if err == nil {
			set, err = app.ParseCounters(cfg, file, content)
		}
		if err != nil {
			return c.Fail(name, err)
		}
	}
	return c.check(ctx, cfg, set)
}

// withFile reads the settings with file as the YAML file. What else says where the counters are
// would hide what the file says.
func (c Command) withFile(file string) (*config.Config, error) {
	env := func(name string) (string, bool) {
		switch name {
		case "DCGM_EXPORTER_CONFIG_FILE":
			return file, true
		case "DCGM_EXPORTER_COLLECTORS", "DCGM_EXPORTER_CONFIGMAP_DATA":
			return "", false
		}
		return c.Env(name)
	}
	cfg, _, err := config.ParseOperands(c.Args, env, c.ReadFile)
	return cfg, err
}

// check prints the lines of one file, and returns the exit code.
func (c Command) check(ctx context.Context, cfg *config.Config, set app.CounterSet) int {
	fmt.Fprintln(c.Out, set.Name)
	code := command.OK
	outcome := func(counters.Request) string { return "" }
	if cfg.Source.Named && len(set.Requests) > 0 {
		here, err := c.collect(ctx, cfg, set)
		if err != nil {
			if code = c.Fault(name, err); gpu.Reason(err) == "error" { // not of a source
				code = command.Unable
			}
		} else {
			fmt.Fprintln(c.Out, here.about)
			outcome = here.outcome
		}
	}

	var rows []row
	metrics, labels := 0, 0
	for _, r := range set.Requests {
		verdict := outcome(r)
		if verdict == "" {
			verdict = catalogSays(r)
		}
		if r.Type == gpu.MetricLabel {
			labels++
		} else {
			metrics++
		}
		rows = append(rows, requestRow(r, verdict))
	}
	unusable, warnings := 0, 0
	for _, p := range slices.Concat(set.Problems, set.Advice) {
		mark := "NOT COLLECTED: "
		if p.Warning {
			warnings++
			mark = "warning: "
		} else {
			unusable++
		}
		sentence := p
		sentence.File, sentence.Line = "", 0 // the table says them
		rows = append(rows, row{line: p.Line, verdict: mark + strings.TrimPrefix(sentence.String(), ": ")})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return a.line - b.line })
	write(c.Out, rows)

	if _, err := set.Plan(cfg, cfg.Collection.Interval); err != nil {
		fmt.Fprintln(c.Out, err)
		unusable++
	}
	fmt.Fprintf(c.Out, "%s, %s, %s, %s.\n", count(metrics, "metric"), count(labels, "label"),
		count(unusable, "line")+" not usable", count(warnings, "warning"))
	if unusable > 0 {
		code = max(code, command.Faulty)
	}
	return code
}

type row struct {
	line                               int
	name, typ, unit, entities, verdict string
}

func requestRow(r counters.Request, verdict string) row {
	row := row{line: r.Line, name: r.Name, typ: r.Type.String(), verdict: verdict}
	if r.Family == nil {
		row.unit = string(r.Named.Unit)
		row.entities = kinds(r.Named.Entry.Levels)
	}
	return row
}

func write(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "LINE\tMETRIC\tTYPE\tUNIT\tOF\tSAYS")
	for _, r := range rows {
		line := "-"
		if r.line > 0 {
			line = fmt.Sprint(r.line)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", line, dash(r.name), dash(r.typ), dash(r.unit), dash(r.entities), r.verdict)
	}
	t.Flush() // a failing standard output has no other place to report to
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func kinds(set gpu.Kinds) string {
	var words []string
	for _, k := range set.List() {
		words = append(words, k.String())
	}
	return strings.Join(words, ", ")
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// catalogSays says what is known of a request without looking at hardware.
func catalogSays(r counters.Request) string {
	levels := r.Named.Entry.Levels
	switch {
	case r.Family != nil:
		if r.Family.Field != 0 {
			return "made by the exporter from events"
		}
		return "made by the exporter from calls that not every source has"
	case r.Named.Entry.Profiling:
		return "collected where the GPU and the permissions allow profiling"
	case levels.Has(gpu.KindNode):
		return "collected, once per GPU"
	case levels.Has(gpu.KindGPU) || levels.Has(gpu.KindGPUInstance):
		return "collected where the GPU has it"
	default:
		return "collected on machines with " + kinds(levels)
	}
}
