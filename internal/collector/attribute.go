package collector

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// minValidity is the minimum time for which the last known owners are used while an attributor fails. A kubelet
	// restart takes about ten seconds.
	minValidity = 30 * time.Second
	// attributeTimeout is how long an attributor may take. Only the first page of a topology waits that long.
	attributeTimeout = 2 * time.Second
	// maxDelay bounds how long a cycle waits for an attributor that usually answers faster.
	maxDelay = 100 * time.Millisecond
)

// attribution holds the latest answer of one Attributor. Each request runs on its own goroutine, at most one at a time,
// so a hanging attributor delays no cycle.
type attribution struct {
	Attributor
	loop *Loop

	pending chan attributed // receives the answer to the latest request; nil once that was accepted
	since   time.Time       // when the latest request began
	about   *gpu.Topology   // the topology of the latest request
	first   *gpu.Topology   // the latest topology whose first page waited for owners
	until   time.Time       // when the cycle stops waiting for an answer
	took    time.Duration   // how long the latest answer took

	owners   *gpu.Owners
	topology *gpu.Topology
	at       time.Time // when the owners were requested
	failing  bool
}

type attributed struct {
	owners *gpu.Owners
	err    error
	took   time.Duration
}

// use makes s the current settings. Attributors that were already in use keep their request and owners.
func (l *Loop) use(s Settings) {
	l.opt.Settings = s
	before := l.attributions
	l.attributions = nil
	for _, attributor := range s.Attributors {
		a := &attribution{Attributor: attributor, loop: l}
		if i := slices.IndexFunc(before, func(b *attribution) bool { return b.Attributor == attributor }); i >= 0 {
			a = before[i]
		}
		l.attributions = append(l.attributions, a)
	}
}

// request requests the owners of t, unless a request is already pending.
func (a *attribution) request(ctx context.Context, t *gpu.Topology) {
	now := time.Now()
	a.accept(t, now)
	a.until = now
	switch {
	case a.first != t: // without an answer, the page would have no owners at all
		a.first, a.until = t, now.Add(attributeTimeout)
	case a.pending == nil && a.took <= maxDelay:
		a.until = now.Add(min(maxDelay, a.loop.opt.Plan.Interval/10))
	}
	if a.pending == nil {
		a.begin(ctx, t)
	}
}

// begin starts a request for the owners of t.
func (a *attribution) begin(ctx context.Context, t *gpu.Topology) {
	answer := make(chan attributed, 1)
	a.pending, a.since, a.about = answer, time.Now(), t
	ctx, cancel := context.WithTimeout(ctx, attributeTimeout)
	go func() {
		defer cancel()
		begin := time.Now()
		var got attributed
		got.err = recovered(func() (err error) {
			got.owners, err = a.Attribute(ctx, t)
			return err
		})
		got.took = time.Since(begin)
		answer <- got
	}()
}

// answer returns the latest owners of t, or nil if they have expired. It waits briefly if an answer is likely to arrive
// soon. If the answer is about the previous topology, it requests the owners of t in the remaining time.
func (a *attribution) answer(ctx context.Context, t *gpu.Topology) *gpu.Owners {
	if a.accept(t, a.until) && a.about != t {
		a.begin(ctx, t)
		a.accept(t, a.until)
	}
	if a.pending != nil && time.Since(a.since) >= attributeTimeout {
		a.note(gpu.ErrTimeout)
	}
	if a.topology != t || time.Since(a.at) > a.validity() {
		return nil
	}
	return a.owners
}

func (a *attribution) validity() time.Duration { return max(2*a.loop.opt.Plan.Interval, minValidity) }

// accept stores the answer to a pending request if it arrives before the deadline. It reports whether it did. Owners of
// a topology other than t are discarded.
func (a *attribution) accept(t *gpu.Topology, until time.Time) bool {
	if a.pending == nil {
		return false
	}
	var got attributed
	select {
	case got = <-a.pending:
	default:
		select {
		case got = <-a.pending:
		case <-time.After(time.Until(until)):
			return false
		}
	}
	a.pending, a.took = nil, got.took
	a.loop.metrics.attributeFor.WithLabelValues(a.Name()).Set(got.took.Seconds())
	a.note(got.err)
	if got.err == nil && a.about == t {
		a.owners, a.topology, a.at = got.owners, t, a.since
	}
	return true
}

// note records the result of a request.
func (a *attribution) note(err error) {
	success, metrics := 1.0, a.loop.metrics
	switch {
	case err != nil:
		success = 0
		metrics.failures.WithLabelValues(stageAttribute, gpu.Reason(err)).Inc()
		if !a.failing {
			a.loop.opt.Log.Warn("Attribution failed; keeping the last known owners for a limited time",
				append(withStack(err), "attributor", a.Name(), "keep", a.validity())...)
		}
	case a.failing:
		a.loop.opt.Log.Info("Attribution recovered", "attributor", a.Name())
	}
	metrics.attribution.WithLabelValues(a.Name()).Set(success)
	a.failing = err != nil
}

// A merger merges the owners that several attributors report. Equal inputs yield the same pointer.
type merger struct {
	answers, inputs []*gpu.Owners // the answers of this cycle, and those that were merged last
	merged          *gpu.Owners
}

// currentOwners returns the merged owners of t.
func (l *Loop) currentOwners(ctx context.Context, t *gpu.Topology) *gpu.Owners {
	m := &l.owners
	m.answers = m.answers[:0]
	for _, a := range l.attributions {
		m.answers = append(m.answers, a.answer(ctx, t))
	}
	if slices.Equal(m.answers, m.inputs) {
		return m.merged
	}
	m.answers, m.inputs, m.merged = m.inputs, m.answers, nil
	for _, in := range m.inputs {
		if in == nil {
			continue
		}
		if m.merged == nil {
			m.merged = &gpu.Owners{Incomplete: slices.Contains(m.inputs, nil)}
		}
		add(m.merged, in)
	}
	return m.merged
}

// add adds the report of one attributor to merged. It never modifies the slices of the report.
func add(merged, report *gpu.Owners) {
	for row, labels := range report.Labels {
		if len(labels) > 0 {
			merged.Labels = upTo(merged.Labels, row)
			merged.Labels[row] = slices.Concat(merged.Labels[row], labels)
		}
	}
	for row := range report.Uses {
		use := &report.Uses[row]
		if len(use.Owners) == 0 && !use.Incomplete {
			continue
		}
		merged.Uses = upTo(merged.Uses, row)
		into := &merged.Uses[row]
		into.Sharing = cmp.Or(into.Sharing, use.Sharing)
		into.Replicas = max(into.Replicas, use.Replicas)
		// Pods take precedence: an incomplete list of jobs does not make a pod's ownership incomplete.
		into.Incomplete = into.Incomplete || use.Incomplete && !into.HasPod()
		into.Owners = slices.Concat(into.Owners, use.Owners)
	}
}

// upTo returns list, extended so that row is a valid index.
func upTo[E any](list []E, row int) []E {
	if missing := row + 1 - len(list); missing > 0 {
		list = append(list, make([]E, missing)...)
	}
	return list
}
