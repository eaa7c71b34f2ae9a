package events

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Options configure a Log.
type Options struct {
	// XIDWindow and ClockEventsWindow are the lengths of the windows of DCGM_EXP_XID_ERRORS_COUNT and
	// DCGM_EXP_CLOCK_EVENTS_COUNT; 0 means 5 minutes.
	XIDWindow, ClockEventsWindow time.Duration
	// KernelLog reports XIDs beside the engine; nil where nothing does.
	KernelLog KernelLog
	// Registerer gets the Log's own series. Required.
	Registerer prometheus.Registerer
}

// A Log derives the families of events: the windows, the totals, and the gauge of the last XID. It
// outlives sessions: an XID does not vanish because the GPU was partitioned in another way.
type Log struct {
	ledger ledger
	clock  clock

	reasons       int // the field of clock event reasons whose totals are requested; -1 for none
	reasonsWindow time.Duration
	every         []time.Duration // per field, how often its state counts in the window; 0 for fields without

	out    map[string][]gpu.Series
	labels map[int64][]gpu.Label // of the gauge, by XID
}

// New returns a Log.
func New(opt Options) *Log {
	unplaced := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dcgm_exporter_xids_unplaced_total",
		Help: "XIDs of the kernel's log of GPUs that the exporter does not watch.",
	})
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dcgm_exporter_events_dropped_total",
		Help: "What was dropped of events, and why: XIDs, those of a window or that wait for a second witness, the counts of a GPU that is gone.",
	}, []string{"what", "reason"})
	opt.Registerer.MustRegister(unplaced, dropped)
	dropped.WithLabelValues(droppedXID, reasonRange)
	for _, what := range []string{droppedWindow, droppedPair, droppedGPU} {
		dropped.WithLabelValues(what, reasonFull)
	}
	return &Log{
		ledger: ledger{
			log: opt.KernelLog, unplaced: unplaced, dropped: dropped, window: cmp.Or(max(opt.XIDWindow, 0), 5*time.Minute),
			accounts: map[gpu.Identity]*account{}, xid: -1,
		},
		reasons: -1, reasonsWindow: cmp.Or(max(opt.ClockEventsWindow, 0), 5*time.Minute),
		out: map[string][]gpu.Series{}, labels: map[int64][]gpu.Label{},
	}
}

// Bind implements snapshot.Deriver.
func (l *Log) Bind(t *gpu.Topology, plan *gpu.Plan) {
	l.ledger.bind(t, plan)
	l.reasons, l.every = -1, make([]time.Duration, len(plan.Fields))
	for i := range plan.Derived {
		switch d := &plan.Derived[i]; {
		case d.Field < 0:
		case d.Name == catalog.ClockEventsCount:
			l.every[d.Field] = cmp.Or(d.Interval, plan.Interval)
		case d.Name == catalog.ClockEventsTotal, d.Name == catalog.ClockEventSeconds:
			l.reasons = d.Field
		}
	}
}

// Prepare implements snapshot.Deriver.
func (l *Log) Prepare(*gpu.Batch) {}

// Derive implements snapshot.Deriver.
func (l *Log) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	k := &l.clock
	k.observe(c.Begin, c.Now, c.Uptime, pairMemory+2*c.Plan.Interval)
	l.ledger.enter(k)
	if c.Kind == snapshot.Served {
		l.ledger.assign(c.Owners, k)
	}
	l.ledger.count(c, k)
	l.countReasons(c)
	if c.Kind != snapshot.Served {
		return list
	}
	l.setGauge(c)
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
	at := l.clock.of(s.Time)
	if !ok || at > l.clock.now+int64(maxAhead) {
		return
	}
	r := &l.ledger.rows[s.Row].reasons
	if every > 0 {
		if n := r.addToWindow(mask, at, l.clock.now, every, l.reasonsWindow); n > 0 {
			l.ledger.dropped.WithLabelValues(droppedWindow, reasonFull).Add(float64(n))
		}
	}
	if s.Field == l.reasons && c.Topology.Devices[s.Row].Entity.Kind == gpu.KindGPU {
		limit := int64(snapshot.MaxAgeIntervals * max(c.Plan.Interval, c.Plan.IntervalOf(l.reasons)))
		r.add(mask, at, limit)
	}
}

// setGauge serves the last XID for as long as the entity lives, and 0 where XIDs are read and there
// was none.
func (l *Log) setGauge(c *snapshot.Cycle) {
	f := l.ledger.xid
	if f < 0 {
		return
	}
	for row, a := range l.ledger.rows {
		if !c.Plan.Fields[f].Levels.Has(c.Topology.Devices[row].Entity.Kind) || c.Missing(f, row) != "" || c.Down(row) != nil {
			continue
		}
		code := int64(0)
		if n := len(a.xids); n > 0 {
			code = a.xids[n-1].value
		}
		c.SetLabeled(f, row, gpu.Int(code), l.labelsOf(code))
	}
}

// labelsOf returns what the gauge says of an XID beside its code, in the words of the reference.
// There are as many as codes that are believed.
func (l *Log) labelsOf(code int64) []gpu.Label {
	labels, ok := l.labels[code]
	if !ok {
		labels = []gpu.Label{
			{Name: "err_code", Value: strconv.FormatInt(code, 10)},
			{Name: "err_msg", Value: catalog.XIDMessage(code)},
		}
		l.labels[code] = labels
	}
	return labels
}

// Unavailable implements snapshot.Deriver.
func (l *Log) Unavailable(list []gpu.FieldHealth, c *snapshot.Cycle) []gpu.FieldHealth {
	for i := range c.Plan.Derived {
		if d := &c.Plan.Derived[i]; d.Field < 0 && slices.Contains(made(), d.Name) {
			list = append(list, gpu.FieldHealth{Field: d.Name, Row: gpu.AllRows, Reason: gpu.Reason(gpu.ErrNotSupported)})
		}
	}
	return list
}
