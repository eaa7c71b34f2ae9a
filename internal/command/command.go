// Package command implements the subcommands. They use the exporter's flags, variables and files, open
// its sources with package app, and are read-only.
package command

import (
	"context"
	"embed"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"text/tabwriter"

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

	name string // name of the subcommand
}

func subcommands() map[string]func(context.Context, *Process) int {
	return map[string]func(context.Context, *Process) int{
		"check": check, "counters": builtIn, "doctor": doctor, "fields": fields, "help": help, "once": once,
		"probe": probe, "topo": topo, "verdict": judgment, "version": nil, // main itself runs version
	}
}

// Run runs the named subcommand and returns its exit code. For an unknown name it suggests the nearest one.
func Run(ctx context.Context, name string, p Process) int {
	run := subcommands()[name]
	if run == nil {
		return p.unknown(name)
	}
	p.name = name
	if name != "help" && slices.ContainsFunc(p.Args, isHelp) {
		return p.print(usage(name))
	}
	if p.Open == nil {
		p.Open = app.NewBackend
	}
	if p.Page == nil {
		p.Page = app.Page
	}
	if p.Unmatched == nil {
		p.Unmatched = app.Unmatched
	}
	if p.Dial == nil {
		p.Dial = new(net.Dialer).DialContext
	}
	return run(ctx, &p)
}

func isHelp(arg string) bool { return arg == "-h" || arg == "-help" || arg == "--help" }

func (p *Process) unknown(word string) int {
	known := slices.Collect(maps.Keys(subcommands()))
	fmt.Fprintf(p.Err, "dcgm-exporter: %q is not a subcommand: %s\n", word, text.Suggest(word, known))
	return Unable
}

// usages holds a file for each subcommand, and one for the program.
//
//go:embed usage
var usages embed.FS

// usage returns the usage of a subcommand, or "" if there is none.
func usage(name string) string {
	content, _ := usages.ReadFile("usage/" + name + ".txt")
	return string(content)
}

// Usage returns the beginning of --help: the subcommands, one line each, and examples.
func Usage() string { return usage("dcgm-exporter") }

// help prints the list of subcommands, or the usage of one.
func help(_ context.Context, p *Process) int {
	if len(p.Args) == 0 || strings.HasPrefix(p.Args[0], "-") {
		return p.print(Usage() + "\n\"dcgm-exporter --help\" lists the flags too.\n")
	}
	if _, ok := subcommands()[p.Args[0]]; !ok {
		return p.unknown(p.Args[0])
	}
	return p.print(usage(p.Args[0]))
}

// print prints a result and returns the exit code.
func (p *Process) print(result string) int {
	if _, err := io.WriteString(p.Out, result); err != nil {
		return p.fail(Unable, err)
	}
	return OK
}

// table prints rows in aligned columns.
func (p *Process) table(rows [][]string) {
	w := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // the error could not be printed either
}

// fail prints an error and returns its exit code.
func (p *Process) fail(code int, err error) int {
	fmt.Fprintf(p.Err, "dcgm-exporter %s: %v\n", p.name, err)
	return code
}

// config loads the exporter's configuration from flags, variables and file. If cfg is nil, the caller returns code.
func (p *Process) config() (cfg *config.Config, operands []string, code int) {
	cfg, operands, err := config.ParseOperands(p.Args, p.Env, p.ReadFile)
	switch {
	case err != nil:
		return nil, nil, p.fail(Unable, err)
	case cfg.Help || cfg.Version:
		return nil, nil, p.print(usage(p.name))
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
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, strings.Replace(thing, "NVSwitch", "NVSwitche", 1))
}

func kinds(set gpu.Kinds) string {
	var words []string
	for _, k := range set.List() {
		words = append(words, k.String())
	}
	return strings.Join(words, ", ")
}

// once runs one real cycle and prints its page, even if it has no data.
func once(ctx context.Context, p *Process) int {
	cfg, code := p.settings()
	if cfg == nil {
		return code
	}
	for _, notice := range cfg.Notices {
		fmt.Fprintln(p.Err, notice)
	}
	page, err := p.Page(ctx, cfg)
	if page == nil && err != nil {
		return p.fail(Unable, err)
	}
	code = p.print(string(page))
	if err != nil {
		code = max(code, p.fail(Faulty, err))
	}
	return code
}
