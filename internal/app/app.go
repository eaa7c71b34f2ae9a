package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// A Process is the environment of the exporter: what main passes to it.
type Process struct {
	Args []string                    // arguments without the program name
	Env  func(string) (string, bool) // has the contract of os.LookupEnv
	Out  io.Writer                   // receives help and version
	Err  io.Writer                   // receives the log
	// Logging, if not nil, is called with the logger before anything is logged, for libraries with a global logger.
	Logging func(*slog.Logger)
	// Hangup receives a value for each reload that is requested by a signal. It may be nil.
	Hangup <-chan os.Signal
	// Start is when the process started.
	Start time.Time
	// Version, Revision and Date describe the build and its commit. Revision and Date may be empty.
	Version, Revision, Date string
	// Usage is printed before the flags in --help.
	Usage string
	// Listening, if not nil, is called with every address that the server listens on.
	Listening func(net.Addr)
}

// Run runs the exporter until ctx is done, and returns nil once every driver handle is closed. An error about the
// configuration or the port names the setting and the remedy. After gpu.ErrWedged (a driver call did not return) and
// hardware.ErrReplaced, only a new process can continue.
func Run(ctx context.Context, p Process) error {
	err := run(ctx, p)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // canceled before the exporter had started
	}
	return err
}

func run(ctx context.Context, p Process) error {
	files := new(Reader)
	cfg, err := config.Parse(p.Args, p.Env, files.ReadFile)
	if err != nil {
		return err
	}
	switch cfg.Show {
	case config.ShowHelp:
		_, err := io.WriteString(p.Out, p.Usage+config.Help())
		return err
	case config.ShowVersion:
		_, err := io.WriteString(p.Out, p.build().String())
		return err
	}
	lines := &startLog{w: p.Err}
	defer lines.end()
	e := &exporter{
		process: p, config: cfg, files: files, lines: lines,
		log: newLogger(cfg.Log, lines), registry: newRegistry(p.build()),
	}
	return e.serve(ctx)
}

// An exporter holds the parts of a running exporter. After the first two groups, they are in the order of the data
// flow.
type exporter struct {
	process  Process
	config   *config.Config // of the start
	files    *Reader        // reads configuration files
	lines    *startLog      // keeps log lines until the server listens
	log      *slog.Logger
	registry *prometheus.Registry // the exporter's own metrics

	// The settings of the latest reload, or of the start.
	active  *config.Config
	plan    *gpu.Plan
	hash    uint64    // hash of the configuration
	pending bool      // the ConfigMap could not be read yet, and the counters file is used
	watch   fileWatch // a change of these files triggers a reload
	reloads *reloader

	sources   *sources
	kernelLog *kernellog.Reader // nil if it is not read
	loop      *collector.Loop   // reads the source once per interval
	pipeline  *pipeline         // makes pages of snapshots
	pages     exposition.Pages  // the latest page
	dumps     *dumper           // writes pages to files if configured
	server    *server.Server
}

// serve builds the parts, then collects and serves until ctx is done.
func (e *exporter) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if e.process.Logging != nil {
		e.process.Logging(e.log)
	}
	source, err := e.openSource(ctx)
	if err != nil {
		return err
	}
	for _, notice := range e.config.Notices {
		e.log.Warn(notice)
	}
	e.buildPipeline(source)
	if err := e.buildServer(); err != nil {
		return err
	}
	return e.runTasks(ctx)
}

// openSource reads the counters and returns the source of the configuration.
func (e *exporter) openSource(ctx context.Context) (source Backend, err error) {
	e.watch.follow(watched(e.config)) // from here on, a change of these files triggers a reload
	e.active = e.config
	e.plan, e.hash, e.pending, err = startingPlan(ctx, e.config, e.files.ReadFile, e.log)
	if err != nil {
		return Backend{}, err
	}
	e.sources = newSources(e.process.Start, e.registry, e.log)
	return e.sources.backend(ctx, e.config, e.plan)
}

// buildPipeline makes the parts between the source and the pages.
func (e *exporter) buildPipeline(source Backend) {
	e.kernelLog = e.sources.newKernelLog(e.config.Collection.KernelLog)
	e.pipeline = newPipeline(e.config, e.registry, e.process.Start, e.kernelLog, e.log)
	e.pipeline.self.runtime = newRuntimeRegistry() // metrics of the Go runtime, which the subcommand once leaves out
	e.dumps = newDumper(e.config.Dump, e.log)
	e.loop = collector.New(collector.Options{
		Settings: e.pipeline.derived.settings(e.plan, source),
		Publish: func(s *gpu.Snapshot) {
			page := e.pipeline.render(s)
			e.pages.Publish(page, s.ValidFor)
			e.dumps.record(s.Time, page)
		},
		Registerer: e.registry,
		Log:        e.log,
		HangLimit:  e.config.Collection.HangLimit,
	})
}

// A task is a goroutine of the exporter. It runs until its context is done or it fails.
type task struct {
	name string
	run  func(context.Context) error
}

// tasks lists everything that runs at the same time.
func (e *exporter) tasks() []task {
	reload := func(ctx context.Context, why string) { _ = e.reloads.reload(ctx, why) } // the reloader logs the result
	tasks := []task{
		{"server", e.server.Run},
		{"collection", e.loop.Run},
		{"driver", func(ctx context.Context) error { return e.sources.run(ctx, e.loop) }},
		{"reloads", forever(func(ctx context.Context) { e.reloads.run(ctx, e.process.Hangup) })},
		{"files", forever(func(ctx context.Context) {
			e.watch.run(ctx, func() { reload(ctx, "a file changed") })
		})},
		{"counters ConfigMap", forever(func(ctx context.Context) {
			followConfigMap(ctx, e.config, e.log, func() { reload(ctx, "the ConfigMap changed") })
		})},
		{"dumps", forever(e.dumps.run)},
	}
	if e.kernelLog != nil {
		tasks = append(tasks, task{"kernel log", forever(e.kernelLog.Run)})
	}
	if e.pending {
		tasks = append(tasks, task{"first ConfigMap", forever(func(ctx context.Context) {
			reload(ctx, "the ConfigMap could not be read at the start")
		})})
	}
	if e.config.Web.ExporterMetrics {
		tasks = append(tasks, task{"runtime metrics", forever(e.pipeline.self.run)})
	}
	return tasks
}

// forever makes a task of a function that cannot fail.
func forever(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// runTasks runs all tasks until ctx is done or one of them fails.
func (e *exporter) runTasks(ctx context.Context) error {
	group, all := errgroup.WithContext(ctx)
	for _, t := range e.tasks() {
		group.Go(func() error {
			err := t.run(all)
			e.log.Debug("Task ended", "task", t.name, "error", err)
			return err
		})
	}
	err := group.Wait()
	requested := ctx.Err() != nil
	e.log.Info("Stopped", "requested", requested)
	if requested && errors.Is(err, gpu.ErrWedged) {
		e.log.Warn("Driver call still blocked at shutdown; exiting", "error", err)
		return nil
	}
	return err
}
