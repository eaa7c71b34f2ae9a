package dcgm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// retryRefused is the delay before a rejected watch is tried again.
const retryRefused = time.Minute

// staleIntervals is how many intervals a profiling watch may have no new value while other watches have some. The first
// value needs two readings.
const staleIntervals = 3

// maxPatience is the longest time between two new watches of contradicted fields. A new watch costs two values of every
// GPU, and may not help.
const maxPatience = time.Hour

var (
	errStale        = fmt.Errorf("%w: the profiling fields have no new values", gpu.ErrUnavailable)
	errContradicted = fmt.Errorf("%w: the profiling fields read 0 while the GPU works", gpu.ErrUnavailable)
)

// A refusedWatch is a watch that the engine rejects temporarily: another profiler uses the counters, there is no room,
// or the engine did not answer.
type refusedWatch struct {
	rows, fields []int
	sampling
	err  error
	next time.Time // time of the next try
}

// addRefused adds a rejected watch, which retryRefused tries again.
func (ws *watchSet) addRefused(rows, fields []int, key sampling, err error, next time.Time) {
	ws.log.Warn("Fields are temporarily not watched", "field", ws.plan.Fields[fields[0]].Name, "fields", len(fields),
		"entities", len(rows), "error", err)
	ws.refused = append(ws.refused, refusedWatch{rows, fields, key, err, next})
}

// addFaults adds the faults of all fields that are not watched.
func (ws *watchSet) addFaults(b *gpu.Batch) {
	b.Faults = append(b.Faults, ws.faults...)
	for _, h := range ws.refused {
		b.Faults = appendFaults(b.Faults, h.rows, h.fields, h.err)
	}
}

// retryRefused tries the rejected watches that are due. After an error, the session must be reopened.
func (ws *watchSet) retryRefused(now time.Time) error {
	due := func(h refusedWatch) bool { return !now.Before(h.next) }
	if !slices.ContainsFunc(ws.refused, due) {
		return nil
	}
	defer ws.reportFaults()
	refused := ws.refused
	ws.refused = nil
	for i, h := range refused {
		if !due(h) {
			ws.refused = append(ws.refused, h)
			continue
		}
		err := ws.tryWatch(h.rows, h.fields, h.sampling)
		switch severityOf(err) {
		case none:
			ws.log.Info("Fields are watched again", "field", ws.plan.Fields[h.fields[0]].Name, "fields", len(h.fields),
				"entities", len(h.rows))
		case skip: // the engine may accept a part of the watch now
			err = ws.watchChunks(h.rows, h.fields, h.sampling, len(h.rows), len(h.fields))
		case retry:
			h.err, h.next, err = ws.withVersions(err), now.Add(ws.retryAfter), nil
			ws.refused = append(ws.refused, h)
		}
		if err != nil {
			ws.refused = append(ws.refused, refused[i:]...)
			return err
		}
	}
	return nil
}

// follow records which watches had a new value or a fault in this Read. A new watch would not help against a fault. If
// no watch had a new value for a long time, the engine was frozen. Profiling then needs two more readings for its first
// value.
func (ws *watchSet) follow(now time.Time) {
	before, usual := ws.advanced, time.Duration(0) // usual is the time between two new values
	for _, w := range ws.list {
		advanced := &ws.advanced
		if w.profiling {
			advanced = &w.advanced
		} else if !w.sporadic && (usual == 0 || w.interval < usual) {
			usual = w.interval
		}
		if w.latest > w.newest || w.profiling && w.faults {
			w.newest, *advanced = max(w.newest, w.latest), now
		}
	}
	if ws.advanced.Sub(before) > staleIntervals*max(usual, ws.plan.ReadInterval()) {
		ws.resumed = now
	}
}

// idle returns how long a profiling watch has had no new value while other watches had some.
func (ws *watchSet) idle(w *watch) time.Duration {
	if w.advanced.Before(ws.resumed) {
		return ws.advanced.Sub(ws.resumed)
	}
	return ws.advanced.Sub(w.advanced)
}

// renew drops profiling watches that had no new value for too long while other watches had some, and those of
// contradicted rows. The engine can lose its profiler without reporting it. The next Read watches the fields again.
func (ws *watchSet) renew(now time.Time, contradicted []int) error {
	if len(contradicted) == 0 {
		ws.patience = ws.retryAfter
	}
	since := now.Sub(ws.renewed)
	if since < ws.retryAfter {
		return nil
	}
	isContradicted := func(row int) bool { return slices.Contains(contradicted, row) }
	var errs []error
	ws.list = slices.DeleteFunc(ws.list, func(w *watch) bool {
		reason := error(nil)
		switch {
		case !w.profiling || !slices.ContainsFunc(w.group.rows, func(row int) bool { return !ws.gpus.lost[row] }):
		case ws.idle(w) > staleIntervals*w.interval:
			reason = errStale
		case since >= ws.patience && slices.ContainsFunc(w.group.rows, isContradicted):
			reason = errContradicted
		}
		if reason != nil {
			errs = append(errs, ws.unwatch(w))
			ws.renewed, ws.arranged = now, false
			ws.addRefused(w.group.rows, w.fields, w.sampling, reason, now)
		}
		return reason != nil
	})
	if len(errs) > 0 && len(contradicted) > 0 {
		ws.patience = min(2*ws.patience, maxPatience)
	}
	return reopenOnly(errors.Join(errs...))
}
