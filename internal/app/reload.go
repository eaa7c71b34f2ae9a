package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// The pauses before a reload that failed for a reason that may pass is tried again.
const (
	minReloadPause = time.Second
	maxReloadPause = 30 * time.Second
)

// A reloader reads the configuration again on request: SIGHUP, POST /-/reload and the file watch all
// come through here, one at a time. A
// failure at any step changes nothing and shows in the reload series. Unless it
// proves the configuration bad, it is tried again until it is in force.
type reloader struct {
	apply    func(context.Context) (hash uint64, err error)
	last     uint64 // hash of the configuration in force
	log      *slog.Logger
	requests chan request
	busy     atomic.Bool

	successful prometheus.Gauge
	at         prometheus.Gauge
	hash       prometheus.Gauge
}

type request struct {
	why   string
	reply chan error
}

func newReloader(reg prometheus.Registerer, log *slog.Logger, apply func(context.Context) (uint64, error)) *reloader {
	r := &reloader{
		apply: apply, log: log, requests: make(chan request),
		successful: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_config_last_reload_successful",
			Help: "Whether the latest attempt to read the configuration succeeded.",
		}),
		at: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_config_last_reload_success_timestamp_seconds",
			Help: "When the configuration was last read with success, in Unix time.",
		}),
		hash: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_config_hash",
			Help: "A hash of the configuration in force: equal on all nodes that are configured alike.",
		}),
	}
	reg.MustRegister(r.successful, r.at, r.hash)
	return r
}

// took notes that the configuration with this hash is in force.
func (r *reloader) took(hash uint64) {
	r.last = hash
	r.successful.Set(1)
	r.at.Set(float64(time.Now().UnixNano()) / 1e9)
	r.hash.Set(float64(hash)) // 48 bits, which a float64 holds exactly
}

// reload requests a reload and waits for its end.
func (r *reloader) reload(ctx context.Context, why string) error {
	req := request{why: why, reply: make(chan error, 1)}
	select {
	case r.requests <- req:
	case <-ctx.Done():
		return fmt.Errorf("another reload is under way: %w", ctx.Err())
	}
	select {
	case err := <-req.reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("not in force yet; the reload waits for the driver: %w", ctx.Err())
	}
}

// reloading reports whether a reload is under way.
func (r *reloader) reloading() bool { return r.busy.Load() }

// run serves requests until ctx is done. Every value on hangup is one.
func (r *reloader) run(ctx context.Context, hangup <-chan struct{}) {
	var again request // what failed and is tried again, if pause is above 0
	pause := time.Duration(0)
	for {
		req := request{why: "SIGHUP", reply: make(chan error, 1)}
		var retry <-chan time.Time
		if pause > 0 {
			retry = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return
		case req = <-r.requests:
			pause = 0
		case <-hangup:
			pause = 0
		case <-retry:
			req = again
		}
		r.busy.Store(true)
		hash, err := r.apply(ctx)
		r.busy.Store(false)
		r.note(req.why, hash, err, pause > 0)
		if pause = next(pause, err); pause > 0 {
			again = request{why: req.why, reply: make(chan error, 1)}
		}
		req.reply <- err
	}
}

// next returns the pause before the next attempt, 0 for none.
func next(pause time.Duration, err error) time.Duration {
	if !isRetryable(err) {
		return 0
	}
	return min(max(2*pause, minReloadPause), maxReloadPause)
}

// note says in the log and as series how an attempt went. Repeated failures are not logged.
func (r *reloader) note(why string, hash uint64, err error, again bool) {
	switch {
	case err != nil:
		r.successful.Set(0)
		if isRetryable(err) && !again {
			r.log.Error("Reload failed; everything goes on as before, and it is tried again", "why", why, "error", err)
		} else if !isRetryable(err) {
			r.log.Error("Reload refused; everything goes on as before", "why", why, "error", err)
		}
	case hash == r.last:
		r.took(hash)
		r.log.Info("Configuration reloaded: its files say what they said before; flags and variables are those of the start, and take a restart to change", "why", why)
	default:
		r.took(hash)
		r.log.Info("Configuration reloaded", "why", why)
	}
}

// debounce is how long a file must be left alone before it is read again: an editor writes in pieces,
// and a ConfigMap is swapped by several renames.
const debounce = 500 * time.Millisecond

// maxDebounce is how long that wait is at most: a neighbor of the file may never be left alone.
const maxDebounce = 2 * time.Second

// recheck is how often the files are looked at even if nothing was notified: a file mounted by
// subPath or from the network causes no notification.
const recheck = 30 * time.Second

// A change is what a reload does, over what lives as long as the process.
type change struct {
	process Process
	read    reader
	watch   *fileWatch
	sources *sources
	derived *derivers
	loop    *collector.Loop
	server  *server.Server
	log     *slog.Logger

	// In force.
	config *config.Config
	plan   *gpu.Plan
}

// apply reads the configuration again and swaps the session, unless nothing differs. The arguments
// and the environment of a process do not change: what differs is in the files that they name, and
// takes effect whole. It returns the hash of the configuration that is then in force.
func (c *change) apply(ctx context.Context) (uint64, error) {
	cfg, err := config.Parse(c.process.Args, c.process.Env, c.read)
	if err != nil {
		return 0, err
	}
	c.watch.follow(append(watched(cfg), c.server.WebFiles()...)) // also if it is refused: a file that is missing may yet come
	if err := c.server.ReloadWebConfig(); err != nil {
		return 0, err
	}
	plan, hash, err := loadPlan(ctx, cfg, c.read, c.log)
	if err != nil {
		return 0, err
	}
	if c.isInForce(cfg, plan) {
		return hash, nil
	}
	source, err := c.sources.backend(ctx, cfg, plan)
	if err != nil {
		return 0, err
	}
	if err := c.loop.Reload(ctx, c.derived.change(plan, source)); err != nil {
		return 0, retryable{err} // of the driver: the settings are good
	}
	c.config, c.plan = cfg, plan
	return hash, nil
}

// isInForce reports whether a configuration and its plan are those in force. A simulated node may
// read a file of its own besides, and give way to hardware that has come.
func (c *change) isInForce(cfg *config.Config, plan *gpu.Plan) bool {
	return cfg.Source.Sim.Scenario == "" && !cfg.Source.Sim.Fallback && reflect.DeepEqual(cfg, c.config) && reflect.DeepEqual(plan, c.plan)
}

// A fileWatch calls back when the content of one of its files differs. It watches the folders, not
// the files: a ConfigMap's file is a link to a link, and what changes is the folder in between.
type fileWatch struct {
	read reader
	log  *slog.Logger

	mu   sync.Mutex
	sums map[string][sha256.Size]byte // of the files, as they were last looked at

	logged map[string]bool // folders that cannot be watched; run's own
}

func newFileWatch(read reader, log *slog.Logger) *fileWatch {
	return &fileWatch{read: read, log: log, logged: map[string]bool{}}
}

// follow makes files the ones that are watched, as the configuration that was just read names them.
// What is to be read from those that are new must be read afterwards, so that no change of them is
// missed.
func (w *fileWatch) follow(files []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sums := make(map[string][sha256.Size]byte, len(files))
	for _, f := range files {
		sum, known := w.sums[f]
		if !known {
			sum = w.sumOf(f)
		}
		sums[f] = sum
	}
	w.sums = sums
}

// run calls changed when the content of a file differs, until ctx is done.
func (w *fileWatch) run(ctx context.Context, changed func()) {
	var events chan fsnotify.Event
	var failures chan error
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("Files cannot be watched (inotify): they are checked for changes at an interval", "every", recheck, "error", err)
	} else {
		defer watcher.Close()
		events, failures = watcher.Events, watcher.Errors
		w.watchFolders(watcher)
	}
	quiet := time.NewTimer(recheck)
	defer quiet.Stop()
	var first time.Time // of the events since the files were last looked at
	soon := func() {
		if first.IsZero() {
			first = time.Now()
		}
		quiet.Reset(max(0, min(debounce, maxDebounce-time.Since(first))))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			soon()
		case err := <-failures:
			w.log.Warn("The file watch missed something; looking at the files", "error", err)
			soon()
		case <-quiet.C:
			first = time.Time{}
			if w.differ() {
				changed()
			}
			if watcher != nil {
				w.watchFolders(watcher)
			}
			quiet.Reset(recheck)
		}
	}
}

// watchFolders watches every folder on the way to a file's content, beside those that are watched
// already.
func (w *fileWatch) watchFolders(watcher *fsnotify.Watcher) {
	w.mu.Lock()
	files := slices.Collect(maps.Keys(w.sums))
	w.mu.Unlock()
	watched := watcher.WatchList()
	for _, f := range files {
		dirs := []string{filepath.Dir(f)}
		if real, err := filepath.EvalSymlinks(f); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		for _, dir := range dirs {
			if slices.Contains(watched, dir) {
				continue
			}
			watched = append(watched, dir)
			if err := watcher.Add(dir); err != nil && !w.logged[dir] {
				w.logged[dir] = true
				level := slog.LevelWarn
				if errors.Is(err, fs.ErrNotExist) { // as without a counters file, or while a volume is exchanged
					level = slog.LevelInfo
				}
				w.log.Log(context.Background(), level, "A folder cannot be watched (inotify): its files are checked for changes at an interval", "folder", dir, "every", recheck, "error", err)
			}
		}
	}
}

// differ reports whether the content of a file is another than when it was last looked at.
func (w *fileWatch) differ() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	differ := false
	for f, before := range w.sums {
		now := w.sumOf(f)
		differ = differ || now != before
		w.sums[f] = now
	}
	return differ
}

// sumOf is a fingerprint of a file's content. A file that cannot be read has one of its own, so
// that its coming and going are changes.
func (w *fileWatch) sumOf(file string) [sha256.Size]byte {
	content, err := w.read(file)
	if err != nil {
		content = []byte("unreadable: " + err.Error())
	}
	return sha256.Sum256(content)
}
