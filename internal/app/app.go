// Package app wires the exporter together. It imports the packages of every stage; only package command and main import
// it.
//
// Read app.go from top to bottom for the life of the process: it builds the parts and runs the tasks. sources.go says
// what is read, counters.go which metrics are requested, pipeline.go how readings become pages, and reload.go how these
// change. Decisions about drivers are made in package hardware, and decisions about values and labels in the packages
// that compute them.
package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
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
	Args      []string                    // arguments without the program name
	Env       func(string) (string, bool) // has the contract of os.LookupEnv
	Out       io.Writer                   // receives help and version
	Err       io.Writer                   // receives the log
	SetLogger func(*slog.Logger)          // sets the global loggers of libraries; may be nil
	Hangup    <-chan os.Signal            // receives a value for each reload that a signal requests; may be nil
	Start     time.Time                   // when the process started
	// Version, Revision and Date describe the build and its commit. Revision and Date may be empty.
	Version, Revision, Date string
	Usage                   string         // printed before the flags in --help
	Listening               func(net.Addr) // called with every address that the server listens on; may be nil
}

// Run runs the exporter until ctx is done. It then returns nil. Every driver handle is closed by then, unless a driver
// call hangs: Run abandons it after a timeout. An error about the configuration or the port names the setting and the
// remedy. After gpu.ErrWedged (a driver call did not return) and hardware.ErrReplaced, only a new process can collect
// again.
func Run(ctx context.Context, p Process) error {
	files := new(Reader)
	cfg, err := config.Parse(p.Args, p.Env, files.ReadFile)
	if err != nil {
		return err
	}
	switch {
	case cfg.Help:
		_, err := io.WriteString(p.Out, p.Usage+config.Help())
		return err
	case cfg.Version:
		_, err := io.WriteString(p.Out, p.build().String())
		return err
	}
	lines := &startLog{to: p.Err, kept: new(bytes.Buffer)} // a blocked standard error must not prevent the start
	defer lines.end()
	e := &exporter{
		process: p, config: cfg, files: files, lines: lines,
		log: newLogger(cfg.Log, lines), registry: newRegistry(p.build()),
	}
	err = e.serve(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // canceled before the exporter had started
	}
	return err
}

// An exporter holds the parts of a running exporter.
type exporter struct {
	// Set at the start.
	process  Process
	config   *config.Config
	files    *Reader   // reads configuration files
	lines    *startLog // keeps log lines until the server listens
	log      *slog.Logger
	registry *prometheus.Registry // the exporter's own metrics

	// Replaced by reloads. Settings of the server and of dumps always stay those of config.
	active  *config.Config
	plan    *gpu.Plan
	changes fileWatch // a change of these files triggers a reload
	reloads *reloader

	// The data flow.
	sources   *sources
	kernelLog *kernellog.Reader // nil if it is not read
	loop      *collector.Loop   // reads the source once per interval
	pipeline  *pipeline         // makes pages of snapshots
	pages     exposition.Pages  // the latest page
	dumps     *dumper           // writes pages to files; nil if dumps are disabled
	server    *server.Server
}

// serve builds the parts, then collects and serves until ctx is done.
func (e *exporter) serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if e.process.SetLogger != nil {
		e.process.SetLogger(e.log)
	}
	e.changes.follow(watched(e.config)) // before the files are read, so that no change is missed
	plan, hash, configMapPending, err := startingPlan(ctx, e.config, e.files.ReadFile, e.log)
	if err != nil {
		return err
	}
	e.active, e.plan = e.config, plan
	e.reloads = newReloader(e.registry, e.log, e.reconfigure)
	e.reloads.setActiveHash(hash)

	e.sources = newSources(e.process.Start, e.registry, e.log)
	backend, err := e.sources.backend(ctx, e.config, plan)
	if err != nil {
		return err
	}
	for _, notice := range e.config.Notices { // logged only now, because they do not matter if the start fails
		e.log.Warn(notice)
	}
	e.buildCollection(backend)
	if e.server, err = server.New(e.serverOptions()); err != nil {
		return err
	}
	e.files.started = true // a reload must not wait for the writer of a pipe
	e.changes.follow(append(watched(e.config), e.server.WebFiles()...))

	err = e.runTasks(ctx, configMapPending)
	requested := ctx.Err() != nil
	e.log.Info("Stopped", "requested", requested)
	if requested && errors.Is(err, gpu.ErrWedged) {
		e.log.Warn("Driver call still blocked at shutdown; exiting", "error", err)
		return nil
	}
	return err
}

// buildCollection builds the parts that read the backend and publish pages.
func (e *exporter) buildCollection(backend Backend) {
	if path := e.config.Collection.KernelLog; path != "" {
		e.kernelLog = kernellog.New(e.sources.kernelLogOptions(path))
	}
	e.pipeline = newPipeline(e.config, e.registry, e.process.Start, e.kernelLog, e.log)
	e.pipeline.self.runtime.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if e.config.Dump.Enabled {
		e.dumps = newDumper(e.config.Dump, e.log)
	}
	e.loop = collector.New(collector.Options{
		Settings: e.pipeline.derived.settings(e.plan, backend),
		Publish: func(s *gpu.Snapshot) {
			page := e.pipeline.render(s)
			e.pages.Publish(page, s.ValidFor)
			if e.dumps != nil {
				e.dumps.record(s.Time, page) // the page is valid until the next one is published
			}
		},
		Registerer: e.registry, Log: e.log, HangLimit: e.config.Collection.HangLimit,
	})
}

func (e *exporter) serverOptions() server.Options {
	web := e.config.Web
	return server.Options{
		Current:    e.currentPage,
		Healthy:    e.healthy,
		Ready:      func() bool { return e.loop.Ready() && e.sources.isReady() },
		Reload:     func(ctx context.Context) error { return e.reloads.reload(ctx, "POST /-/reload") },
		Reloading:  e.reloads.busy.Load,
		Registerer: e.registry, Log: e.log,
		Interval: e.config.Collection.Interval, Version: e.process.build().Version,
		Address: web.Address, SystemdSocket: web.SystemdSocket, ConfigFile: web.ConfigFile,
		ReadTimeout: web.ReadTimeout, WriteTimeout: web.WriteTimeout, MaxRequests: web.MaxRequests,
		LandingPage: web.LandingPage, Lifecycle: web.Lifecycle, Pprof: web.Pprof,
		Listening: func(a net.Addr) {
			e.lines.release()
			e.log.Info("Listening", "address", a.String())
			if e.process.Listening != nil {
				e.process.Listening(a)
			}
		},
	}
}

// currentPage returns the latest page, or nil before the first one. If the page has expired, it returns one that says
// that the collection is stalled, with the exporter's own metrics if they are enabled. It never waits for the
// collection.
func (e *exporter) currentPage() *exposition.Page {
	page := e.pages.Current()
	switch {
	case page != nil || e.pages.Expired() <= 0:
		return page
	case e.config.Web.ExporterMetrics:
		return exposition.NewPage(e.pipeline.self.stalled())
	default:
		return exposition.NewPage([]byte("# the collection is stalled\n"))
	}
}

// healthy returns an error if the collection hangs or if the latest page has expired.
func (e *exporter) healthy() error {
	if err := e.loop.Healthy(); err != nil {
		return err
	}
	if overdue := e.pages.Expired(); overdue > 0 {
		return fmt.Errorf("%w: the page expired %v ago", gpu.ErrStalled, overdue.Round(time.Millisecond))
	}
	return nil
}

// runTasks runs everything at the same time until ctx is done or a task fails. If configMapPending is set, the
// ConfigMap could not be read and the counters file is used, so runTasks requests a reload at once.
func (e *exporter) runTasks(ctx context.Context, configMapPending bool) error {
	group, ctx := errgroup.WithContext(ctx)
	start := func(name string, run func(context.Context) error) {
		group.Go(func() error {
			err := run(ctx)
			e.log.Debug("Task ended", "task", name, "error", err)
			return err
		})
	}
	background := func(name string, run func(context.Context)) { // a task that cannot fail
		start(name, func(ctx context.Context) error {
			run(ctx)
			return nil
		})
	}
	reload := func(why string) { _ = e.reloads.reload(ctx, why) } // the reloader logs the result
	start("server", e.server.Run)
	start("collection", e.loop.Run)
	if driver := e.sources.hardware; driver != nil { // return to DCGM after a fallback; fail if the driver was replaced
		start("driver", func(ctx context.Context) error { return driver.Run(ctx, e.loop) })
	}
	background("reloads", func(ctx context.Context) { e.reloads.run(ctx, e.process.Hangup) })
	background("files", func(ctx context.Context) { e.changes.run(ctx, func() { reload("a file changed") }) })
	if usesConfigMap(e.config) {
		background("counters ConfigMap", func(ctx context.Context) {
			followConfigMap(ctx, e.config, e.log, func() { reload("the ConfigMap changed") })
		})
	}
	if configMapPending {
		background("first ConfigMap", func(context.Context) { reload("the ConfigMap could not be read at the start") })
	}
	if e.dumps != nil {
		background("dumps", e.dumps.run)
	}
	if e.kernelLog != nil {
		background("kernel log", e.kernelLog.Run)
	}
	if e.config.Web.ExporterMetrics {
		background("runtime metrics", e.pipeline.self.run)
	}
	return group.Wait()
}
