// Package command implements the subcommands, one file each. They use the exporter's flags, variables and files, open
// its sources with package app, and are read-only.
package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// The exit codes of the subcommands.
const (
	OK     = 0 // nothing to fix
	Faulty = 1 // a problem was found: no data, or an unusable line
	Unable = 2 // an invalid setting, or a file that cannot be read or written
)

// Process holds the environment of a subcommand.
type Process struct {
	Args     []string                     // the arguments after the subcommand's name
	Env      func(string) (string, bool)  // like os.LookupEnv
	ReadFile func(string) ([]byte, error) // like os.ReadFile
	In       io.Reader
	Out, Err io.Writer // results, and errors that prevent the command from running

	// Open can be replaced by tests; nil means the exporter's own.
	Open      func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error)
	Page      func(context.Context, *config.Config) ([]byte, error)
	Unmatched func(context.Context, *config.Config, *gpu.Topology) ([]podmapper.Unmatched, error)
	// Root is the folder that doctor uses as /. Dial connects to peers.
	Root string
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	self subcommand
}

type subcommand struct {
	name, summary, usage string
	run                  func(context.Context, *Process) int // nil for the command that main itself runs
}

func subcommands() []subcommand {
	return []subcommand{
		{"check", "show what a counters file would collect, line by line", checkUsage, check},
		{"counters", "print a built-in counters file, as a start for your own", countersUsage, builtIn},
		{"doctor", "show what works on this machine, and how to fix the rest", doctorUsage, doctor},
		{"fields", "search the catalog of fields", fieldsUsage, fields},
		{"help", "print this list, or the help of a subcommand", "Usage: dcgm-exporter help [SUBCOMMAND]\n", help},
		{"once", "collect once and print the page", onceUsage, once},
		{"probe", "check a running exporter, for images without a shell", probeUsage, probe},
		{"topo", "print how the GPUs are connected, as a matrix", topoUsage, topo},
		{"verdict", "print which GPUs are unfit for work, for node-problem-detector", verdictUsage, judgment},
		{"version", "print the version", "Usage: dcgm-exporter version\n", nil},
	}
}

// Run runs the named subcommand and returns its exit code. For an unknown name it suggests the nearest one.
func Run(ctx context.Context, name string, p Process) int {
	all := subcommands()
	i := slices.IndexFunc(all, func(s subcommand) bool { return s.name == name && s.run != nil })
	if i < 0 {
		return p.unknown(name)
	}
	p.self = all[i]
	if p.Open == nil {
		p.Open = app.NewBackend
	}
	if p.Page == nil {
		p.Page = app.Page
	}
	if p.Unmatched == nil {
		p.Unmatched = app.Unmatched
	}
	return p.self.run(ctx, &p)
}

func (p *Process) unknown(word string) int {
	var names []string
	for _, s := range subcommands() {
		names = append(names, s.name)
	}
	fmt.Fprintf(p.Err, "dcgm-exporter: %q is not a subcommand: %s\n", word, text.Suggest(word, names))
	return Unable
}

// help prints the list of subcommands, or the usage of one.
func help(_ context.Context, p *Process) int {
	if len(p.Args) == 0 || strings.HasPrefix(p.Args[0], "-") {
		// ignore the error: there is nowhere to report it
		_, _ = io.WriteString(p.Out, Usage()+"\n\"dcgm-exporter --help\" lists the flags too.\n")
		return OK
	}
	for _, s := range subcommands() {
		if s.name == p.Args[0] {
			_, _ = io.WriteString(p.Out, s.usage)
			return OK
		}
	}
	return p.unknown(p.Args[0])
}

// Usage returns the beginning of --help: the subcommands, one line each, and examples.
func Usage() string {
	var b strings.Builder
	b.WriteString(`Usage: dcgm-exporter [flags]                       serve metrics of NVIDIA GPUs for Prometheus
       dcgm-exporter SUBCOMMAND [flags] [arguments]

Subcommands ("dcgm-exporter help SUBCOMMAND" shows more):
`)
	for _, s := range subcommands() {
		fmt.Fprintf(&b, "  %-16s%s\n", s.name, s.summary)
	}
	b.WriteString(`
Examples:
  dcgm-exporter                                    GPUs of this machine, on http://localhost:9400
  dcgm-exporter --source=sim                       a simulated node, without a GPU
  dcgm-exporter -f my-counters.csv -c 10000        own counters, every 10 seconds
  dcgm-exporter check my-counters.csv              before they are used
  dcgm-exporter doctor                             when something is missing
`)
	return b.String()
}

// fail prints an error and returns its exit code.
func (p *Process) fail(code int, err error) int {
	fmt.Fprintf(p.Err, "dcgm-exporter %s: %v\n", p.self.name, err)
	return code
}

// config loads the exporter's configuration from flags, variables and file. If cfg is nil, the caller returns code: the
// usage was printed, or a setting is invalid.
func (p *Process) config() (cfg *config.Config, operands []string, code int) {
	cfg, operands, err := config.ParseOperands(p.Args, p.Env, p.ReadFile)
	switch {
	case err != nil:
		return nil, nil, p.fail(Unable, err)
	case cfg.Show != config.ShowNothing:
		_, _ = io.WriteString(p.Out, p.self.usage)
		return nil, nil, OK
	}
	return cfg, operands, OK
}

// settings is config for a subcommand without operands.
func (p *Process) settings() (cfg *config.Config, code int) {
	cfg, operands, code := p.config()
	if cfg != nil && len(operands) > 0 {
		return nil, p.fail(Unable, fmt.Errorf("unexpected argument %q", operands[0]))
	}
	return cfg, code
}

// collect opens the configured source and calls see with the snapshot of each cycle.
func (p *Process) collect(
	ctx context.Context, cfg *config.Config, plan *gpu.Plan, cycles int, see func(*gpu.Snapshot),
) error {
	source, err := p.Open(ctx, cfg, plan)
	if err != nil {
		return err
	}
	return app.Collect(ctx, source, plan, cycles, see)
}

func plural(n int, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "ch"): // NVSwitch
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// dash returns s, or "-" if it is empty.
func dash(s string) string { return cmp.Or(s, "-") }

func kinds(set gpu.Kinds) string {
	var words []string
	for _, k := range set.List() {
		words = append(words, k.String())
	}
	return strings.Join(words, ", ")
}
