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
func (s *Session) addRefused(rows, fields []int, key sampling, err error, next time.Time) {
	s.log.Warn("Fields are temporarily not watched", "field", s.plan.Fields[fields[0]].Name, "fields", len(fields),
		"entities", len(rows), "error", err)
	s.refused = append(s.refused, refusedWatch{rows: slices.Clone(rows), fields: slices.Clone(fields), sampling: key, err: err,
		next: next})
}

// retryRefused tries the rejected watches that are due. After an error, the session must be reopened.
func (s *Session) retryRefused(now time.Time) error {
	due := func(h refusedWatch) bool { return !now.Before(h.next) }
	if !slices.ContainsFunc(s.refused, due) {
		return nil
	}
	defer s.reportFaults()
	refused := s.refused
	s.refused = nil
	for i, h := range refused {
		if !due(h) {
			s.refused = append(s.refused, h)
			continue
		}
		if err := s.retryOne(h, now); err != nil {
			s.refused = append(s.refused, refused[i:]...)
			return err
		}
	}
	return nil
}

// retryOne tries a rejected watch, and adds it again if it is still rejected.
func (s *Session) retryOne(h refusedWatch, now time.Time) error {
	err := s.tryWatch(h.rows, h.fields, h.sampling)
	switch {
	case err == nil:
		s.log.Info("Fields are watched again", "field", s.plan.Fields[h.fields[0]].Name, "fields", len(h.fields), "entities", len(h.rows))
		return nil
	case severityOf(err) == reopen:
		return err
	case severityOf(err) == skip:
		return s.watchChunks(h.rows, h.fields, h.sampling) // part of it may be watched now, which only a new session can tell
	}
	h.err, h.next = s.withVersions(err), now.Add(s.retry)
	s.refused = append(s.refused, h)
	return nil
}

// follow records whether a watch had a new value or a fault in this Read. A new watch would not help against a fault.
func (s *Session) follow(w *watch, now time.Time) {
	advanced := &s.advanced
	if w.profiling {
		advanced = &w.advanced
	}
	if w.latest > w.newest || w.profiling && w.faults {
		w.newest, *advanced = max(w.newest, w.latest), now
	}
}

// renew drops profiling watches that had no new value for too long while other watches had some, and those of
// contradicted rows. The engine can lose its profiler without reporting it. The next Read watches the fields again.
func (s *Session) renew(now time.Time, contradicted []int) error {
	if len(contradicted) == 0 {
		s.patience = s.retry
	}
	since := now.Sub(s.renewed)
	if since < s.retry {
		return nil
	}
	isContradicted := func(row int) bool { return slices.Contains(contradicted, row) }
	var given []refusedWatch
	var errs []error
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool {
		reason := error(nil)
		switch {
		case !w.profiling || !slices.ContainsFunc(w.group.rows, func(row int) bool { return !s.lost[row] }):
		case s.advanced.Sub(w.advanced) > staleIntervals*w.interval:
			reason = errStale
		case since >= s.patience && slices.ContainsFunc(w.group.rows, isContradicted):
			reason = errContradicted
		}
		if reason != nil {
			errs = append(errs, s.unwatch(w), s.engine.destroyFieldGroup(w.handle))
			given = append(given, refusedWatch{rows: w.group.rows, fields: w.fields, sampling: w.sampling, err: reason})
		}
		return reason != nil
	})
	for _, w := range given {
		s.renewed, s.arranged = now, false
		s.addRefused(w.rows, w.fields, w.sampling, w.err, now)
	}
	if len(given) > 0 && len(contradicted) > 0 {
		s.patience = min(2*s.patience, maxPatience)
	}
	return reopenOnly(errors.Join(errs...))
}
