package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// A Process is what the exporter gets from the process that it runs in.
type Process struct {
	Args []string                    // without the program's name
	Env  func(string) (string, bool) // as os.LookupEnv
	Out  io.Writer                   // help and version
	Err  io.Writer                   // the log; Run never waits for it
	// Logging, if not nil, gets the logger of Run before anything is logged, for
	// libraries that log by themselves.
	Logging func(*slog.Logger)
	// Hangup gets a value for every reload that somebody signals. May be nil.
	Hangup <-chan struct{}
	// Release and Acquire get a value when somebody signals that the driver is to
	// be let go of, and to be taken back. May be nil.
	Release, Acquire <-chan struct{}
	// Start is when the process started.
	Start time.Time
	// Version is that of the build.
	Version string
	// Listening, if not nil, is told every address that is listened on.
	Listening func(net.Addr)
}

// Run runs the exporter until ctx is done, and then returns nil once every
// driver handle is closed. It returns an error that names the setting and what
// to do about it if the configuration is wrong or the port is taken, and one
// that wraps gpu.ErrWedged if the driver does not return a call: the process
// must then be restarted. After ErrReplaced everything is closed, and the
// process had better begin anew.
func Run(ctx context.Context, p Process) error {
	err := run(ctx, p)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // it was asked to end before it had begun
	}
	return err
}

func run(ctx context.Context, p Process) error {
	// Configuration: flags, environment and file are one thing.
	files := NewFiles(ctx)
	cfg, err := config.Parse(p.Args, p.Env, files.Read)
	if err != nil {
		return err
	}
	switch cfg.Show {
	case config.ShowHelp:
		_, err := io.WriteString(p.Out, config.Help())
		return err
	case config.ShowVersion:
		_, err := fmt.Fprintln(p.Out, "dcgm-exporter", p.Version)
		return err
	}
	registry := newRegistry(p.Version)
	log, finish := logTo(p.Err, cfg.Log, registry)
	defer finish()
	if p.Logging != nil {
		p.Logging(log)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// What is asked for, and where it is read. What changes in these files from
	// here on is a reload.
	watch := &fileWatch{files: files, log: log}
	watch.follow(watched(cfg))
	plan, hash, err := loadPlan(ctx, cfg, files, log)
	if err != nil {
		return err
	}
	sources := newSources(p.Start, registry, files, log)
	source, err := sources.choose(ctx, cfg, plan)
	if err != nil {
		return err
	}
	for _, notice := range cfg.Notices {
		log.Warn(notice)
	}

	// A snapshot becomes a page, and the page is what a scrape gets.
	options := encoderOptions(cfg, log)
	self := &selfMetrics{own: registry, runtime: newRuntimeRegistry(), log: log}
	if cfg.Web.ExporterMetrics {
		options.Trailer = self.append
	}
	encoder := exposition.NewEncoder(options)
	registerEncoder(registry, encoder)
	var pages exposition.Pages
	dumps := newDumper(cfg.Dump, log)
	memory := newEventMemory(cfg.Collection, registry, log, sources)
	pause, err := newPause(cfg, log, sources.kubernetes.apiWatches)
	if err != nil {
		return err
	}
	derived := newDerivers(events.Options{
		XIDWindow:         window(cfg.Collection.XIDWindow),
		ClockEventsWindow: window(cfg.Collection.ClockEventWindow),
		KernelLog:         memory.xids(),
		Kept:              memory.kept,
		Save:              memory.save(),
	}, cfg.Metrics.Accounting, cfg.Kubernetes.VirtualGPUs, registry)
	first := derived.change(plan, source)
	sources.standIn.current = first
	loop := collector.New(collector.Options{
		Source:      first.Source,
		Plan:        first.Plan,
		Attributors: first.Attributors,
		Derivers:    first.Derivers,
		Released:    pause.patience(),
		Publish: func(s *gpu.Snapshot) {
			pages.PublishFor(encoder.Encode(s), s.ValidFor)
			if dumps != nil {
				dumps.take(s)
			}
		},
		Registerer: registry,
		Log:        log,
		HangLimit:  cfg.Collection.HangLimit,
	})

	dog := &watchdog{
		pages: &pages, encoder: exposition.NewEncoder(options), stalled: loop.Stalled,
		hangLimit: cfg.Collection.HangLimit, last: lastPage(cfg.Web.ExporterMetrics), log: log,
	}
	healthy := func() error { return cmp.Or(loop.Healthy(), dog.healthy()) }
	sources.released = loop.Released
	hold := &holder{loop: loop, log: log, timeout: cfg.Collection.ReleaseTimeout}

	// Whoever asks for a reload, this is what happens.
	reloads := newReloader(registry, log, func(ctx context.Context) (uint64, error) {
		return reload(ctx, p, files, watch, sources, derived, hold, log)
	})
	reloads.took(hash)
	watch.changed = func() {
		// The reloader tells the outcome, in the log and as series.
		_ = reloads.reload(ctx, "a file changed")
	}

	var explain func(string) ([]string, bool)
	if cfg.Kubernetes.Enabled {
		explain = sources.kubernetes.mapper.Recall
	}
	if file := cfg.Web.ConfigFile; file != "" {
		if _, err := files.Read(file); err != nil { // the server would wait for it
			return fmt.Errorf("--web-config-file %s: %w", file, err)
		}
	}
	srv, err := server.New(server.Options{
		Acquire:   pages.Acquire,
		Healthy:   healthy,
		Ready:     func() bool { return loop.Ready() && (loop.Released() || sources.engine.reachable()) },
		Reloading: reloads.reloading,

		Reload:          func(ctx context.Context) error { return reloads.reload(ctx, "POST /-/reload") },
		Release:         hold.release,
		TakeBack:        loop.Acquire,
		PauseProfiling:  loop.PauseProfiling,
		ResumeProfiling: loop.ResumeProfiling,

		Explain: explain,

		Registerer:    registry,
		Log:           log,
		Version:       p.Version,
		Address:       cfg.Web.Address,
		SystemdSocket: cfg.Web.SystemdSocket,
		ConfigFile:    cfg.Web.ConfigFile,
		ReadTimeout:   cfg.Web.ReadTimeout,
		WriteTimeout:  cfg.Web.WriteTimeout,
		MaxRequests:   cfg.Web.MaxRequests,
		Lifecycle:     cfg.Web.Lifecycle,
		Pprof:         cfg.Web.Pprof,
		Listening: func(a net.Addr) {
			log.Info("Listening", "url", metricsURL(a, cfg.Web.ConfigFile != ""))
			if p.Listening != nil {
				p.Listening(a)
			}
		},
	})
	if err != nil {
		return err
	}

	// They end together: with ctx, or with the first that fails.
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return srv.Run(ctx) })
	group.Go(func() error {
		defer memory.finish()
		defer derived.events.Flush()
		return loop.Run(ctx)
	})
	group.Go(func() error { return sources.awaitReplacement(ctx) })
	sustain := func(part string, run func(context.Context)) {
		group.Go(func() error { sustained(ctx, log, part, run); return nil })
	}
	sustain("watchdog", dog.run)
	sustain("fallback", func(ctx context.Context) { sources.standIn.run(ctx, loop) })
	sustain("event memory", memory.run)
	sustain("reloads", func(ctx context.Context) { reloads.run(ctx, p.Hangup) })
	sustain("signals", func(ctx context.Context) { hold.obey(ctx, p.Release, p.Acquire) })
	if pause != nil {
		pause.hold = hold
		sustain("node label", pause.run)
	}
	sustain("file watch", watch.run)
	if dumps != nil {
		sustain("dumps", dumps.run)
	}
	if cfg.Web.ExporterMetrics {
		sustain("runtime series", self.run)
	}
	sustain("ConfigMap", func(ctx context.Context) {
		followConfigMap(ctx, cfg, log, func() { _ = reloads.reload(ctx, "the ConfigMap changed") })
	})
	return group.Wait()
}

// reload reads the configuration anew and swaps the session. The arguments and
// the environment of a process do not change: what differs is in the files that
// they name, and takes effect whole. It returns the hash of the configuration
// that is then in force.
func reload(ctx context.Context, p Process, files *Files, watch *fileWatch, sources *sources, derived *derivers, hold *holder, log *slog.Logger) (uint64, error) {
	cfg, err := config.Parse(p.Args, p.Env, files.Read)
	if err != nil {
		return 0, err
	}
	watch.follow(watched(cfg)) // also if it is refused: a file that is missing may yet come
	plan, hash, err := loadPlan(ctx, cfg, files, log)
	if err != nil {
		return 0, err
	}
	source, err := sources.choose(ctx, cfg, plan)
	if err != nil {
		return 0, err
	}
	if err := sources.standIn.reload(ctx, hold.loop, derived.change(plan, source)); err != nil {
		return 0, passing{err} // of the driver: the settings are good
	}
	return hash, nil
}

// window returns the length of a window for the event log, to which 0 means the
// default: in the shortest one nothing is ever counted.
func window(configured time.Duration) time.Duration { return max(configured, time.Nanosecond) }

// metricsURL is where a person can look at the page.
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

func newLogger(c config.Log, w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if c.Debug {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	if c.Format == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
