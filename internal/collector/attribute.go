package collector

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// attribution keeps what one Attributor said last. The Loop owns it; the
// Attributor itself runs on a goroutine of its own, at most one at a time, so
// that one that hangs delays nothing and piles up nothing.
type attribution struct {
	attributor Attributor
	running    chan attributed // nil while none is under way

	owners   *gpu.Owners
	topology *gpu.Topology
	at       time.Time
	failing  bool
}

type attributed struct {
	owners   *gpu.Owners
	topology *gpu.Topology
	err      error
	took     time.Duration
}

// start asks the attributor about t, unless it still works on an earlier
// question.
func (a *attribution) start(ctx context.Context, t *gpu.Topology) {
	select {
	case <-a.running: // the late answer to an earlier question
		a.running = nil
	default:
	}
	if a.running != nil {
		return
	}
	answer := make(chan attributed, 1)
	a.running = answer
	go func() {
		begin := time.Now()
		owners, err := a.attributor.Attribute(ctx, t)
		answer <- attributed{owners: owners, topology: t, err: err, took: time.Since(begin)}
	}()
}

// finish waits for the answer until ctx is done and returns the owners to
// serve for t: the answer's, else the last good ones for as long as they are
// no older than keep, else nil.
func (a *attribution) finish(ctx context.Context, t *gpu.Topology, keep time.Duration, m *metrics, log *slog.Logger) *gpu.Owners {
	name := a.attributor.Name()
	var err error
	select {
	case got := <-a.running:
		a.running = nil
		m.attributeFor.WithLabelValues(name).Set(got.took.Seconds())
		if err = got.err; err == nil && got.topology == t {
			a.owners, a.topology, a.at = got.owners, t, time.Now()
		}
	case <-ctx.Done():
		err = gpu.ErrTimeout
	}
	if err != nil {
		m.attribution.WithLabelValues(name).Set(0)
		m.failures.WithLabelValues(stageAttribute, gpu.Reason(err)).Inc()
		if !a.failing {
			log.Warn("Attribution failed; series keep the last known owners for a bounded time",
				"attributor", name, "keep", keep, "error", err)
		}
	} else {
		m.attribution.WithLabelValues(name).Set(1)
		if a.failing {
			log.Info("Attribution works again", "attributor", name)
		}
	}
	a.failing = err != nil
	if a.topology != t || time.Since(a.at) > keep {
		return nil
	}
	return a.owners
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
