package events

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Options configure a Log.
type Options struct {
	// XIDWindow is the window of DCGM_EXP_XID_ERRORS_COUNT, and ClockEventsWindow that of DCGM_EXP_CLOCK_EVENTS_COUNT.
	// Zero means 5 minutes.
	XIDWindow, ClockEventsWindow time.Duration
	// Start is when the process started. Totals do not count XIDs from before. If it is zero, they count all.
	Start time.Time
	// KernelLog is the source of XIDs while it is read; nil for none.
	KernelLog KernelLog
	// LastXIDAsStored shows the last XID where DCGM stores it: on the instance if the XID names one, and not at all if
	// the engine has no sample. Otherwise it is on the GPU, and 0 if there was none.
	LastXIDAsStored bool
	// OwnersOnInfo moves the owners of XIDs to a family of their own, catalog.PodXIDLastSeen.
	OwnersOnInfo bool
	// Registerer registers the Log's own metrics; required.
	Registerer prometheus.Registerer
}

// A Log derives the metric families of XIDs and clock events.
type Log struct {
	xids            xidCounter
	lastXIDAsStored bool
	ownersOnInfo    bool // owners of XIDs are in a family of their own

	reasons       int // the field of clock event reasons whose totals are requested; -1 for none
	reasonsWindow time.Duration
	every         []time.Duration // by field: interval at which its samples count in the window; 0 if it has no window
}

// New returns a Log that has counted nothing.
func New(opt Options) *Log {
	unplaced := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dcgm_exporter_xids_unplaced_total",
		Help: "XIDs in the kernel log that belong to GPUs that the exporter does not watch.",
	})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dcgm_exporter_events_dropped_total",
		Help: "Events dropped, by kind and reason.",
	}, []string{"what", "reason"})
	opt.Registerer.MustRegister(unplaced, dropped)
	dropped.WithLabelValues(droppedXID, reasonRange)
	for _, what := range []string{droppedWindow, droppedGPU} {
		dropped.WithLabelValues(what, reasonFull)
	}
	var life span
	if !opt.Start.IsZero() {
		life.from = opt.Start.UnixNano()
	}
	return &Log{
		xids: xidCounter{
			life: life, log: opt.KernelLog, unplaced: unplaced, dropped: dropped,
			window:   cmp.Or(max(opt.XIDWindow, 0), 5*time.Minute),
			entities: map[gpu.Identity]*entityEvents{}, field: -1,
		},
		lastXIDAsStored: opt.LastXIDAsStored, ownersOnInfo: opt.OwnersOnInfo,
		reasons: -1, reasonsWindow: cmp.Or(max(opt.ClockEventsWindow, 0), 5*time.Minute),
	}
}

// Bind implements snapshot.Deriver.
func (l *Log) Bind(t *gpu.Topology, plan *gpu.Plan) {
	l.xids.bind(t, plan)
	l.reasons, l.every = -1, make([]time.Duration, len(plan.Fields))
	for i := range plan.Derived {
		switch d := &plan.Derived[i]; {
		case !d.HasField:
		case d.Name == catalog.ClockEventsCount:
			l.every[d.Field] = cmp.Or(d.Interval, plan.Interval)
		case d.Name == catalog.ClockEventsTotal, d.Name == catalog.ClockEventSeconds:
			l.reasons = d.Field
		}
	}
}

// Derive implements snapshot.Deriver.
func (l *Log) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if !c.Final {
		l.xids.assign(c.Owners, c.Begin.UnixNano())
	}
	l.xids.count(c)
	l.countReasons(c)
	if c.Final {
		return list
	}
	return l.families(list, c)
}

// countReasons counts the samples of clock event reasons.
func (l *Log) countReasons(c *snapshot.Cycle) {
	for i := range c.Batch.Trails {
		s := &c.Batch.Trails[i]
		if every := l.every[s.Field]; (every > 0 || s.Field == l.reasons) && c.Plausible(s) {
			l.countReason(c, s, every)
		}
	}
}

func (l *Log) countReason(c *snapshot.Cycle, s *gpu.Sample, every time.Duration) {
	mask, ok := s.Value.Int64()
	now := c.Now.UnixNano()
	if !ok || s.Time > now+int64(maxAhead) {
		return
	}
	r := &l.xids.rows[s.Row].reasons
	if every > 0 {
		if n := r.addToWindow(mask, s.Time, now, every, l.reasonsWindow); n > 0 {
			l.xids.dropped.WithLabelValues(droppedWindow, reasonFull).Add(float64(n))
		}
	}
	if s.Field == l.reasons && c.Topology.Devices[s.Row].Entity.Kind == gpu.KindGPU {
		limit := int64(snapshot.MaxAgeIntervals * max(c.Plan.Interval, c.Plan.IntervalOf(l.reasons)))
		r.add(mask, s.Time, now, limit)
	}
}

// Unavailable implements snapshot.Deriver.
func (l *Log) Unavailable(list []gpu.FieldHealth, c *snapshot.Cycle) []gpu.FieldHealth {
	reason := gpu.Reason(gpu.ErrNotSupported)
	for i := range c.Plan.Derived {
		d := &c.Plan.Derived[i]
		if !d.HasField && (slices.Contains(windows, d.Name) || slices.Contains(totals, d.Name)) {
			list = append(list, gpu.FieldHealth{Field: d.Name, Row: gpu.AllRows, Reason: reason})
		}
	}
	return list
}
