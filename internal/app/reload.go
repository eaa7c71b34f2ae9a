package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The pauses before a reload that failed for a passing reason is tried again.
const (
	minReloadPause = time.Second
	maxReloadPause = 30 * time.Second
)

// A reloader reads the configuration anew when asked, whoever asks: SIGHUP,
// POST /-/reload and the file watch all come through here, one at a time. A
// failure at any step changes nothing and shows in the reload series. Unless it
// proves the configuration bad, it is tried again until it is in force.
type reloader struct {
	apply func(context.Context) (hash uint64, err error)
	last  uint64 // hash of the configuration in force
	log   *slog.Logger
	asked chan request
	busy  atomic.Bool

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
		apply: apply, log: log, asked: make(chan request),
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

// reload asks for a reload and waits for its end.
func (r *reloader) reload(ctx context.Context, why string) error {
	req := request{why: why, reply: make(chan error, 1)}
	select {
	case r.asked <- req:
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
		case req = <-r.asked:
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
	if !passes(err) {
		return 0
	}
	return min(max(2*pause, minReloadPause), maxReloadPause)
}

// note says in the log and as series how an attempt went. One that was tried again, and
// failed again, is no news.
func (r *reloader) note(why string, hash uint64, err error, again bool) {
	switch {
	case err != nil:
		r.successful.Set(0)
		if passes(err) && !again {
			r.log.Error("Reload failed; everything goes on as before, and it is tried again", "why", why, "error", err)
		} else if !passes(err) {
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
