package record

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/recording"
)

const name = "record"

// Usage is the text of "record --help".
const Usage = `Usage: dcgm-exporter record [--out FILE] [--samples N | --for DURATION] [--only-configured] [--unmasked] [flags]

Reads every field that this machine serves a few times, and writes what it found
to a file that can be played elsewhere: --source=sim --sim-node=FILE. Attach it
to a bug report. UUIDs, serial numbers, names of hosts, pods and jobs, process
ids and texts that are not known to be harmless are replaced by made-up ones.

  --out FILE          where to write; compressed if it ends in .gz; "-" is the
                      standard output (default dcgm-exporter-recording.json.gz)
  --samples N         how often to read (default 6)
  --for DURATION      how long to read, instead of --samples
  --only-configured   read only the fields of the counters file, not all
  --unmasked          keep names and numbers as they are

The other flags are those of the exporter itself (dcgm-exporter --help). Reads
are 5 s apart, or --collect-interval if that is shorter.

Exit code: 0 recorded; 1 not, or less than was requested, and the message says
why; 2 a wrong setting.
`

// The defaults.
const (
	defaultOut     = "dcgm-exporter-recording.json.gz"
	defaultSamples = 6
	maxInterval    = 5 * time.Second
	maxSamples     = 100000
	defaultLimit   = 30 * time.Second
)

// A Command is the subcommand.
type Command struct {
	command.Process
	// Open makes the source.
	Open command.Opener
	// WriteFile writes the recording; nil means a file that its owner alone can read.
	WriteFile func(name string, data []byte) error
	// Limit bounds the wait for one call of the driver; 0 means 30 s.
	Limit time.Duration
}

// settings are the subcommand's own flags.
type settings struct {
	out            string
	samples        int
	span           time.Duration // of --for; 0 where it is not given
	onlyConfigured bool
	unmasked       bool
}

// Run records and returns the exit code.
func (c Command) Run(ctx context.Context) int {
	own := settings{out: defaultOut}
	cfg, code := c.Settings(name, Usage, own.flags()...)
	if cfg == nil {
		return code
	}
	switch {
	case own.samples > 0 && own.span > 0:
		return c.Fail(name, errors.New("--samples and --for: expected one of them"))
	case own.samples == 0:
		own.samples = defaultSamples
	}
	interval := min(cfg.Collection.Interval, maxInterval)
	if own.span > 0 {
		own.samples = int(min(own.span/interval, maxSamples-1)) + 1
	}
	plan, err := c.plan(ctx, cfg, own, interval)
	if err != nil {
		return c.Fail(name, err)
	}
	source, err := c.Open(ctx, cfg, plan)
	if err != nil {
		return c.Fail(name, err)
	}
	for _, notice := range cfg.Notices {
		fmt.Fprintln(c.Err, notice)
	}
	rec, failed := c.record(ctx, source, plan, own.samples)
	if rec == nil {
		fmt.Fprintf(c.Err, "dcgm-exporter record: nothing was recorded: %v\n", failed)
		return command.Faulty
	}
	if !own.unmasked {
		mask(rec)
	}
	size, err := c.write(own.out, rec)
	if err != nil {
		return c.Fail(name, err)
	}
	fmt.Fprintln(c.Err, summary(rec, own.out, size))
	if failed != nil {
		fmt.Fprintf(c.Err, "dcgm-exporter record: %d of %d reads, then: %v\n", len(rec.Reads), own.samples, failed)
		return command.Faulty
	}
	return command.OK
}

func (s *settings) flags() []config.Flag {
	return []config.Flag{
		config.Switch("only-configured", &s.onlyConfigured),
		config.Switch("unmasked", &s.unmasked),
		{Names: []string{"out"}, Form: "a file name, or - for the standard output", Set: s.setOut},
		{Names: []string{"samples"}, Form: fmt.Sprintf("a number from 1 to %d", maxSamples), Set: s.setSamples},
		{Names: []string{"for"}, Form: "a duration such as 90s or 5m", Set: s.setSpan},
	}
}

// errBounds is a value that is too small or too large.
var errBounds = errors.New("out of bounds")

func (s *settings) setOut(value string) error {
	if s.out = value; value == "" {
		return errBounds
	}
	return nil
}

func (s *settings) setSamples(value string) (err error) {
	if s.samples, err = strconv.Atoi(value); err == nil && (s.samples < 1 || s.samples > maxSamples) {
		return errBounds
	}
	return err
}

func (s *settings) setSpan(value string) (err error) {
	if s.span, err = time.ParseDuration(value); err == nil && s.span <= 0 {
		return errBounds
	}
	return err
}

// plan requests every field of the catalog, at every level at which a counters file could request
// it, or for what is configured.
func (c Command) plan(ctx context.Context, cfg *config.Config, own settings, interval time.Duration) (*gpu.Plan, error) {
	var plan *gpu.Plan
	if own.onlyConfigured {
		set, err := app.LoadCounters(ctx, cfg, c.ReadFile)
		if err != nil {
			return nil, fmt.Errorf("counters file: %w", err)
		}
		if plan, err = set.Plan(cfg, interval); err != nil {
			return nil, err
		}
	} else {
		var requests []counters.Request
		for e := range catalog.All() {
			if !e.Exportable() || e.BaseOf != 0 {
				continue
			}
			for _, typ := range []gpu.MetricType{gpu.MetricGauge, gpu.MetricLabel} {
				if r, err := counters.NewRequest(e.Classic, typ, e.Help); err == nil {
					requests = append(requests, r)
				}
			}
		}
		plan = counters.NewPlan(requests, counters.PlanOptions{
			Interval: interval, Devices: cfg.Devices.GPUs, Switches: cfg.Devices.Switches, CPUs: cfg.Devices.CPUs,
		})
	}
	if len(plan.Fields) == 0 {
		return nil, fmt.Errorf("counters file: %w", counters.ErrNoCounters)
	}
	plan.Health, plan.Peers, plan.Placement = true, true, true
	return plan, nil
}

// write writes the recording and returns its size in bytes.
func (c Command) write(out string, rec *recording.Recording) (int, error) {
	var b bytes.Buffer
	var err error
	if strings.HasSuffix(out, ".gz") {
		z := gzip.NewWriter(&b)
		err = errors.Join(rec.Write(z), z.Close())
	} else {
		err = rec.Write(&b)
	}
	if err != nil {
		return 0, err
	}
	switch {
	case out == "-":
		_, err = io.Copy(c.Out, bytes.NewReader(b.Bytes()))
	case c.WriteFile != nil:
		err = c.WriteFile(out, b.Bytes())
	default:
		err = os.WriteFile(filepath.Clean(out), b.Bytes(), 0o600)
	}
	return b.Len(), err
}

// summary says in a line what was recorded.
func summary(rec *recording.Recording, out string, size int) string {
	served := map[int]bool{}
	for i := range rec.Reads {
		for _, s := range rec.Reads[i].Samples {
			served[s.Field] = true
		}
	}
	if out == "-" {
		out = "standard output"
	}
	how := "masked"
	if !rec.Masked {
		how = "not masked"
	}
	return fmt.Sprintf("Recorded %d reads of %d entities of source %s, %d of %d fields with values, in %s (%d kB, %s).",
		len(rec.Reads), len(rec.Devices), rec.Source, len(served), len(rec.Fields), out, (size+999)/1000, how)
}
