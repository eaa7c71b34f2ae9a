package collector

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// minValidity is the minimum time for which the last known owners are used while an attributor fails. A kubelet restart
// takes about ten seconds.
const minValidity = 30 * time.Second

// attributeTimeout is how long an attributor may take. Only the first page of a topology waits that long.
const attributeTimeout = 2 * time.Second

// maxDelay bounds how long a cycle waits for an attributor that usually answers faster.
const maxDelay = 100 * time.Millisecond

// attribution holds the latest answer of one Attributor. Each request runs on its own goroutine, at most one at a time,
// so a hanging attributor delays no cycle.
type attribution struct {
	attributor Attributor
	opt        *Options
	metrics    *metrics

	running chan attributed // the pending request; nil if there is none
	since   time.Time       // when the pending request began
	about   *gpu.Topology   // the topology of the pending request
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

// attributions holds the attributors in use, and merges their answers.
type attributions struct {
	opt     *Options
	metrics *metrics
	list    []*attribution
	merger  merger
	answers []*gpu.Owners // reused between cycles
}

// use switches to the given attributors. Attributors that were already in use keep their request and owners.
func (as *attributions) use(attributors []Attributor) {
	before := as.list
	as.list = nil
	for _, a := range attributors {
		i := slices.IndexFunc(before, func(b *attribution) bool { return b.attributor == a })
		if i >= 0 {
			as.list = append(as.list, before[i])
			continue
		}
		as.list = append(as.list, &attribution{attributor: a, opt: as.opt, metrics: as.metrics})
	}
}

// request requests the owners of t from every attributor.
func (as *attributions) request(ctx context.Context, t *gpu.Topology) {
	for _, a := range as.list {
		a.request(ctx, t)
	}
}

// owners returns the merged owners of t.
func (as *attributions) owners(ctx context.Context, t *gpu.Topology) *gpu.Owners {
	as.answers = as.answers[:0]
	for _, a := range as.list {
		as.answers = append(as.answers, a.answer(ctx, t))
	}
	return as.merger.merge(as.answers)
}

// request requests the owners of t, unless a request is already pending.
func (a *attribution) request(ctx context.Context, t *gpu.Topology) {
	now := time.Now()
	a.accept(t, now)
	a.until = now
	switch {
	case a.first != t: // without an answer, the page would have no owners at all
		a.first, a.until = t, now.Add(attributeTimeout)
	case a.running == nil && a.took <= maxDelay:
		a.until = now.Add(min(maxDelay, a.opt.Plan.Interval/10))
	}
	if a.running == nil {
		a.begin(ctx, t)
	}
}

// begin starts a request for the owners of t.
func (a *attribution) begin(ctx context.Context, t *gpu.Topology) {
	a.since, a.about = time.Now(), t
	answer := make(chan attributed, 1)
	a.running = answer
	ctx, cancel := context.WithTimeout(ctx, attributeTimeout)
	go func() {
		defer cancel()
		begin := time.Now()
		var got attributed
		got.err = recovered(func() (err error) {
			got.owners, err = a.attributor.Attribute(ctx, t)
			return err
		})
		got.took = time.Since(begin)
		answer <- got
	}()
}

// answer returns the latest owners of t, or nil if they have expired. It waits briefly if an answer is likely to arrive
// soon. If the answer is about the previous topology, it requests the owners of t in the remaining time.
func (a *attribution) answer(ctx context.Context, t *gpu.Topology) *gpu.Owners {
	if a.running != nil && a.accept(t, a.until) && a.about != t {
		a.begin(ctx, t)
		a.accept(t, a.until)
	}
	if a.running != nil && time.Since(a.since) >= attributeTimeout {
		a.note(gpu.ErrTimeout)
	}
	if a.topology != t || time.Since(a.at) > a.validity() {
		return nil
	}
	return a.owners
}

func (a *attribution) validity() time.Duration { return max(2*a.opt.Plan.Interval, minValidity) }

// accept stores an answer that arrives before the deadline and reports whether there was one. Owners of a topology
// other than t are discarded.
func (a *attribution) accept(t *gpu.Topology, until time.Time) bool {
	var got attributed
	select {
	case got = <-a.running: // a nil channel blocks forever: nothing is pending
	default:
		if !time.Now().Before(until) {
			return false
		}
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		select {
		case got = <-a.running:
		case <-timer.C:
			return false
		}
	}
	a.running, a.took = nil, got.took
	a.metrics.attributeFor.WithLabelValues(a.attributor.Name()).Set(got.took.Seconds())
	a.note(got.err)
	if got.err == nil && a.about == t {
		a.owners, a.topology, a.at = got.owners, t, a.since
	}
	return true
}

// note records the result of a request.
func (a *attribution) note(err error) {
	name := a.attributor.Name()
	switch {
	case err != nil:
		a.metrics.attribution.WithLabelValues(name).Set(0)
		a.metrics.failures.WithLabelValues(stageAttribute, gpu.Reason(err)).Inc()
		if !a.failing {
			a.opt.Log.Warn("Attribution failed; keeping the last known owners for a limited time",
				append([]any{"attributor", name, "keep", a.validity()}, withStack(err)...)...)
		}
	default:
		a.metrics.attribution.WithLabelValues(name).Set(1)
		if a.failing {
			a.opt.Log.Info("Attribution recovered", "attributor", name)
		}
	}
	a.failing = err != nil
}

// merger merges the owners that several attributors report. Equal inputs yield the same pointer.
type merger struct {
	inputs []*gpu.Owners
	merged *gpu.Owners
}

func (m *merger) merge(inputs []*gpu.Owners) *gpu.Owners {
	if slices.Equal(inputs, m.inputs) {
		return m.merged
	}
	m.inputs = append(m.inputs[:0], inputs...)
	m.merged = nil
	for _, in := range inputs {
		if in == nil {
			continue
		}
		if m.merged == nil {
			m.merged = &gpu.Owners{Incomplete: slices.Contains(inputs, nil)}
		}
		m.addLabels(in.Labels)
		m.addUses(in.Uses)
	}
	return m.merged
}

// addLabels and addUses add the report of one attributor. They never modify its slices.
func (m *merger) addLabels(rows [][]gpu.Label) {
	for row, labels := range rows {
		if len(labels) > 0 {
			m.merged.Labels = upTo(m.merged.Labels, row)
			m.merged.Labels[row] = slices.Concat(m.merged.Labels[row], labels)
		}
	}
}

func (m *merger) addUses(uses []gpu.Use) {
	for row := range uses {
		use := &uses[row]
		if len(use.Owners) == 0 && !use.Incomplete {
			continue
		}
		m.merged.Uses = upTo(m.merged.Uses, row)
		into := &m.merged.Uses[row]
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
