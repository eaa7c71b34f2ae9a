package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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

// An exporter is a running exporter. After the first group, its parts are in the order of the data flow.
type exporter struct {
	process Process
	config  *config.Config
	read    *Reader   // reads configuration files
	lines   *startLog // keeps log lines until the server listens
	log     *slog.Logger

	registry  *prometheus.Registry // the exporter's own metrics
	watch     fileWatch            // a change of these files triggers a reload
	plan      *gpu.Plan
	hash      uint64 // hash of the configuration
	pending   bool   // the ConfigMap could not be read yet, and the counters file is used
	sources   *sources
	kernelLog *kernellog.Reader // nil if it is not read
	pipeline  *pipeline         // makes pages of snapshots
	pages     exposition.Pages  // the latest page
	dumps     *dumper           // writes pages to files if configured
	loop      *collector.Loop   // reads the source once per interval
	reloads   *reloader
	server    *server.Server
}

// serve collects and serves until ctx is done.
func serve(ctx context.Context, p Process, cfg *config.Config, read *Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &exporter{process: p, config: cfg, read: read, lines: &startLog{w: p.Err}, registry: newRegistry(p.build())}
	defer e.lines.end()
	e.log = newLogger(cfg.Log, e.lines)
	if p.Logging != nil {
		p.Logging(e.log)
	}
	source, err := e.openSource(ctx)
	if err != nil {
		return err
	}
	for _, notice := range cfg.Notices {
		e.log.Warn(notice)
	}
	e.buildPipeline(source)
	if err := e.buildServer(); err != nil {
		return err
	}
	return e.run(ctx)
}

// openSource reads the counters and returns the source of the configuration.
func (e *exporter) openSource(ctx context.Context) (source Backend, err error) {
	e.watch.follow(watched(e.config)) // from here on, a change of these files triggers a reload
	e.plan, e.hash, e.pending, err = startingPlan(ctx, e.config, e.read.ReadFile, e.log)
	if err != nil {
		return Backend{}, err
	}
	e.sources = newSources(e.process.Start, e.registry, e.log)
	return e.sources.backend(ctx, e.config, e.plan)
}

// buildPipeline makes the parts between the source and the pages.
func (e *exporter) buildPipeline(source Backend) {
	e.kernelLog = newKernelLog(e.config.Collection, e.registry, e.log, e.sources)
	e.pipeline = newPipeline(e.config, e.registry, e.process.Start, e.kernelLog, e.log)
	e.pipeline.self.runtime = newRuntimeRegistry() // metrics of the Go runtime, which the subcommand once leaves out
	e.dumps = newDumper(e.config.Dump, e.log)
	e.loop = collector.New(collector.Options{
		Settings: e.pipeline.derived.settings(e.plan, source),
		Publish: func(s *gpu.Snapshot) {
			page := e.pipeline.page(s)
			e.pages.Publish(page, s.ValidFor)
			e.dumps.record(s.Time, page)
		},
		Registerer: e.registry,
		Log:        e.log,
		HangLimit:  e.config.Collection.HangLimit,
	})
}

// buildServer makes the HTTP server and the reloader.
func (e *exporter) buildServer() (err error) {
	// On a reload, next.apply changes the parts that were built before.
	next := &reconfiguration{
		process: e.process, read: e.read.ReadFile, watch: &e.watch, sources: e.sources, derived: e.pipeline.derived,
		loop: e.loop, log: e.log, config: e.config, plan: e.plan,
	}
	e.reloads = newReloader(e.registry, e.log, next.apply)
	e.reloads.setActiveHash(e.hash)
	web := e.config.Web
	e.server, err = server.New(server.Options{
		Current:   e.page,
		Healthy:   e.healthy,
		Ready:     func() bool { return e.loop.Ready() && e.sources.isReady() },
		Reloading: e.reloads.reloading,

		Reload: func(ctx context.Context) error { return e.reloads.reload(ctx, "POST /-/reload") },

		LandingPage: web.LandingPage,
		Interval:    e.config.Collection.Interval,

		Registerer:    e.registry,
		Log:           e.log,
		Version:       e.process.build().Version,
		Address:       web.Address,
		SystemdSocket: web.SystemdSocket,
		ConfigFile:    web.ConfigFile,
		ReadTimeout:   web.ReadTimeout,
		WriteTimeout:  web.WriteTimeout,
		MaxRequests:   web.MaxRequests,
		Lifecycle:     web.Lifecycle,
		Pprof:         web.Pprof,
		Serving: func(a net.Addr) {
			e.lines.release()
			e.log.Info("Listening", "url", metricsURL(a, web.ConfigFile != ""))
			if e.process.Listening != nil {
				e.process.Listening(a)
			}
		},
	})
	if err != nil {
		return err
	}
	next.server, e.read.started = e.server, true // started: a reload must not wait for the writer of a pipe
	e.watch.follow(append(watched(e.config), e.server.WebFiles()...))
	return nil
}

// A task is a goroutine of the exporter. It runs until its context is done or it fails.
type task struct {
	name string
	run  func(context.Context) error
}

// tasks lists everything that runs at the same time.
func (e *exporter) tasks() []task {
	reload := func(reason string) func(context.Context) {
		return func(ctx context.Context) { _ = e.reloads.reload(ctx, reason) } // the reloader reports the result
	}
	tasks := []task{
		{"server", e.server.Run},
		{"collection", e.loop.Run},
		{"driver", func(ctx context.Context) error { return e.sources.run(ctx, e.loop) }},
		{"reloads", forever(func(ctx context.Context) { e.reloads.run(ctx, e.process.Hangup) })},
		{"files", forever(func(ctx context.Context) {
			e.watch.run(ctx, func() { reload("a file changed")(ctx) })
		})},
		{"counters ConfigMap", forever(func(ctx context.Context) {
			followConfigMap(ctx, e.config, e.log, func() { reload("the ConfigMap changed")(ctx) })
		})},
		{"dumps", forever(e.dumps.run)},
	}
	if e.kernelLog != nil {
		tasks = append(tasks, task{"kernel log", forever(e.kernelLog.Run)})
	}
	if e.pending {
		tasks = append(tasks, task{"first ConfigMap", forever(reload("the ConfigMap could not be read at the start"))})
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

// run runs all tasks until ctx is done or one of them fails.
func (e *exporter) run(ctx context.Context) error {
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

// page returns the latest page. If that has expired, it returns a page with only the exporter's own metrics, which say
// that the collection is stalled. It never waits for the collection.
func (e *exporter) page() *exposition.Page {
	if p := e.pages.Current(); p != nil || e.pages.Expired() <= 0 {
		return p
	}
	if !e.config.Web.ExporterMetrics {
		return exposition.NewPage([]byte("# the collection is stalled\n"))
	}
	return exposition.NewPage(e.pipeline.self.stalled())
}

// healthy returns an error if the collection hangs or if the latest page has expired.
func (e *exporter) healthy() error {
	if err := e.loop.Healthy(); err != nil {
		return err
	}
	if beyond := e.pages.Expired(); beyond > 0 {
		return fmt.Errorf("%w: the page expired %v ago", gpu.ErrStalled, beyond.Round(time.Millisecond))
	}
	return nil
}

// metricsURL returns the URL of the page for a browser.
func metricsURL(a net.Addr, secured bool) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String() // a unix socket
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http"
	if secured {
		scheme = "http(s)" // the web configuration decides which
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/metrics"
}
