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

// retryProfiling is how long a profiling watch that was refused waits for the
// next try, and how far apart two renewals of a stale one are at least.
const retryProfiling = time.Minute

// staleIntervals is how many of its intervals a profiling watch may go without
// a new value while others have some. The first value takes two readings.
const staleIntervals = 3

var errPaused = fmt.Errorf("dcgm: %w: profiling is paused", gpu.ErrUnavailable)

// profilingState is what a session knows of the profiling of its engine.
type profilingState struct {
	pauses *pauses
	every  time.Duration // between tries; see retryProfiling
	paused bool          // the profiling fields are not read
	// ordered: this session had the engine pause, and counts in pauses.
	ordered bool
	held    []heldWatch
	tried   time.Time // the latest try of what is held
	others  time.Time // when a watch of other fields last had a new value
}

// A heldWatch is a profiling watch that the engine refuses for now, since
// another profiler has the counters, or that is not asked for during a pause.
type heldWatch struct {
	rows, fields []int
	sampling
	err error
}

// pauses counts, per engine, the sessions of this process that have paused
// its profiling. Two sessions overlap during a reload: the pause is to last
// until both are closed, since it is one for all clients of the engine.
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

// PauseProfiling stops the profiling of the engine, for all its clients, until
// ResumeProfiling or Close. Read then says gpu.ErrUnavailable of the profiling
// fields. To pause again changes nothing. The error wraps gpu.ErrVersion where
// libdcgm has no such call.
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

// beginPaused pauses before anything is watched, where the plan says so: a
// watch would take the counters from whoever they were left to. An engine that
// cannot pause is watched without them all the same.
func (s *Session) beginPaused() error {
	if !s.plan.ProfilingPaused {
		return nil
	}
	s.prof.paused = true
	err := s.orderPause()
	if err == nil || s.isOver(err) {
		return err
	}
	s.log.Warn("The engine does not pause profiling; its fields are not watched", "error", s.inWords(err))
	return nil
}

// ResumeProfiling ends what PauseProfiling began. Samples of before are not
// reported any more. It also ends a pause that somebody else left at the
// engine, as a process that was killed does.
func (s *Session) ResumeProfiling(ctx context.Context) error {
	left := slices.ContainsFunc(s.prof.held, func(h heldWatch) bool { return hasCode(h.err, codePaused) })
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
	s.prof.tried = time.Time{}
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
		return s.end(s.overInWords(err))
	}
	return fmt.Errorf("dcgm: %w", s.inWords(err))
}

// forget makes Read skip the samples that the engine has of a watch by now.
func (s *Session) forget(w *watch) error {
	if w.every() {
		_, next, err := s.engine.since(w.group.handle, w.handle, w.from)
		if err != nil {
			return err
		}
		w.from = next
		s.every.forget(w)
		return nil
	}
	r, err := s.engine.latest(w.group.handle, w.handle)
	if err != nil {
		return err
	}
	for i := range r.samples {
		w.after = max(w.after, r.samples[i].at)
	}
	return nil
}

// leaveProfiling undoes a pause when the session closes, unless the session
// that follows has paused as well.
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

// isHeld reports whether an engine refuses a profiling watch only as long as
// another profiler has the counters.
func isHeld(err error) bool {
	return hasCode(err, codeInUse) || hasCode(err, codeProfilingLibrary) || hasCode(err, codePaused)
}

func hasCode(err error, code int) bool {
	var r *resultError
	return errors.As(err, &r) && r.code == code
}

// hold keeps a refused watch for another try.
func (s *Session) hold(rows, fields []int, key sampling, err error) {
	s.log.Warn("Profiling fields are not watched for now", "fields", len(fields), "entities", len(rows), "error", err)
	s.prof.held = append(s.prof.held, heldWatch{slices.Clone(rows), slices.Clone(fields), key, err})
	s.prof.tried = time.Now()
}

// retryHeld tries what is held, if it is time. A field that the engine refuses
// for another reason costs itself alone. After an error only another session helps.
func (s *Session) retryHeld(now time.Time) error {
	p := &s.prof
	if p.paused || len(p.held) == 0 || now.Sub(p.tried) < p.every {
		return nil
	}
	p.tried = now
	held := p.held
	p.held = nil
	for i, h := range held {
		err := s.tryWatch(h.rows, h.fields, h.sampling)
		switch {
		case err == nil:
			s.log.Info("Profiling fields are watched again", "fields", len(h.fields), "entities", len(h.rows))
		case s.isOver(err) || s.isForgotten(err):
			p.held = append(p.held, held[i:]...)
			return err
		case isHeld(err) || errors.Is(err, gpu.ErrTimeout):
			h.err = s.inWords(err)
			p.held = append(p.held, h)
		default:
			if err := s.watchChunks(h.rows, h.fields, h.sampling); err != nil {
				return err // some of it may be watched by now: only a new session tells
			}
		}
	}
	return nil
}

// blameHeld makes faults of what is held.
func (s *Session) blameHeld(b *gpu.Batch) {
	for _, h := range s.prof.held {
		err := h.err
		if s.prof.paused {
			err = errPaused
		}
		blame(b, h.rows, h.fields, err)
	}
}

// follow notes whether a watch had a new value in this Read: samples and faults
// are those of the batch that the watch has added. A fault says why there is
// none, which a new watch would not change.
func (s *Session) follow(w *watch, newest int64, samples []gpu.Sample, faults []gpu.Fault, now time.Time) {
	if !w.profiling {
		if newest > w.newest {
			w.newest, s.prof.others = newest, now
		}
		return
	}
	newest = 0
	for i := range samples {
		newest = max(newest, samples[i].Time)
	}
	if newest > w.newest || len(faults) > 0 {
		w.newest, w.advanced = max(w.newest, newest), now
	}
}

// renewStale watches anew the profiling fields that have had no new value for
// too long, while others had: the engine can lose its profiler without a word.
// Only a lost engine is an error.
func (s *Session) renewStale(now time.Time) error {
	p := &s.prof
	if p.paused {
		return nil
	}
	var failed []*watch
	renewed := 0
	for _, w := range s.watches {
		stale := w.profiling && p.others.Sub(w.advanced) > staleIntervals*w.interval && now.Sub(w.renewed) >= p.every
		if !stale || !slices.ContainsFunc(w.group.rows, s.isRead) {
			continue
		}
		w.renewed, w.advanced = now, now
		err := s.engine.unwatch(w.group.handle, w.handle)
		if err == nil {
			err = s.startWatch(w.group, w.handle, w.sampling)
		}
		switch {
		case err == nil:
			renewed++
		case s.isOver(err) || s.isForgotten(err):
			return err
		default:
			s.hold(w.group.rows, w.fields, w.sampling, s.inWords(err))
			failed = append(failed, w)
		}
	}
	if renewed > 0 {
		s.log.Warn("Profiling fields had no new values and are watched anew", "watches", renewed)
	}
	var errs []error
	for _, w := range failed {
		s.watches = slices.DeleteFunc(s.watches, func(x *watch) bool { return x == w })
		errs = append(errs, s.engine.destroyFieldGroup(w.handle))
	}
	return s.onlyOver(errors.Join(errs...))
}

// isRead reports whether a row is not lost in this Read.
func (s *Session) isRead(row int) bool { return !s.lost[row] }
