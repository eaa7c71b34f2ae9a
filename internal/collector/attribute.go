package collector

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// minKeep is how long the latest owners serve at least while an attributor has no
// newer ones: a kubelet that restarts takes some ten seconds.
const minKeep = 30 * time.Second

// maxDelay bounds how long a cycle waits for an attributor that usually answers sooner.
const maxDelay = 100 * time.Millisecond

// attribution keeps what one Attributor said last. The Loop owns it; the
// Attributor itself runs on a goroutine of its own, at most one at a time, so
// that one that hangs delays nothing and piles up nothing.
type attribution struct {
	attributor Attributor
	opt        *Options
	metrics    *metrics

	running chan attributed // nil while none is under way
	asked   time.Time       // when the question under way was asked
	about   *gpu.Topology   // what it is about
	first   *gpu.Topology   // the latest one whose first page waits, or waited, for its owners
	until   time.Time       // when the cycle no longer waits for an answer
	took    time.Duration   // for the latest answer

	owners   *gpu.Owners
	topology *gpu.Topology
	at       time.Time // when owners was asked for
	failing  bool
}

type attributed struct {
	owners *gpu.Owners
	err    error
	took   time.Duration
}

// attribute makes attributors the ones that are asked. Those that were asked before
// keep the question that is under way.
func (l *Loop) attribute(attributors []Attributor) {
	before := l.attributions
	l.attributions = nil
	for _, a := range attributors {
		i := slices.IndexFunc(before, func(b *attribution) bool { return b.attributor == a })
		if i >= 0 {
			l.attributions = append(l.attributions, before[i])
			continue
		}
		l.attributions = append(l.attributions, &attribution{attributor: a, opt: &l.opt, metrics: l.metrics})
	}
}

// ask asks the attributor about t, unless it still works on an earlier question.
func (a *attribution) ask(ctx context.Context, t *gpu.Topology) {
	a.take(t)
	now := time.Now()
	a.until = now
	switch {
	case a.first != t: // the page would have no owners at all
		a.first, a.until = t, now.Add(a.opt.AttributeTimeout)
	case a.running == nil && a.took <= maxDelay:
		a.until = now.Add(min(maxDelay, a.opt.Plan.Interval/10))
	}
	if a.running == nil {
		a.begin(ctx, t)
	}
}

// begin asks the attributor about t.
func (a *attribution) begin(ctx context.Context, t *gpu.Topology) {
	a.asked, a.about = time.Now(), t
	answer := make(chan attributed, 1)
	a.running = answer
	ctx, cancel := context.WithTimeout(ctx, a.opt.AttributeTimeout)
	go func() {
		defer cancel()
		begin := time.Now()
		var got attributed
		got.err = gpu.Protect(func() (err error) {
			got.owners, err = a.attributor.Attribute(ctx, t)
			return err
		})
		got.took = time.Since(begin)
		answer <- got
	}()
}

// answer returns the owners to serve for t: the latest, for as long as they are no
// older than two intervals and minKeep, else nil. It waits only where a new answer
// is likely to come soon. An answer about the topology before is of no use: the
// attributor is asked about t at once, and has the rest of the time.
func (a *attribution) answer(ctx context.Context, t *gpu.Topology) *gpu.Owners {
	if a.running != nil && a.wait(t) && a.about != t {
		a.begin(ctx, t)
		a.wait(t)
	}
	if a.running != nil && time.Since(a.asked) >= a.opt.AttributeTimeout {
		a.note(gpu.ErrTimeout)
	}
	if a.topology != t || time.Since(a.at) > a.keep() {
		return nil
	}
	return a.owners
}

func (a *attribution) keep() time.Duration { return max(2*a.opt.Plan.Interval, minKeep) }

// wait takes the answer if it is there or comes in time, and reports whether it did.
func (a *attribution) wait(t *gpu.Topology) bool {
	if a.take(t) {
		return true
	}
	left := time.Until(a.until)
	if left <= 0 {
		return false
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case got := <-a.running:
		a.accept(got, t)
		return true
	case <-timer.C:
		return false
	}
}

// take takes the answer if it is there, and reports whether it was.
func (a *attribution) take(t *gpu.Topology) bool {
	select {
	case got := <-a.running: // never, while none is under way
		a.accept(got, t)
		return true
	default:
		return false
	}
}

// accept notes an answer. One about another topology than t says nothing of its rows.
func (a *attribution) accept(got attributed, t *gpu.Topology) {
	a.running, a.took = nil, got.took
	a.metrics.attributeFor.WithLabelValues(a.attributor.Name()).Set(got.took.Seconds())
	a.note(got.err)
	if got.err == nil && a.about == t {
		a.owners, a.topology, a.at = got.owners, t, a.asked
	}
}

// note counts how a question went.
func (a *attribution) note(err error) {
	name := a.attributor.Name()
	switch {
	case err != nil:
		a.metrics.attribution.WithLabelValues(name).Set(0)
		a.metrics.failures.WithLabelValues(stageAttribute, gpu.Reason(err)).Inc()
		if !a.failing {
			a.opt.Log.Warn("Attribution failed; series keep the last known owners for a bounded time",
				append([]any{"attributor", name, "keep", a.keep()}, withStack(err)...)...)
		}
	default:
		a.metrics.attribution.WithLabelValues(name).Set(1)
		if a.failing {
			a.opt.Log.Info("Attribution works again", "attributor", name)
		}
	}
	a.failing = err != nil
}

// merger joins the owners of several attributors. Each result is made once
// per change: equal inputs give the same pointer.
type merger struct {
	inputs []*gpu.Owners
	merged *gpu.Owners
	count  uint64
}

func (m *merger) merge(inputs []*gpu.Owners) *gpu.Owners {
	same := len(inputs) == len(m.inputs)
	for i := 0; same && i < len(inputs); i++ {
		same = inputs[i] == m.inputs[i]
	}
	if same {
		return m.merged
	}
	m.inputs = append(m.inputs[:0], inputs...)
	m.count++
	m.merged = nil
	for _, in := range inputs {
		if in == nil {
			continue
		}
		if m.merged == nil {
			m.merged = &gpu.Owners{Generation: m.count}
		}
		for row, labels := range in.Labels {
			if len(labels) == 0 {
				continue
			}
			for len(m.merged.Labels) <= row {
				m.merged.Labels = append(m.merged.Labels, nil)
			}
			// A fresh slice: what an attributor returned is never written to.
			m.merged.Labels[row] = append(append([]gpu.Label(nil), m.merged.Labels[row]...), labels...)
		}
		for row := range in.Uses {
			use := &in.Uses[row]
			if len(use.Owners) == 0 {
				continue
			}
			for len(m.merged.Uses) <= row {
				m.merged.Uses = append(m.merged.Uses, gpu.Use{})
			}
			into := &m.merged.Uses[row]
			into.Sharing = cmp.Or(into.Sharing, use.Sharing)
			into.Replicas = max(into.Replicas, use.Replicas)
			into.Owners = slices.Concat(into.Owners, use.Owners)
		}
	}
	return m.merged
}
