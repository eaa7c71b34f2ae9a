package dcgm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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
		case !w.profiling || !slices.ContainsFunc(w.group.rows, func(row int) bool { return !ws.lost[row] }):
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

// appendFaults appends a fault for each field of each row.
func appendFaults(list []gpu.Fault, rows, fields []int, err error) []gpu.Fault {
	for _, f := range fields {
		for _, row := range rows {
			list = append(list, gpu.Fault{Row: row, Field: f, Err: err})
		}
	}
	return list
}

// unserved adds faults for fields that no row of the topology has.
func (ws *watchSet) unserved() {
	for f := range ws.plan.Fields {
		field := &ws.plan.Fields[f]
		if slices.ContainsFunc(ws.top.Devices, func(d gpu.Device) bool { return scopeOf(d.Entity).has(field) }) {
			continue
		}
		kinds := field.Levels.List()
		var err error
		for _, kind := range kinds {
			err = cmp.Or(err, ws.layout.others.failed[kind])
		}
		switch {
		case err != nil:
			err = fmt.Errorf("the engine cannot list a %v: %w", kinds[0], ws.withVersions(err))
		case !reads(field):
			err = fmt.Errorf("%w: the DCGM source does not read this field", gpu.ErrNotSupported)
		default:
			err = fmt.Errorf("%w: no %v exists or is selected", errNoEntity, kinds[0])
		}
		ws.faults = append(ws.faults, gpu.Fault{Row: gpu.AllRows, Field: f, Err: err})
	}
}

// mostNamed limits the number of fields and of devices in one log line.
const mostNamed = 16

// reportFaults logs new faults. Devices that miss the same fields for the same reason share a line. Otherwise a node
// with many instances would have a line for each instance and field.
func (ws *watchSet) reportFaults() {
	type line struct {
		reason string
		level  slog.Level
		fields string
	}
	type want struct {
		line
		row int
	}
	var fields grouping[want, string]
	for _, fault := range ws.faults[ws.reported:] {
		w := want{line{reason: fault.Err.Error(), level: slog.LevelWarn}, fault.Row}
		// These faults are expected, so they are only logged at level info. A counters file for a fleet names fields
		// that this machine lacks, and the engine does not load modules for missing devices, such as Grace CPUs. Fields
		// that only accounting requested are optional.
		isUnloaded := fault.Row == gpu.AllRows && hasCode(fault.Err, codeModuleNotLoaded)
		if isUnloaded || errors.Is(fault.Err, errNoEntity) || !ws.plan.Requests(fault.Field) {
			w.level = slog.LevelInfo
		}
		fields.add(w, ws.plan.Fields[fault.Field].Name)
	}
	ws.reported = len(ws.faults)
	var devices grouping[line, string]
	for _, w := range fields.keys {
		w.fields = list(fields.values[w])
		device := "" // a fault of all rows has no device
		if w.row != gpu.AllRows {
			device = ws.top.Devices[w.row].Entity.String()
		}
		devices.add(w.line, device)
	}
	for _, l := range devices.keys {
		attrs := []any{"fields", l.fields, "error", l.reason}
		if d := devices.values[l]; d[0] != "" {
			attrs = append(attrs, "devices", list(d))
		}
		ws.log.Log(context.Background(), l.level, "Fields are not watched", attrs...)
	}
}

// list joins words. After mostNamed words it only gives the number of the others.
func list(words []string) string {
	more := len(words) - mostNamed
	if more <= 0 {
		return strings.Join(words, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(words[:mostNamed], ", "), more)
}
