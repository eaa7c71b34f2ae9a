package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// The pauses between retries of a failed reload.
const (
	minReloadPause = time.Second
	maxReloadPause = 30 * time.Second
)

// A reloader reloads the configuration for SIGHUP, POST /-/reload and file changes, one request at a time. A failed
// reload changes nothing and shows in the reload metrics. It is retried unless the configuration itself is invalid.
type reloader struct {
	apply    func(context.Context) (hash uint64, err error)
	last     uint64 // hash of the active configuration
	log      *slog.Logger
	requests chan request
	busy     atomic.Bool // a reload is in progress

	successful, at, hash prometheus.Gauge
}

type request struct {
	why   string
	reply chan error // receives the result of the first attempt if the buffer has room
}

func newReloader(reg prometheus.Registerer, log *slog.Logger, apply func(context.Context) (uint64, error)) *reloader {
	auto := promauto.With(reg)
	return &reloader{
		apply: apply, log: log, requests: make(chan request),
		successful: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_config_last_reload_successful",
			Help: "Whether the latest attempt to load the configuration succeeded.",
		}),
		at: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_config_last_reload_success_timestamp_seconds",
			Help: "Unix time of the latest successful load of the configuration.",
		}),
		hash: auto.NewGauge(prometheus.GaugeOpts{
			Name: "dcgm_exporter_config_hash",
			Help: "Hash of the active configuration, equal on nodes with the same configuration.",
		}),
	}
}

// setActiveHash records that the configuration with this hash is active.
func (r *reloader) setActiveHash(hash uint64) {
	r.last = hash
	r.successful.Set(1)
	r.at.Set(float64(time.Now().UnixNano()) / 1e9)
	r.hash.Set(float64(hash)) // 48 bits, which a float64 represents exactly
}

// reload requests a reload and waits for the result.
func (r *reloader) reload(ctx context.Context, why string) error {
	req := request{why: why, reply: make(chan error, 1)}
	select {
	case r.requests <- req:
	case <-ctx.Done():
		return fmt.Errorf("another reload is in progress: %w", ctx.Err())
	}
	select {
	case err := <-req.reply:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the reload is still in progress; the new configuration is not active yet: %w", ctx.Err())
	}
}

// run handles requests until ctx is done. Each value received from hangup is a request. Repeated failures of a retried
// request are not logged.
func (r *reloader) run(ctx context.Context, hangup <-chan os.Signal) {
	var req request
	var retry <-chan time.Time // nil unless the request is to be retried
	pause := minReloadPause
	for {
		repeated := false
		select {
		case <-ctx.Done():
			return
		case req = <-r.requests:
		case <-hangup:
			req = request{why: "SIGHUP"}
		case <-retry:
			repeated = true
		}
		r.busy.Store(true)
		hash, err := r.apply(ctx)
		r.busy.Store(false)

		pause = min(2*pause, maxReloadPause)
		if !repeated {
			pause = minReloadPause
		}
		retry = nil
		_, temporary := errors.AsType[retryable](err)
		if temporary {
			retry = time.After(pause)
		}
		r.note(req.why, hash, err, temporary && repeated)
		select {
		case req.reply <- err:
		default:
		}
	}
}

// note logs and records the result of a reload. If quiet is set, a failure is not logged.
func (r *reloader) note(why string, hash uint64, err error, quiet bool) {
	if err != nil {
		r.successful.Set(0)
		if !quiet {
			r.log.Error("Reload failed; keeping the previous configuration", "why", why, "error", err)
		}
		return
	}
	message := "Configuration reloaded"
	if hash == r.last {
		message += "; nothing changed. Restart to apply changed flags or environment variables"
	}
	r.log.Info(message, "why", why)
	r.setActiveHash(hash)
}

// reconfigure reads the configuration again and replaces the session unless nothing has changed. It activates the web
// configuration last, so that a failed reload changes nothing. Arguments and environment variables are those of the
// start; only the files that they name can change. It returns the hash of the active configuration.
func (e *exporter) reconfigure(ctx context.Context) (uint64, error) {
	cfg, err := config.Parse(e.process.Args, e.process.Env, e.files.ReadFile)
	if err != nil {
		return 0, err
	}
	applyWeb, err := e.server.LoadWebConfig()
	e.changes.follow(append(watched(cfg), e.server.WebFiles()...)) // even after an error: the file may appear later
	if err != nil {
		return 0, err
	}
	plan, hash, err := loadPlan(ctx, cfg, e.files.ReadFile, e.log)
	if err != nil {
		return 0, err
	}
	// A scenario's file may have changed: neither the configuration nor the plan contains it.
	if cfg.Source.Sim.Scenario != "" || !reflect.DeepEqual(cfg, e.active) || !reflect.DeepEqual(plan, e.plan) {
		backend, err := e.sources.backend(ctx, cfg, plan)
		if err != nil {
			return 0, err
		}
		if err := e.loop.Reload(ctx, e.pipeline.derived.settings(plan, backend)); err != nil {
			return 0, retryable{err} // a driver error; the settings are valid
		}
		e.active, e.plan = cfg, plan
	}
	return hash, applyWeb()
}
