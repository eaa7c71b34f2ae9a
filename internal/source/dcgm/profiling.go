package dcgm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// retryRefused is how long a watch that the engine refuses for now waits for the next try, and how
// far apart two renewals of a stale profiling watch are at least. For other reasons than another
// profiler the waits grow, up to maxRetryFactor times as long.
const (
	retryRefused   = time.Minute
	maxRetryFactor = 16
)

// staleIntervals is how many of its intervals a profiling watch may go without a new value while
// others have some. The first value takes two readings.
const staleIntervals = 3

var errPaused = fmt.Errorf("dcgm: %w: profiling is paused", gpu.ErrUnavailable)

// profilingState is what a session knows of the profiling of its engine.
type profilingState struct {
	pauses *pauses
	paused bool // the profiling fields are not read
	// ordered: this session had the engine pause, and counts in pauses.
	ordered bool
	others  time.Time // when a watch of other fields last had a new value
}

// A refusedWatch is a watch that the engine refuses for now: another profiler has the counters, it
// has no room, or it did not answer. Or it is a profiling watch that is not requested during a
// pause.
type refusedWatch struct {
	rows, fields []int
	sampling
	err     error
	unknown bool // whether the GPU has the fields: the engine did not say
	wait    time.Duration
	next    time.Time // not to be tried before
}

// pauses counts, per engine, the sessions of this process that have paused its profiling. Two
// sessions overlap during a reload: the pause is to last until both are closed, since it is one for
// all clients of the engine.
type pauses struct {
	mu sync.Mutex
	by map[string]int
}

// add counts a session in or out, and returns how many are left.
func (p *pauses) add(engine string, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == nil {
		p.by = map[string]int{}
	}
	p.by[engine] += n
	return p.by[engine]
}

// PauseProfiling stops the profiling of the engine, for all its clients, until ResumeProfiling or
// Close. Read then says gpu.ErrUnavailable of the profiling fields. To pause again changes nothing.
// The error wraps gpu.ErrVersion where libdcgm has no such call.
func (s *Session) PauseProfiling(ctx context.Context) error {
	if s.prof.paused {
		return nil
	}
	if err := s.orderable(ctx); err != nil {
		return err
	}
	if err := s.orderPause(); err != nil {
		return s.failedOrder(err)
	}
	s.prof.paused = true
	return nil
}

// orderPause has the engine pause.
func (s *Session) orderPause() error {
	if err := s.engine.pauseProfiling(); err != nil {
		return err
	}
	s.prof.ordered = true
	s.prof.pauses.add(s.addr.String(), 1)
	return nil
}

// beginPaused pauses before anything is watched, where the plan says so: a watch would take the
// counters from the program that they were left to. An engine that cannot pause is watched without
// them all the same.
func (s *Session) beginPaused() error {
	if !s.plan.ProfilingPaused {
		return nil
	}
	s.prof.paused = true
	err := s.orderPause()
	if err == nil || s.isOver(err) {
		return err
	}
	s.log.Warn("The engine does not pause profiling; its fields are not watched", "error", s.withVersions(err))
	return nil
}

// ResumeProfiling ends what PauseProfiling began. Samples of before are not reported any more. It
// also ends a pause that another program left at the engine, as a process that was killed does.
func (s *Session) ResumeProfiling(ctx context.Context) error {
	left := slices.ContainsFunc(s.refused, func(h refusedWatch) bool { return hasCode(h.err, codePaused) })
	if !s.prof.paused && !left {
		return nil
	}
	if err := s.orderable(ctx); err != nil {
		return err
	}
	now := time.Now()
	for _, w := range s.watches {
		if !w.profiling {
			continue
		}
		if err := s.forget(w); err != nil {
			return s.failedOrder(err)
		}
		w.advanced = now
	}
	if s.prof.ordered || left {
		if err := s.engine.resumeProfiling(); err != nil {
			return s.failedOrder(err)
		}
	}
	if s.prof.ordered {
		s.prof.pauses.add(s.addr.String(), -1)
	}
	s.prof.paused, s.prof.ordered = false, false
	for i := range s.refused {
		if s.refused[i].profiling {
			s.refused[i].next = time.Time{}
		}
	}
	return nil
}

// orderable reports why the engine cannot be given an order.
func (s *Session) orderable(ctx context.Context) error {
	if s.closed {
		return fmt.Errorf("dcgm: %w: the session is closed", gpu.ErrUnavailable)
	}
	if err := s.Err(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("dcgm: %w", err)
	}
	return nil
}

func (s *Session) failedOrder(err error) error {
	if s.isOver(err) || s.isForgotten(err) {
		return s.End(s.lostError(err))
	}
	return fmt.Errorf("dcgm: %w", s.withVersions(err))
}

// forget makes Read skip the samples that the engine has of a watch by now.
func (s *Session) forget(w *watch) error {
	r, err := s.engine.latest(w.group.handle, w.handle)
	if err != nil {
		return err
	}
	s.each(r, nil, func(row, f int, x *sample) {
		if c := s.slot(row, f); c.watch == w {
			w.after = max(w.after, x.at)
			c.at, c.date = 0, 0
		}
	})
	w.from = max(w.from, w.after+1)
	return nil
}

// leaveProfiling undoes a pause when the session closes, unless the session that follows has paused
// as well.
func (s *Session) leaveProfiling(engineGone bool) error {
	if !s.prof.ordered {
		return nil
	}
	s.prof.paused, s.prof.ordered = false, false
	if left := s.prof.pauses.add(s.addr.String(), -1); left > 0 || engineGone {
		return nil
	}
	return s.engine.resumeProfiling()
}

// isInUse reports whether an engine refuses a profiling watch only as long as another profiler has
// the counters.
func isInUse(err error) bool {
	return hasCode(err, codeInUse) || hasCode(err, codeProfilingLibrary) || hasCode(err, codePaused)
}

func hasCode(err error, code int) bool {
	var r *resultError
	return errors.As(err, &r) && r.code == code
}

// addRefused adds a refused watch, which retryRefused tries again. It is unknown whether the GPUs
// have the fields where the engine did not say.
func (s *Session) addRefused(rows, fields []int, key sampling, err error, unknown bool) {
	s.log.Warn("Fields are not watched for now", "field", s.plan.Fields[fields[0]].Name, "fields", len(fields),
		"entities", len(rows), "error", err)
	s.refused = append(s.refused, refusedWatch{rows: slices.Clone(rows), fields: slices.Clone(fields), sampling: key, err: err,
		unknown: unknown, wait: s.retry, next: time.Now().Add(s.retry)})
}

// retryRefused tries what was refused and is due. A field that the engine refuses for another
// reason costs itself alone. After an error only another session helps.
func (s *Session) retryRefused(now time.Time) error {
	due := func(h refusedWatch) bool { return !now.Before(h.next) && !(h.profiling && s.prof.paused) }
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

// retryOne tries one refused watch, which is added again if it is refused as before.
func (s *Session) retryOne(h refusedWatch, now time.Time) error {
	var err error
	if h.unknown {
		_, err = s.engine.profiling(s.top.Devices[h.rows[0]].GPU)
	} else {
		err = s.tryWatch(h.rows, h.fields, h.sampling)
	}
	switch {
	case err == nil && h.unknown, isFinal(err) && h.unknown:
		return s.watchCapable(h.rows, h.fields, h.sampling)
	case err == nil:
		s.log.Info("Fields are watched again", "field", s.plan.Fields[h.fields[0]].Name, "fields", len(h.fields), "entities", len(h.rows))
		return nil
	case s.isOver(err) || s.isForgotten(err):
		return err
	case isFinal(err) && !isInUse(err):
		return s.watchChunks(h.rows, h.fields, h.sampling) // some of it may be watched by now: only a new session knows
	}
	if !isInUse(err) {
		h.wait = min(2*h.wait, maxRetryFactor*s.retry)
	}
	h.err, h.next = s.withVersions(err), now.Add(h.wait)
	s.refused = append(s.refused, h)
	return nil
}

// failRefused makes faults of what is refused.
func (s *Session) failRefused(b *gpu.Batch) {
	for _, h := range s.refused {
		err := h.err
		if h.profiling && s.prof.paused {
			err = errPaused
		}
		failAll(b, h.rows, h.fields, err)
	}
}

// follow notes whether a watch had a new value in this Read. A fault says why there is none, which
// a new watch would not change.
func (s *Session) follow(w *watch, now time.Time) {
	if !w.profiling {
		if w.latest > w.newest {
			w.newest, s.prof.others = w.latest, now
		}
		return
	}
	if w.valued > w.newest || w.faults {
		w.newest, w.advanced = max(w.newest, w.valued), now
	}
}

// renewStale watches the profiling fields that have had no new value for too long, while others
// had: the engine can lose its profiler without a word. Only a lost engine is an error.
func (s *Session) renewStale(now time.Time) error {
	p := &s.prof
	if p.paused {
		return nil
	}
	var failed []*watch
	renewed := 0
	for _, w := range s.watches {
		stale := w.profiling && p.others.Sub(w.advanced) > staleIntervals*w.interval && now.Sub(w.renewed) >= s.retry
		if !stale || !slices.ContainsFunc(w.group.rows, s.isRead) {
			continue
		}
		w.renewed, w.advanced = now, now
		err := s.unwatch(w)
		if err == nil {
			err = s.startWatch(w.group, w.handle, w.sampling)
		}
		switch {
		case err == nil:
			renewed++
		case s.isOver(err) || s.isForgotten(err):
			return err
		default:
			s.addRefused(w.group.rows, w.fields, w.sampling, s.withVersions(err), false)
			failed = append(failed, w)
		}
	}
	if renewed > 0 {
		s.log.Warn("Profiling fields had no new values and are watched again", "watches", renewed)
	}
	var errs []error
	s.arranged = s.arranged && len(failed) == 0
	for _, w := range failed {
		s.watches = slices.DeleteFunc(s.watches, func(x *watch) bool { return x == w })
		errs = append(errs, s.engine.destroyFieldGroup(w.handle))
	}
	return s.onlyOver(errors.Join(errs...))
}

// isRead reports whether a row is not lost in this Read.
func (s *Session) isRead(row int) bool { return !s.lost[row] }
