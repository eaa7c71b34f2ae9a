package events

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Options configure a Log.
type Options struct {
	// XIDWindow and ClockEventsWindow are the lengths of the windows of
	// DCGM_EXP_XID_ERRORS_COUNT and DCGM_EXP_CLOCK_EVENTS_COUNT; 0 means 5 minutes.
	XIDWindow, ClockEventsWindow time.Duration
	// KernelLog reports XIDs beside the engine; nil where nothing does.
	KernelLog KernelLog
	// Kept is what an earlier process saved; nil where nothing was.
	Kept *statefile.State
	// Save gets what the next process is to be given as Kept, every statefile.Interval at most and on
	// Flush, on the goroutine of the caller. Nil where nothing is kept.
	Save func(*statefile.State)
	// Registerer gets the Log's own series. Required.
	Registerer prometheus.Registerer
}

// A Log derives the families of events: the windows, the totals, and the gauge of the last XID. It
// outlives sessions: an XID does not vanish because the GPU was partitioned in another way.
type Log struct {
	windows *eventLog
	totals  *tally
	save    func(*statefile.State)
	saved   time.Time // when the totals were last handed to save
}

// New returns a Log that goes on from what was kept.
func New(opt Options) *Log {
	unplaced := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dcgm_exporter_xids_unplaced_total",
		Help: "XIDs of the kernel's log of GPUs that the exporter does not watch.",
	})
	opt.Registerer.MustRegister(unplaced)
	orDefault := func(d time.Duration) time.Duration {
		if d <= 0 {
			return 5 * time.Minute
		}
		return d
	}
	l := &Log{totals: newTally(opt.KernelLog, unplaced.Inc, opt.Kept), save: opt.Save}
	l.windows = newEventLog(orDefault(opt.XIDWindow), orDefault(opt.ClockEventsWindow), l.totals)
	return l
}

// Bind implements snapshot.Deriver.
func (l *Log) Bind(t *gpu.Topology, plan *gpu.Plan) { l.windows.bind(t, plan) }

// Prepare implements snapshot.Deriver.
func (l *Log) Prepare(*gpu.Batch) {}

// Derive implements snapshot.Deriver.
func (l *Log) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Kind == snapshot.Overlapping {
		l.windows.echo(c.Begin, func() { l.add(c) })
	} else {
		l.add(c)
	}
	l.windows.restore(c)
	list = l.windows.families(list, c.Now)
	if c.Kind == snapshot.Overlapping {
		return list // the first Served cycle counts them
	}
	list = l.totals.step(list, c)
	if l.save != nil && l.totals.changed && time.Since(l.saved) >= statefile.Interval {
		l.Flush()
	}
	return list
}

func (l *Log) add(c *snapshot.Cycle) {
	l.windows.begin()
	for i := range c.Batch.Samples {
		if s := &c.Batch.Samples[i]; c.Plan.Fields[s.Field].Events && c.Plausible(s) {
			l.windows.add(s, c.Now)
		}
	}
}

// Unavailable implements snapshot.Deriver.
func (l *Log) Unavailable(list []gpu.FieldHealth, c *snapshot.Cycle) []gpu.FieldHealth {
	for i := range c.Plan.Derived {
		if d := &c.Plan.Derived[i]; d.Field < 0 && made(d.Name) {
			list = append(list, gpu.FieldHealth{Field: d.Name, Row: gpu.AllRows, Reason: gpu.Reason(gpu.ErrNotSupported)})
		}
	}
	return list
}

// made reports whether a family is one of the Log's.
func made(name string) bool {
	switch name {
	case catalog.XIDErrorsCount, catalog.XIDErrorsTotal, catalog.XIDLastSeen,
		catalog.ClockEventsCount, catalog.ClockEventsTotal, catalog.ClockEventSeconds:
		return true
	}
	return false
}

// Flush saves what has changed. Call it when the last cycle is over.
func (l *Log) Flush() {
	if l.save == nil || !l.totals.changed {
		return
	}
	l.save(l.totals.state())
	l.totals.changed, l.saved = false, time.Now()
}
