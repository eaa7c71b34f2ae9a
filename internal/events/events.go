package events

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Label values of dcgm_exporter_events_dropped_total.
const (
	droppedXID    = "xid"    // an XID
	droppedWindow = "window" // an event that left its window early
	droppedGPU    = "gpu"    // the counts of a GPU that is gone

	reasonRange = "out_of_range"
	reasonFull  = "full"
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

// A KernelLog returns the XIDs and SXIDs in the kernel log. While the log can be read, XIDs come only from it.
type KernelLog interface {
	// Drain appends the XIDs and then the SXIDs since the previous call, each oldest first. Those logged before the log
	// was opened are marked as Past.
	Drain([]gpu.XID) []gpu.XID
	// Since returns when reading of the log began. It is zero if the log is not being read.
	Since() time.Time
}

// A Log derives the metric families of XIDs and clock events. It counts each XID of its source once, even if the source
// repeats it. Times are Unix nanoseconds of this machine's clock.
//
// Sources date an XID differently, by about a second. When the source changes, an XID of that moment can be counted
// twice.
type Log struct {
	opt      Options
	unplaced prometheus.Counter // XIDs in the kernel log of GPUs that are not watched
	dropped  *prometheus.CounterVec

	// These fields outlive sessions.
	entities map[gpu.Identity]*entityEvents
	sxids    tally
	past     []gpu.XID // XIDs in the kernel log of GPUs that are not known yet
	spans    [sourceKernel + 1]span
	logSince time.Time // when reading of the kernel log began; zero if it is not being read
	life     span      // from the start of the process to the latest cycle
	now      int64     // time of the latest cycle
	sessions int       // number of sessions
	epoch    uint32    // incremented whenever reports may be repeated
	repeated bool      // the next Read may repeat XIDs of earlier ones
	logged   []gpu.XID // reused for the results of Drain

	// These fields belong to the session.
	topology       *gpu.Topology
	source         xidSource       // the driver of the session
	rows           []*entityEvents // by row
	unreported     []bool          // by row: no source reports its XIDs
	xids           int             // the field of XIDs; -1 for none
	reasons        int             // the field of clock event reasons if their totals are requested; otherwise -1
	every          []time.Duration // by field: interval at which its samples count in the window; 0 if it has no window
	owned, earlier *gpu.Owners     // the owners of the latest cycle, and those of the cycle before
	assigned       bool            // the owners are known
}

// New returns a Log that has counted nothing.
func New(opt Options) *Log {
	opt.XIDWindow = cmp.Or(max(opt.XIDWindow, 0), 5*time.Minute)
	opt.ClockEventsWindow = cmp.Or(max(opt.ClockEventsWindow, 0), 5*time.Minute)
	auto := promauto.With(opt.Registerer)
	l := &Log{
		opt: opt, entities: map[gpu.Identity]*entityEvents{}, xids: -1, reasons: -1,
		unplaced: auto.NewCounter(prometheus.CounterOpts{
			Name: "dcgm_exporter_xids_unplaced_total",
			Help: "XIDs in the kernel log that belong to GPUs that the exporter does not watch.",
		}),
		dropped: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_events_dropped_total",
			Help: "Events dropped, by kind and reason.",
		}, []string{"what", "reason"}),
	}
	l.dropped.WithLabelValues(droppedXID, reasonRange)
	l.dropped.WithLabelValues(droppedWindow, reasonFull)
	l.dropped.WithLabelValues(droppedGPU, reasonFull)
	if !opt.Start.IsZero() {
		l.life.from = opt.Start.UnixNano()
	}
	return l
}

// Bind implements snapshot.Deriver.
func (l *Log) Bind(t *gpu.Topology, plan *gpu.Plan) {
	l.bindXIDs(t)
	l.xids = slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == catalog.XIDErrors })
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
		l.assign(c.Owners, c.Begin.UnixNano())
	}
	l.countXIDs(c)
	for i := range c.Batch.Trails {
		s := &c.Batch.Trails[i]
		if every := l.every[s.Field]; (every > 0 || s.Field == l.reasons) && c.Plausible(s) {
			l.countReasons(c, s, every)
		}
	}
	if c.Final {
		return list
	}
	return l.families(list, c)
}

// countReasons counts a sample of clock event reasons. every is 0 if no window is requested.
func (l *Log) countReasons(c *snapshot.Cycle, s *gpu.Sample, every time.Duration) {
	mask, ok := s.Value.Int64()
	if !ok || s.Time > l.now+int64(maxAhead) {
		return
	}
	r := &l.rows[s.Row].reasons
	if every > 0 {
		n := r.addToWindow(mask, s.Time, l.now, every, l.opt.ClockEventsWindow)
		l.dropped.WithLabelValues(droppedWindow, reasonFull).Add(float64(n))
	}
	if s.Field == l.reasons && c.Topology.Devices[s.Row].Entity.Kind == gpu.KindGPU {
		limit := int64(snapshot.MaxAgeIntervals * max(c.Plan.Interval, c.Plan.IntervalOf(l.reasons)))
		r.add(mask, s.Time, l.now, limit)
	}
}

// Unavailable implements snapshot.Deriver.
func (l *Log) Unavailable(list []gpu.FieldHealth, c *snapshot.Cycle) []gpu.FieldHealth {
	reason := gpu.Reason(gpu.ErrNotSupported)
	for i := range c.Plan.Derived {
		d := &c.Plan.Derived[i]
		if _, ok := derivations[d.Name]; ok && !d.HasField {
			list = append(list, gpu.FieldHealth{Field: d.Name, Row: gpu.AllRows, Reason: reason})
		}
	}
	return list
}
