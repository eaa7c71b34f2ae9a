package doctor

import (
	"context"
	"fmt"
	"io"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

const name = "doctor"

// Usage is the text of "doctor --help".
const Usage = `Usage: dcgm-exporter doctor [flags]

Looks at the driver, the libraries, the permissions, the sockets and the files
that the exporter would use, and says what works, what does not and what to do.
The flags are those of the exporter itself (dcgm-exporter --help): run it with
the same ones, in the same place.

Exit code: 0 nothing fails; 1 something does; 2 a wrong setting.
`

// A State is the outcome of a check.
type State uint8

// The states, from good to bad.
const (
	OK   State = iota
	Warn       // it works, with less than there could be
	Fail       // the exporter will not do what is configured
)

// String returns the word that stands before the row.
func (s State) String() string {
	switch s {
	case OK:
		return "ok"
	case Warn:
		return "warn"
	default:
		return "fail"
	}
}

// A Row is the outcome of one check.
type Row struct {
	State  State
	Check  string // what was looked at, in a word or two
	Found  string // what was found
	Advice string // what to do, empty where nothing is
}

// A Command is the subcommand.
type Command struct {
	command.Process
	// Machine is what the checks look at; the zero Machine is this one.
	Machine Machine
	// Open makes the source.
	Open command.Opener
	// Unmatched lists the devices of containers that match no entity of the source.
	Unmatched func(context.Context, *config.Config, *gpu.Topology) ([]podmapper.Unmatched, error)
}

// Run looks, prints and returns the exit code.
func (c Command) Run(ctx context.Context) int {
	cfg, code := c.Settings(name, Usage)
	if cfg == nil {
		return code
	}
	worst := OK
	for _, row := range c.Rows(ctx, cfg) {
		row.write(c.Out)
		worst = max(worst, row.State)
	}
	if worst == Fail {
		return command.Faulty
	}
	return command.OK
}

// Rows runs every check that concerns the configuration.
func (c Command) Rows(ctx context.Context, cfg *config.Config) []Row {
	set, setErr := app.LoadCounters(ctx, cfg, c.ReadFile)
	e := examination{Command: c, Machine: c.Machine.withDefaults(), cfg: cfg, set: set}
	var rows []Row
	for _, notice := range cfg.Notices {
		rows = append(rows, Row{State: Warn, Check: "setting", Found: notice})
	}
	rows = append(rows, e.counters(setErr))
	if e.local() {
		driver, nodes, nvml := e.driver(), e.nodes(), e.nvml()
		if driver.State == Fail { // the others come with it, and so does its advice
			nodes.Advice, nvml.Advice = "", ""
		}
		rows = append(rows, driver, nodes, nvml)
	}
	if e.usesDCGM() {
		rows = append(rows, e.dcgm(), e.engine(ctx))
	}
	if e.local() {
		rows = append(rows, e.profiling())
	}
	kubelet := Row{State: Fail}
	if cfg.Kubernetes.Enabled {
		kubelet = e.kubelet(ctx)
		rows = append(rows, kubelet, e.nodeName())
	}
	rows = append(rows, e.port(ctx))
	if cfg.Web.ConfigFile != "" {
		rows = append(rows, e.webConfig())
	}
	if setErr == nil {
		rows = append(rows, e.source(ctx))
	}
	if kubelet.State != Fail && e.topology != nil {
		rows = append(rows, e.deviceIDs(ctx)...)
	}
	return rows
}

func (r Row) write(w io.Writer) {
	fmt.Fprintf(w, "%-4s  %-14s  %s\n", r.State, r.Check, r.Found)
	if r.Advice != "" {
		fmt.Fprintf(w, "%24s%s\n", "> ", r.Advice)
	}
}

// An examination is one run of the checks.
type examination struct {
	Command
	Machine
	cfg      *config.Config
	set      app.CounterSet
	topology *gpu.Topology // of the source, once it is opened
}

// local reports whether this machine's own driver is used.
func (e *examination) local() bool {
	return e.cfg.Source.Remote.IsEmbedded() && e.cfg.Source.Kind != config.SourceSim
}

func (e *examination) usesDCGM() bool {
	return e.cfg.Source.Kind == config.SourceDCGM || e.cfg.Source.Kind == config.SourceAuto
}

// mustHaveDCGM reports whether nothing can stand in for DCGM.
func (e *examination) mustHaveDCGM() bool {
	return e.cfg.Source.Kind == config.SourceDCGM || !e.cfg.Source.Remote.IsEmbedded()
}
