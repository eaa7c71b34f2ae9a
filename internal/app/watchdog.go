package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// watchEvery is how often the watchdog looks at the page, and renders its stand-in.
const watchEvery = 500 * time.Millisecond

// A watchdog replaces a page that is past its limit: whatever the collection is stuck in, its
// latest values are not served as the present ones. The stand-in has the exporter's own series
// alone.
type watchdog struct {
	pages   *exposition.Pages
	encoder *exposition.Encoder // its own
	// stalled is called when the page passes its limit.
	stalled func()
	// hangLimit is for how long a page may be past its limit before the process should be restarted.
	hangLimit time.Duration
	// last is what is served for the moment until run has looked, and for good where even the
	// exporter's own series cannot be gathered.
	last []byte
	log  *slog.Logger
}

// lastPage returns watchdog.last, with or without the exporter's own series.
func lastPage(own bool) []byte {
	if !own {
		return []byte("# the collection is stalled\n")
	}
	return []byte("# HELP dcgm_exporter_collect_success Whether the latest collection cycle had data to serve.\n" +
		"# TYPE dcgm_exporter_collect_success gauge\ndcgm_exporter_collect_success 0\n")
}

// run serves until ctx is done.
func (w *watchdog) run(ctx context.Context) {
	w.pages.StandIn(exposition.NewPage(w.last))
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	stalled := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch expired := w.pages.Expired() > 0; {
		case expired && !stalled:
			w.stalled()
			w.log.Error("The collection is stalled: no page for longer than its limit. The health series alone are served")
			fallthrough
		case expired:
			w.pages.StandIn(w.encoder.Encode(&gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: gpu.ErrStalled}}))
			stalled = true
		case stalled:
			w.log.Info("The collection goes on")
			w.pages.StandIn(exposition.NewPage(w.last))
			stalled = false
		}
	}
}

// healthy returns an error if no page was published for longer than its limit and the hang limit.
func (w *watchdog) healthy() error {
	if expired := w.pages.Expired(); expired > w.hangLimit {
		return fmt.Errorf("%w: the page is past its limit for %v", gpu.ErrStalled, expired.Round(time.Second))
	}
	return nil
}

// sustainPause is how long a part of the exporter rests after a panic.
const sustainPause = 10 * time.Second

// sustained runs a part of the exporter until ctx is done or it returns. After a panic it runs
// again, and the log has the stack of the first one: no part ends the process.
func sustained(ctx context.Context, log *slog.Logger, part string, run func(context.Context)) {
	for first := true; ; first = false {
		err := gpu.Protect(func() error {
			run(ctx)
			return nil
		})
		var p *gpu.Panic
		if !errors.As(err, &p) {
			return
		}
		line := []any{"part", part, "error", err}
		if first {
			line = append(line, "stack", string(p.Stack))
		}
		log.Error("A part of the exporter panicked; it begins again", line...)
		timer := time.NewTimer(sustainPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
