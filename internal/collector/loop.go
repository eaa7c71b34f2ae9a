// Package collector runs the collection cycle and owns the driver.
//
// Its Loop opens a Session of a Source and reads it on every tick, while the Attributors find the owners of the GPUs.
// It has a snapshot.Builder make a gpu.Snapshot of both, and publishes it. After a reload, a hotplug, a MIG repartition
// or the loss of an engine, it closes the Session and opens another.
//
// The Loop calls the driver from one goroutine at a time. It does not render pages or serve requests.
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

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// ErrStarting is the state before the first attempt to open a session. It wraps gpu.ErrOpening.
var ErrStarting = fmt.Errorf("%w: no session has been opened yet", gpu.ErrOpening)

// Settings say what a Loop collects. A reload replaces them. Derivers that stay keep their state.
type Settings struct {
	Source      Source             // opens the sessions; required
	Plan        *gpu.Plan          // what the sessions read; required
	Attributors []Attributor       // find the owners; their answers are merged
	Derivers    []snapshot.Deriver // add families, in the order of the page
}

// Options configure a Loop.
type Options struct {
	Settings
	// Publish receives the snapshot of every cycle, on the Loop's goroutine. Required.
	Publish    func(*gpu.Snapshot)
	Registerer prometheus.Registerer // registers the Loop's own metrics; required
	Log        *slog.Logger          // nil discards
	// Now returns the time for sample timestamps; nil means time.Now. The clock may be set at any time, because no wait
	// depends on it.
	Now func() time.Time

	// ReadTimeout is how long a driver call may take before the page reports a timeout. 0 means the plan's interval,
	// limited to 1 s to 10 s.
	ReadTimeout time.Duration
	// HangLimit is how long a driver call may take before Run returns gpu.ErrWedged; 0 means 2 minutes.
	HangLimit time.Duration
	// MaxBackoff bounds the pauses between attempts to open a session; 0 means 30 s.
	MaxBackoff time.Duration
}

const (
	minBackoff   = time.Second     // the first pause between attempts to open a session
	closeTimeout = 4 * time.Second // how long Run waits for the driver when it ends
	minValid     = 5 * time.Second // minimum validity of a page; a busy machine must not look stalled
)

// readTimeout returns ReadTimeout, or its default.
func (o *Options) readTimeout() time.Duration {
	if o.ReadTimeout > 0 {
		return o.ReadTimeout
	}
	return min(max(o.Plan.ReadInterval(), time.Second), 10*time.Second)
}

// maxAge returns how old a page may get while the driver does not answer.
func (o *Options) maxAge() time.Duration { return snapshot.MaxAgeIntervals * o.Plan.ReadInterval() }

// Loop opens, reads and closes sessions, one driver call at a time, and publishes a snapshot per cycle. Create one with
// New and call Run once. The other methods are safe for concurrent use.
type Loop struct {
	opt     Options
	metrics *metrics
	reloads chan reload
	retries chan struct{}

	// The fields below are used only by Run's goroutine.
	session       Session // nil if none is open
	builder       *snapshot.Builder
	request       gpu.ReadRequest
	batch         gpu.Batch // result of the latest Read
	start, readAt time.Time // when it began: by the monotonic clock, and by Options.Now
	attributions  []*attribution
	owners        merger
	hadData       bool      // a page with data was published since the latest attempt to open a session
	failure       error     // why the latest page has no data; nil if it has data, or before the first failure
	served        time.Time // when the latest page was published; zero if it has no data
	valid         time.Time // when the latest page expires
	late          bool      // the latest Read exceeded its timeout
	empty         int       // number of consecutive cycles in which no GPU had a value
	devices       map[string]deviceState

	started time.Time
	ready   atomic.Bool
	wedged  atomic.Bool // a driver call was abandoned
}

// New returns a Loop and publishes a page that says that it is starting. It does not call the driver.
func New(opt Options) *Loop {
	opt.HangLimit = cmp.Or(opt.HangLimit, 2*time.Minute)
	opt.MaxBackoff = cmp.Or(opt.MaxBackoff, 30*time.Second)
	opt.Log = cmp.Or(opt.Log, slog.New(slog.DiscardHandler))
	if opt.Now == nil {
		opt.Now = time.Now
	}
	l := &Loop{
		opt: opt, metrics: newMetrics(opt.Registerer), reloads: make(chan reload), retries: make(chan struct{}, 1),
		devices: map[string]deviceState{}, started: time.Now(),
	}
	l.use(opt.Settings)
	l.publishEmpty(ErrStarting)
	return l
}

// Ready reports whether a first cycle has been published, with or without data.
func (l *Loop) Ready() bool { return l.ready.Load() }

// Healthy returns gpu.ErrWedged if a driver call took longer than the hang limit. A lost GPU or a missing driver is no
// reason to restart the process.
func (l *Loop) Healthy() error {
	if l.wedged.Load() {
		return gpu.ErrWedged
	}
	return nil
}

// Run collects until ctx is done, closes every handle and returns nil. It returns an error that wraps gpu.ErrWedged if
// a driver call does not return.
func (l *Loop) Run(ctx context.Context) error {
	cause, backoff := causeStart, minBackoff
	for ctx.Err() == nil {
		l.hadData = false
		session, err := l.open(ctx, l.opt.Source, l.opt.Plan)
		if err == nil {
			l.adopt(session, cause)
			cause, err = l.endSession(ctx, l.readUntilEnd(ctx))
		} else if !isFinal(ctx, err) {
			l.fail(stageOpen, err)
		}
		switch {
		case errors.Is(err, gpu.ErrWedged):
			return err
		case l.hadData:
			backoff = minBackoff
		case ctx.Err() == nil: // the session did not open, or failed its first read
			var soon bool
			cause, soon = l.pause(ctx, backoff, cause)
			backoff = min(2*backoff, l.opt.MaxBackoff)
			if soon {
				backoff = minBackoff
			}
		}
	}
	return l.close(ctx)
}

// isFinal reports whether err ends Run: the driver is wedged or ctx is done.
func isFinal(ctx context.Context, err error) bool {
	return errors.Is(err, gpu.ErrWedged) || ctx.Err() != nil
}

// open opens a session. Engines and drivers take far longer to start than to answer a read. The context ends shortly
// before the hang limit, so that an open that heeds its context is retried.
func (l *Loop) open(ctx context.Context, source Source, plan *gpu.Plan) (Session, error) {
	var session Session
	limit := l.opt.HangLimit - l.opt.HangLimit/8
	err := l.callFor(ctx, limit, l.opt.readTimeout(), l.publishOpening, func(ctx context.Context) (err error) {
		session, err = source.Open(ctx, plan)
		return err
	})
	if err != nil { // the abandoned call may still write to session
		return nil, err
	}
	return session, nil
}

// adopt makes session the current one.
func (l *Loop) adopt(session Session, cause string) {
	t := session.Topology()
	l.session = session
	l.builder = snapshot.NewBuilder(t, l.opt.Plan, l.opt.Derivers)
	l.request = *firstRequest(t, l.opt.Plan)
	l.metrics.sessions.WithLabelValues(cause).Inc()
	l.metrics.source.Set(gauge.Series{Value: 1, Labels: []string{t.Source, t.Driver, t.Library}})
	l.opt.Log.Info("Session opened", "cause", cause, "source", t.Source,
		"driver", t.Driver, "library", t.Library, "entities", len(t.Devices))
	for _, e := range l.opt.Plan.Missing(t.Devices) {
		l.opt.Log.Warn("Selected device does not exist",
			"error", fmt.Sprintf("couldn't find requested %s ID '%d'", e.Kind, e.ID))
	}
}

// firstRequest returns the request for the first read of a session.
func firstRequest(t *gpu.Topology, plan *gpu.Plan) *gpu.ReadRequest {
	r := &gpu.ReadRequest{}
	if plan.Processes {
		r.Processes = t.ProcessRows()
	}
	return r
}

// readUntilEnd reads the session on every tick until it ends. It returns why it ended, or an error that ends Run.
func (l *Loop) readUntilEnd(ctx context.Context) error {
	ticker := time.NewTicker(l.opt.Plan.ReadInterval())
	defer ticker.Stop()
	var phase phase
	for ctx.Err() == nil {
		if err := l.cycle(ctx); err != nil {
			return err
		}
		interval := l.opt.Plan.ReadInterval()
		if next := phase.next(interval, ageOf(&l.batch, l.opt.Plan, l.readAt)); next < interval {
			ticker.Reset(max(next-time.Since(l.start), time.Millisecond))
		}
		if err := l.awaitCycle(ctx, ticker); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// awaitCycle waits until the next cycle is due and applies reloads meanwhile. An error ends the session, or Run.
func (l *Loop) awaitCycle(ctx context.Context, ticker *time.Ticker) error {
	interval := l.opt.Plan.ReadInterval()
	for {
		select {
		case <-ticker.C:
			ticker.Reset(interval) // the last period may have been shorter
			return nil
		case <-l.session.Done():
			return l.session.Err()
		case r := <-l.reloads:
			err := l.swap(ctx, r)
			r.reply <- err
			if isFinal(ctx, err) {
				return cmp.Or(err, ctx.Err())
			}
			if interval != l.opt.Plan.ReadInterval() {
				interval = l.opt.Plan.ReadInterval()
				ticker.Reset(interval)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endSession closes a session that is over and returns the cause of the next one. The next session opens only after
// that, because the driver must be released. After a topology change, the page is kept until the next one. After a
// loss, it is replaced at once. A reason that ends Run is returned as err.
func (l *Loop) endSession(ctx context.Context, reason error) (cause string, err error) {
	if isFinal(ctx, reason) {
		return "", reason
	}
	l.opt.Log.Warn("Session ended", "error", reason)
	cause = causeTopology
	if !errors.Is(reason, gpu.ErrTopology) {
		cause = causeLost
		l.fail(stageRead, reason)
	}
	return cause, l.close(ctx)
}

// cycle reads once and publishes the result. An error ends the session, or Run.
func (l *Loop) cycle(ctx context.Context) error {
	for _, a := range l.attributions {
		a.request(ctx, l.session.Topology())
	}
	err := l.read(ctx, l.session, &l.request)
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	if over := l.session.Err(); over != nil {
		l.countEvents() // count the last events of a lost GPU
		return over
	}
	if took := time.Since(l.start); took < l.opt.readTimeout() {
		l.late = false
	} else if !l.late {
		l.late = true
		l.opt.Log.Warn("Driver read timed out", "after", took.Round(time.Millisecond))
	}
	if err == nil {
		l.publishBatch(ctx)
		return nil
	}
	l.countEvents()
	if errors.Is(err, gpu.ErrLost) {
		return err
	}
	l.fail(stageRead, err)
	return nil
}

// read reads a session into the batch.
func (l *Loop) read(ctx context.Context, s Session, request *gpu.ReadRequest) error {
	l.batch.Reset()
	l.start, l.readAt = time.Now(), l.opt.Now()
	return l.call(ctx, func(ctx context.Context) error { return s.Read(ctx, *request, &l.batch) })
}

// reading returns the batch as input of the builder. Now is the time of this call: the wait for the owners that follows
// does not change the time of the page.
func (l *Loop) reading() snapshot.Reading {
	return snapshot.Reading{Batch: &l.batch, Begin: l.readAt, Now: l.opt.Now(), Elapsed: time.Since(l.started)}
}

// countEvents counts the events of the batch without serving its samples.
func (l *Loop) countEvents() {
	r := l.reading()
	r.Final = true
	l.builder.Build(r)
}

// publishBatch publishes a snapshot of the batch with its owners. A panic fails only this cycle.
func (l *Loop) publishBatch(ctx context.Context) {
	err := recovered(func() error {
		r := l.reading()
		r.Owners = l.currentOwners(ctx, l.session.Topology())
		snap := l.builder.Build(r)
		l.request.Contradicted = l.builder.Contradicted
		l.reportValues(noValues(snap, l.opt.Plan))
		l.logDevices(snap)
		l.metrics.duration.Set(time.Since(l.start).Seconds())
		for reason, n := range l.builder.Dropped {
			l.metrics.dropped.WithLabelValues(reason).Add(float64(n))
		}
		l.publish(snap)
		l.hadData, l.served = true, time.Now()
		if l.failure != nil {
			l.opt.Log.Info("Collection recovered")
			l.failure = nil
		}
		return nil
	})
	if err != nil {
		l.fail(stagePublish, err)
	}
}

// reportValues updates the success metrics of a cycle that was served. A non-nil err says why no GPU has a value. It is
// logged in the second such cycle, because an engine may need two samples for its first value.
func (l *Loop) reportValues(err error) {
	if err == nil {
		l.metrics.succeeds()
		l.metrics.lastSuccess.Set(float64(time.Now().UnixNano()) / 1e9)
		if l.empty > 1 {
			l.opt.Log.Info("GPUs have values again")
		}
		l.empty = 0
		return
	}
	l.metrics.fails(gpu.Reason(err))
	l.metrics.failures.WithLabelValues(stageRead, gpu.Reason(err)).Inc()
	if l.empty++; l.empty == 2 {
		l.opt.Log.Warn("No GPU has a value", "reason", gpu.Reason(err), "error", err)
	}
}

// fail counts a failure and publishes a page without data that gives the reason.
func (l *Loop) fail(stage string, err error) {
	l.metrics.failures.WithLabelValues(stage, gpu.Reason(err)).Inc()
	changed := gpu.Reason(l.failure) != gpu.Reason(err)
	l.failure = err
	l.publishEmpty(err)
	if changed {
		about := append([]any{"stage", stage, "reason", gpu.Reason(err)}, withStack(err)...)
		l.opt.Log.Warn("No data collected", about...)
	}
}

// publishEmpty publishes a page without data that gives the reason.
func (l *Loop) publishEmpty(err error) {
	l.served = time.Time{}
	l.metrics.fails(gpu.Reason(err))
	l.publish(&gpu.Snapshot{Time: time.Now(), Health: gpu.Health{Err: err}})
}

// publish publishes a snapshot. It counts a failure if the previous page had already expired. The Loop publishes on
// every interval, or reports a failure one read timeout later.
func (l *Loop) publish(s *gpu.Snapshot) {
	s.ValidFor = max(minValid, l.opt.maxAge()+2*l.opt.readTimeout())
	l.opt.Publish(s)
	now := time.Now()
	if beyond := now.Sub(l.valid); !l.valid.IsZero() && beyond > 0 {
		l.metrics.failures.WithLabelValues(stagePublish, gpu.Reason(gpu.ErrStalled)).Inc()
		l.opt.Log.Error("Collection stalled: the page expired before the next one was published",
			"expired_for", beyond.Round(time.Millisecond))
	}
	l.valid = now.Add(s.ValidFor)
	if !errors.Is(s.Health.Err, gpu.ErrOpening) {
		l.ready.Store(true)
	}
}

// pause waits before the next attempt to open a session. On every interval it publishes why there is no data. A reload
// and Retry end it early. It returns the cause of the next session.
func (l *Loop) pause(ctx context.Context, d time.Duration, cause string) (next string, soon bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	ticker := time.NewTicker(l.opt.Plan.ReadInterval())
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.publishEmpty(cmp.Or(l.failure, ErrStarting))
		case r := <-l.reloads:
			r.reply <- nil
			if !r.reopen {
				l.use(r.settings)
				return causeReload, true
			}
		case <-l.retries:
			return cause, true
		case <-timer.C:
			return cause, false
		case <-ctx.Done():
			return cause, false
		}
	}
}

// finalRead reads once more before the session is closed, for events that no later session reports.
func (l *Loop) finalRead(ctx context.Context) error {
	l.batch.Reset()
	if !slices.ContainsFunc(l.opt.Plan.Derived, func(d gpu.Derived) bool { return d.HasField }) {
		return nil // no requested family counts events
	}
	l.readAt = l.opt.Now()
	// Once ctx is done, the read gets half of the time that Run still waits. The close gets the other half.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opt.readTimeout())
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(closeTimeout/2, cancel) })()
	err := l.call(ctx, func(context.Context) error {
		_ = l.session.Read(last, l.request, &l.batch) // ignore the error: the session is closed anyway
		return nil
	})
	if errors.Is(err, gpu.ErrWedged) {
		return err
	}
	l.countEvents()
	return nil
}

// close reads the session once more for its last events, and closes it. Without a session it does nothing.
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
