package collector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// ErrStarting is the state before the first attempt to open a session; it wraps gpu.ErrOpening.
var ErrStarting = fmt.Errorf("%w: no session has been opened yet", gpu.ErrOpening)

// Options configure a Loop.
type Options struct {
	// Source is where sessions are opened. Required.
	Source Source
	// Plan is what they are opened for. Required.
	Plan *gpu.Plan
	// Attributors say who uses the entities; their labels are joined.
	Attributors []Attributor
	// Derivers make the families that no column shows, in the order of the page.
	Derivers []snapshot.Deriver
	// Publish gets the snapshot of every cycle, on the Loop's goroutine. The snapshot is valid during
	// the call only. Required.
	Publish func(*gpu.Snapshot)
	// Registerer gets the Loop's own series. Required.
	Registerer prometheus.Registerer
	// Log gets a line when something begins or ceases to fail. Nil discards.
	Log *slog.Logger
	// Now is the clock that dates samples, which can be set at any time; nil means time.Now. No wait
	// depends on it.
	Now func() time.Time

	// ReadTimeout is how long a driver call may take before the page says so; 0 means the plan's
	// interval, but 1 s at least and 10 s at most.
	ReadTimeout time.Duration
	// HangLimit is how long a driver call may take before Run gives up with gpu.ErrWedged, since
	// nothing but a new process helps; 0 means 2 minutes.
	HangLimit time.Duration
	// AttributeTimeout is how long an attributor may take; 0 means 2 s. A cycle waits for so long only
	// for the first answer about a topology.
	AttributeTimeout time.Duration
	// CloseTimeout bounds the wait for the driver when Run ends; 0 means 4 s.
	CloseTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pauses between attempts to open a session; 0 means 1 s and
	// 30 s.
	MinBackoff, MaxBackoff time.Duration
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&o.HangLimit, 2*time.Minute)
	set(&o.AttributeTimeout, 2*time.Second)
	set(&o.CloseTimeout, 4*time.Second)
	set(&o.MinBackoff, time.Second)
	set(&o.MaxBackoff, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// readTimeout is ReadTimeout, or the one of the plan's interval.
func (o *Options) readTimeout() time.Duration {
	if o.ReadTimeout > 0 {
		return o.ReadTimeout
	}
	return min(max(o.Plan.Interval, time.Second), 10*time.Second)
}

// A Loop owns the driver: it opens, reads and closes sessions, one call at a time, and publishes a
// snapshot per cycle. Make one with New and call Run once; the other methods may be called from any
// goroutine.
type Loop struct {
	opt     Options
	metrics *metrics
	worker  *worker
	reloads chan reload

	// Owned by Run.
	session      Session
	builder      *snapshot.Builder
	batch        gpu.Batch
	empty        gpu.Snapshot
	attributions []*attribution
	merger       merger
	valid        time.Time // until when the latest page may be served
	owners       []*gpu.Owners
	lastErr      error     // of the previous cycle, so that only changes are logged
	served       time.Time // when the latest page with data was
	late         bool      // the latest Read was

	ready atomic.Bool
	born  time.Time
	// pending is when the driver call under way began, after born, plus 1 ns; 0 for none. Past
	// patience, in ns, it is not healthy.
	pending, patience atomic.Int64
	wedged            atomic.Bool // a call was left behind
}

// New returns a Loop, and publishes the page that says that it is starting. It calls no driver yet.
func New(opt Options) *Loop {
	opt = opt.withDefaults()
	l := &Loop{
		opt:     opt,
		metrics: newMetrics(opt.Registerer),
		worker:  newWorker(),
		reloads: make(chan reload),
		born:    time.Now(),
	}
	l.attribute(opt.Attributors)
	l.publishEmpty(ErrStarting)
	return l
}

// Ready reports whether a first cycle has been published, with or without data.
func (l *Loop) Ready() bool { return l.ready.Load() }

// Healthy returns an error if a driver call has not returned for longer than a page may be served,
// which is the hang limit where a session is being opened, or was left behind. A lost GPU or a
// missing driver is not a reason to restart the process, hence no error.
func (l *Loop) Healthy() error {
	if l.wedged.Load() {
		return gpu.ErrWedged
	}
	since := l.pending.Load()
	if since == 0 {
		return nil
	}
	if d := time.Since(l.born.Add(time.Duration(since))); d >= time.Duration(l.patience.Load()) {
		return fmt.Errorf("%w for %v", gpu.ErrWedged, d.Round(time.Second))
	}
	return nil
}

// Run collects until ctx is done, and then returns nil once every handle is closed. It returns an
// error that wraps gpu.ErrWedged if a driver call does not return.
func (l *Loop) Run(ctx context.Context) error {
	defer l.worker.stop()
	cause, backoff := causeStart, l.opt.MinBackoff
	for ctx.Err() == nil {
		err := l.open(ctx, cause)
		if l.isFinal(ctx, err) {
			return l.end(ctx, err)
		}
		served := false
		if err == nil {
			if served, cause, err = l.serve(ctx); err != nil {
				return l.end(ctx, err)
			}
		} else {
			l.fail(stageOpen, err)
		}
		if served {
			backoff = l.opt.MinBackoff
			continue
		}
		// It does not open, or opens and its first read fails: do not spin.
		if cause = l.pause(ctx, backoff, cause); cause == causeReload {
			backoff = l.opt.MinBackoff
		} else {
			backoff = min(2*backoff, l.opt.MaxBackoff)
		}
	}
	return l.end(ctx, nil)
}

// isFinal reports whether err ends Run: the driver is wedged or ctx is done.
func (l *Loop) isFinal(ctx context.Context, err error) bool {
	return errors.Is(err, gpu.ErrWedged) || ctx.Err() != nil
}

// end closes the session, if the driver still answers.
func (l *Loop) end(ctx context.Context, err error) error {
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	return l.close(ctx)
}

// open opens a session and makes its builder.
func (l *Loop) open(ctx context.Context, cause string) error {
	session, err := l.connect(ctx, l.opt.Source, l.opt.Plan)
	if err != nil {
		return err
	}
	l.adopt(session, cause)
	return nil
}

func (l *Loop) adopt(session Session, cause string) {
	l.session = session
	l.builder = snapshot.NewBuilder(session.Topology(), l.opt.Plan, l.opt.Derivers)
	l.batch.RequestProcesses = processRows(session, l.opt.Plan)
	l.metrics.sessions.WithLabelValues(cause).Inc()
	t := session.Topology()
	l.metrics.describe(t)
	l.opt.Log.Info("Session opened", "cause", cause, "source", t.Source,
		"driver", t.Driver, "library", t.Library, "entities", len(t.Devices))
	for _, e := range l.opt.Plan.Missing(t.Devices) {
		l.opt.Log.Warn("A selected device does not exist", "device", e.String())
	}
}

// processRows returns of which rows of a session processes are requested.
func processRows(s Session, plan *gpu.Plan) []bool {
	if !plan.Processes {
		return nil
	}
	return s.Topology().ProcessRows()
}

// connect opens a session on the worker.
func (l *Loop) connect(ctx context.Context, source Source, plan *gpu.Plan) (session Session, err error) {
	err = l.callOpen(ctx, func(ctx context.Context) error {
		opened, err := source.Open(ctx, plan)
		if err != nil {
			return err
		}
		session = opened
		return nil
	})
	if err != nil { // also of a call that is left behind, and may yet write to session
		return nil, err
	}
	return session, nil
}

// serve reads the open session on every tick until it ends. It returns whether there was a cycle
// with data, and why the next session is to be opened; or an error that ends Run.
func (l *Loop) serve(ctx context.Context) (served bool, cause string, err error) {
	ticker := time.NewTicker(l.opt.Plan.Interval)
	defer ticker.Stop()
	var phase phase
	for {
		began, begin := time.Now(), l.opt.Now()
		err := l.cycle(ctx)
		if l.isFinal(ctx, err) {
			return served, "", err
		}
		served = served || l.lastErr == nil
		if err == nil {
			interval := l.opt.Plan.Interval
			if next := phase.next(interval, ageOf(&l.batch, l.opt.Plan, begin)); next < interval {
				ticker.Reset(max(next-time.Since(began), time.Millisecond))
			}
			var final error
			if err, final = l.awaitCycle(ctx, ticker); final != nil {
				return served, "", final
			}
		}
		if err == nil {
			continue
		}
		if cause, err = l.endSession(ctx, err); l.isFinal(ctx, err) {
			return served, "", err
		}
		return served, cause, nil
	}
}

// awaitCycle waits until the next cycle is due. It returns why the session is over, nil while it is
// not, and an error that ends Run.
func (l *Loop) awaitCycle(ctx context.Context, ticker *time.Ticker) (over, final error) {
	interval := l.opt.Plan.Interval
	for {
		what, err := l.await(ctx, ticker.C, nil)
		if err != nil || ctx.Err() != nil {
			return nil, cmp.Or(err, ctx.Err())
		}
		switch what {
		case ticked:
			ticker.Reset(interval) // it may have been a shorter one
			return nil, nil
		case sessionOver:
			return l.session.Err(), nil
		case reloaded:
			if interval != l.opt.Plan.Interval {
				interval = l.opt.Plan.Interval
				ticker.Reset(interval)
			}
		}
	}
}

// endSession closes a session that is over because of reason, and returns the cause of the next
// one. The old session closes before the next one opens: the driver must be released. After a
// change of the topology the page keeps its last content until then; what is lost is gone at once.
func (l *Loop) endSession(ctx context.Context, reason error) (cause string, err error) {
	l.opt.Log.Warn("Session ended", "error", reason)
	cause = causeTopology
	if !errors.Is(reason, gpu.ErrTopology) {
		cause = causeLost
		if l.lastErr == nil {
			l.fail(stageRead, reason)
		}
	}
	return cause, l.close(ctx)
}

// cycle reads once and publishes what came of it. It returns an error only if the session is over,
// or Run is.
func (l *Loop) cycle(ctx context.Context) error {
	began, begin := time.Now(), l.opt.Now()
	l.requestOwners(ctx)
	l.batch.Reset()
	readErr := l.call(ctx, func(ctx context.Context) error { return l.session.Read(ctx, &l.batch) })
	if errors.Is(readErr, gpu.ErrWedged) {
		return readErr
	}
	select {
	case <-l.session.Done():
		l.countEvents(begin) // the last events of a GPU count
		return l.session.Err()
	default:
	}
	if took := time.Since(began); took < l.opt.readTimeout() {
		l.late = false
	} else if !l.late {
		l.late = true
		l.opt.Log.Warn("The driver answers late", "after", took.Round(time.Millisecond))
	}
	if readErr != nil {
		l.countEvents(begin)
		l.fail(stageRead, readErr)
		if errors.Is(readErr, gpu.ErrLost) {
			return readErr
		}
		return nil
	}

	l.publishBatch(ctx, began, begin)
	return nil
}

func (l *Loop) requestOwners(ctx context.Context) {
	for _, a := range l.attributions {
		a.request(ctx, l.session.Topology())
	}
}

// publishBatch publishes what the batch says. A panic fails this cycle alone.
func (l *Loop) publishBatch(ctx context.Context, began, begin time.Time) {
	err := recovered(func() error {
		l.serveBatch(ctx, began, begin)
		return nil
	})
	if err != nil {
		l.fail(stagePublish, err)
	}
}

func (l *Loop) serveBatch(ctx context.Context, began, begin time.Time) {
	r := l.reading(snapshot.Served, &l.batch, begin)
	l.owners = l.owners[:0]
	for _, a := range l.attributions {
		l.owners = append(l.owners, a.answer(ctx, l.session.Topology()))
	}
	r.Owners = l.merger.merge(l.owners)
	snap := l.builder.Build(r)
	l.metrics.succeeds()
	l.metrics.lastSuccess.Set(float64(time.Now().UnixNano()) / 1e9)
	l.metrics.duration.Set(time.Since(began).Seconds())
	l.metrics.dropped.WithLabelValues(snapshot.DroppedStale).Add(float64(l.builder.Stale))
	l.metrics.dropped.WithLabelValues(snapshot.DroppedRange).Add(float64(l.builder.OutOfRange))
	l.publish(snap)
	l.served = time.Now()
	l.ready.Store(true)
	if l.lastErr != nil {
		l.opt.Log.Info("Collection works")
		l.lastErr = nil
	}
}

// countEvents lets the events of the batch count while nothing else of it is served.
func (l *Loop) countEvents(begin time.Time) {
	l.builder.Build(l.reading(snapshot.Final, &l.batch, begin))
}

// reading is what a Read that began at begin has found by now.
func (l *Loop) reading(kind snapshot.Kind, b *gpu.Batch, begin time.Time) snapshot.Reading {
	return snapshot.Reading{Kind: kind, Batch: b, Begin: begin, Now: l.opt.Now(), Uptime: time.Since(l.born)}
}

// finalRead reads the session once more before it is closed: the engine does not report later what
// it has not reported by then.
func (l *Loop) finalRead(ctx context.Context) error {
	l.batch.Reset()
	if !needsFinalRead(l.opt.Plan) {
		return nil
	}
	begin := l.opt.Now()
	// The call goes on though ctx is done, for half of the time that Run then waits: the close has the
	// other half.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opt.readTimeout())
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		half := time.NewTimer(l.opt.CloseTimeout / 2)
		defer half.Stop()
		select {
		case <-half.C:
			cancel()
		case <-last.Done():
		}
	})()
	err := l.call(ctx, func(context.Context) error {
		_ = l.session.Read(last, &l.batch) // it closes anyway
		return nil
	})
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	l.countEvents(begin)
	return nil
}

// needsFinalRead reports whether what happened since the latest Read is counted later.
func needsFinalRead(plan *gpu.Plan) bool {
	return slices.ContainsFunc(plan.Derived, func(d gpu.Derived) bool { return d.Field >= 0 })
}

// pause waits before the next attempt to open, and publishes on every interval why there is no
// data. A reload ends the pause, since it may well be what was missing.
func (l *Loop) pause(ctx context.Context, d time.Duration, cause string) string {
	timer := time.NewTimer(d)
	defer timer.Stop()
	ticker := time.NewTicker(l.opt.Plan.Interval)
	defer ticker.Stop()
	for {
		switch what, _ := l.await(ctx, ticker.C, timer.C); what {
		case ticked:
			l.publishEmpty(cmp.Or(l.lastErr, ErrStarting))
		case reloaded:
			return causeReload
		case expired, canceled:
			return cause
		}
	}
}

func (l *Loop) replace(c Change) {
	l.opt.Source = c.Source
	l.opt.Plan, l.opt.Derivers, l.opt.Attributors = c.Plan, c.Derivers, c.Attributors
	l.attribute(c.Attributors)
}

// change returns what the options say as a change of nothing.
func (o *Options) change() Change {
	return Change{Source: o.Source, Plan: o.Plan, Attributors: o.Attributors, Derivers: o.Derivers}
}

// swap opens and reads a session for the change, publishes what it says, and closes the one before.
// On an error everything stays. No event is lost between the two: what both report, the Derivers
// count once.
func (l *Loop) swap(ctx context.Context, from Source, c Change) error {
	next, err := l.connect(ctx, from, c.Plan)
	if err != nil {
		return fmt.Errorf("open the new session: %w", err)
	}
	if err := l.finalRead(ctx); err != nil {
		return err
	}
	began, begin := time.Now(), l.opt.Now()
	l.batch.Reset()
	l.batch.RequestProcesses = processRows(next, c.Plan)
	err = l.call(ctx, func(ctx context.Context) error { return next.Read(ctx, &l.batch) })
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	if err != nil {
		l.batch.RequestProcesses = processRows(l.session, l.opt.Plan)
		return fmt.Errorf("read the new session: %w", errors.Join(err, l.closeSession(ctx, next)))
	}
	old := l.session
	l.replace(c)
	l.adopt(next, causeReload)
	l.requestOwners(ctx)
	l.publishBatch(ctx, began, begin)
	err = l.closeSession(ctx, old)
	if l.isFinal(ctx, err) {
		return err
	}
	if err != nil {
		l.opt.Log.Warn("The session before the reload did not close cleanly", "error", err)
	}
	return nil
}

// close closes the session if there is one.
func (l *Loop) close(ctx context.Context) error {
	if l.session == nil {
		return nil
	}
	if err := l.finalRead(ctx); err != nil {
		return err
	}
	session := l.session
	l.session, l.builder = nil, nil
	return l.closeSession(ctx, session)
}

func (l *Loop) closeSession(ctx context.Context, session Session) error {
	return l.call(ctx, func(context.Context) error { return session.Close() })
}
