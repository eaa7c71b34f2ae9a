package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// A Process holds the surroundings of the exporter.
type Process struct {
	Args []string                    // without the program's name
	Env  func(string) (string, bool) // as os.LookupEnv
	Out  io.Writer                   // help and version
	Err  io.Writer                   // the log
	// Logging, if not nil, gets the logger before anything is logged, for libraries that log by themselves.
	Logging func(*slog.Logger)
	// Hangup gets the signals to reload. May be nil.
	Hangup <-chan os.Signal
	// Start is when the process started.
	Start time.Time
	// Version is that of the build. Revision and Date, of its commit, may be empty.
	Version, Revision, Date string
	// Usage is the head of --help.
	Usage string
	// Listening, if not nil, is called with every address that is listened on.
	Listening func(net.Addr)
}

// Run runs the exporter until ctx is done, and returns nil once every driver handle is closed. An error about the
// configuration or the port names the setting and the remedy. After gpu.ErrWedged, for a driver call that did not return,
// and ErrReplaced only a new process can go on.
func Run(ctx context.Context, p Process) error {
	err := run(ctx, p)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // it was to end before it had begun
	}
	return err
}

func run(ctx context.Context, p Process) error {
	// Configuration: flags, environment and file are one thing.
	read := new(Reader)
	cfg, err := config.Parse(p.Args, p.Env, read.ReadFile)
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
	return serve(ctx, p, cfg, read)
}

// serve collects and serves until ctx is done.
func serve(ctx context.Context, p Process, cfg *config.Config, read *Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := &startLog{w: p.Err}
	defer lines.end()
	log := newLogger(cfg.Log, lines)
	if p.Logging != nil {
		p.Logging(log)
	}
	registry := newRegistry(p.build())

	// The requested fields and their source. A change of these files from here on is a reload.
	var watch fileWatch
	watch.follow(watched(cfg))
	plan, hash, waits, err := startingPlan(ctx, cfg, read.ReadFile, log)
	if err != nil {
		return err
	}
	sources := newSources(p.Start, registry, log)
	source, err := sources.backend(ctx, cfg, plan)
	if err != nil {
		return err
	}
	for _, notice := range cfg.Notices {
		log.Warn(notice)
	}

	// A snapshot becomes a page, and a scrape gets the page.
	options := EncoderOptions(cfg, log)
	self := &selfMetrics{own: registry, runtime: newRuntimeRegistry(), log: log}
	if cfg.Web.ExporterMetrics {
		options.Trailer = self.append
	}
	encoder := exposition.NewEncoder(options)
	registerEncoder(registry, encoder)
	var pages exposition.Pages
	dumps := newDumper(cfg.Dump, log)
	kernelLog := newKernelLog(cfg.Collection, registry, log, sources)
	eventOptions := events.Options{
		XIDWindow:         window(cfg.Collection.XIDWindow),
		ClockEventsWindow: window(cfg.Collection.ClockEventWindow),
		Strict:            cfg.Metrics.Compatibility == config.CompatibilityStrict,
		OwnersApart:       options.OwnersApart,
	}
	if kernelLog != nil { // a nil pointer in the interface would not be nil
		eventOptions.KernelLog = kernelLog
	}
	derived := newDerivers(eventOptions, cfg.Metrics.Accounting, cfg.Kubernetes.VirtualGPUs, registry)
	first := derived.change(plan, source)
	loop := collector.New(collector.Options{
		Source:      first.Source,
		Plan:        first.Plan,
		Attributors: first.Attributors,
		Derivers:    first.Derivers,
		Publish: func(s *gpu.Snapshot) {
			page := encoder.Encode(s)
			pages.Publish(page, s.ValidFor)
			dumps.record(s.Time, page)
		},
		Registerer: registry,
		Log:        log,
		HangLimit:  cfg.Collection.HangLimit,
	})

	// Each request for a reload comes here.
	next := &change{
		process: p, read: read.ReadFile, watch: &watch, sources: sources, derived: derived, loop: loop, log: log, config: cfg, plan: plan,
	}
	reloads := newReloader(registry, log, next.apply)
	reloads.took(hash)

	srv, err := server.New(server.Options{
		Current:   func() *exposition.Page { return fresh(&pages, self, cfg.Web.ExporterMetrics) },
		Healthy:   func() error { return cmp.Or(loop.Healthy(), freshness(&pages)) },
		Ready:     func() bool { return loop.Ready() && sources.engine.reachable() },
		Reloading: reloads.reloading,

		Reload: func(ctx context.Context) error { return reloads.reload(ctx, "POST /-/reload") },

		LandingPage: cfg.Web.LandingPage,
		Interval:    cfg.Collection.Interval,

		Registerer:    registry,
		Log:           log,
		Version:       p.build().Version,
		Address:       cfg.Web.Address,
		SystemdSocket: cfg.Web.SystemdSocket,
		ConfigFile:    cfg.Web.ConfigFile,
		ReadTimeout:   cfg.Web.ReadTimeout,
		WriteTimeout:  cfg.Web.WriteTimeout,
		MaxRequests:   cfg.Web.MaxRequests,
		Lifecycle:     cfg.Web.Lifecycle,
		Pprof:         cfg.Web.Pprof,
		Serving: func(a net.Addr) {
			lines.release()
			log.Info("Listening", "url", metricsURL(a, cfg.Web.ConfigFile != ""))
			if p.Listening != nil {
				p.Listening(a)
			}
		},
	})
	if err != nil {
		return err
	}
	next.server, read.started = srv, true
	watch.follow(append(watched(cfg), srv.WebFiles()...))

	// They end together: with ctx, or with the first that fails.
	requested := ctx
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return srv.Run(ctx) })
	group.Go(func() error { return loop.Run(ctx) })
	group.Go(func() error { return sources.awaitReplacement(ctx) })
	also := func(run func(context.Context)) {
		group.Go(func() error { run(ctx); return nil })
	}
	also(func(ctx context.Context) { sources.restoreDCGM(ctx, loop) })
	also(func(ctx context.Context) { sources.awaitEngine(ctx, loop) })
	if kernelLog != nil {
		also(kernelLog.Run)
	}
	also(func(ctx context.Context) { reloads.run(ctx, p.Hangup) })
	if waits {
		also(func(ctx context.Context) { _ = reloads.reload(ctx, "the ConfigMap could not be read at the start") })
	}
	also(func(ctx context.Context) {
		watch.run(ctx, func() { _ = reloads.reload(ctx, "a file changed") }) // which reports the outcome
	})
	also(dumps.run)
	if cfg.Web.ExporterMetrics {
		also(self.run)
	}
	also(func(ctx context.Context) {
		followConfigMap(ctx, cfg, log, func() { _ = reloads.reload(ctx, "the ConfigMap changed") })
	})
	err = group.Wait()
	log.Info("Stopped", "requested", requested.Err() != nil)
	if requested.Err() != nil && errors.Is(err, gpu.ErrWedged) {
		log.Warn("A driver call has not returned; what it holds goes with the process", "error", err)
		return nil
	}
	return err
}

// fresh returns the latest page, or past its limit a page of the exporter's own series, which say that the collection is
// stalled. It never waits for the collection.
func fresh(pages *exposition.Pages, self *selfMetrics, own bool) *exposition.Page {
	if p := pages.Current(); p != nil || pages.Expired() <= 0 {
		return p
	}
	if !own {
		return exposition.NewPage([]byte("# the collection is stalled\n"))
	}
	return exposition.NewPage(self.stalled())
}

// freshness returns an error if the latest page is past its limit.
func freshness(pages *exposition.Pages) error {
	if beyond := pages.Expired(); beyond > 0 {
		return fmt.Errorf("%w: the page is past its limit for %v", gpu.ErrStalled, beyond.Round(time.Millisecond))
	}
	return nil
}

// window returns the length of a window for the event log: 0 means the default there, and no event fits in a nanosecond.
func window(configured time.Duration) time.Duration { return max(configured, time.Nanosecond) }

// metricsURL is the address of the page for a browser.
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
		scheme = "http(s)" // as the web configuration says
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/metrics"
}
