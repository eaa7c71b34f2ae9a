package devicelog

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const (
	// longThrottle is for how long clocks are limited before a line says so: a workload that begins
	// makes heat for a while on every machine.
	longThrottle = 5 * time.Minute
	// throttleGap is how long a throttle may pause and still be the same one.
	throttleGap = time.Minute
	// xidQuiet is for how long an XID of one code and GPU is not written again: a storm is one line.
	xidQuiet = 10 * time.Minute
	// maxGPUs bounds what is remembered of GPUs that are gone.
	maxGPUs = 256
)

// A Log writes the lines. Make it with New. It is for one goroutine, the collector's.
type Log struct {
	log *slog.Logger

	bound   bool // once
	gpus    map[string]*state
	reasons int // the index of the clock event reasons in the plan, -1 where they are not read
}

// state is what is known of a GPU, by its UUID.
type state struct {
	label     uint32 // the gpu label
	present   bool
	layout    string // MIG profiles, "" for none
	downSince time.Time
	reason    string // why it is not read, "" while it is
	throttle  throttle
	xids      map[int64]xid
}

type throttle struct {
	since, last time.Time // zero for none
	events      string
	written     bool
}

// An xid is what was reported of one code.
type xid struct {
	written time.Time // the last line
	more    int       // reports since
}

// New returns a Log that writes to log.
func New(log *slog.Logger) *Log { return &Log{log: log, gpus: map[string]*state{}, reasons: -1} }

// Bind compares the devices of a session with those of the one before.
func (l *Log) Bind(t *gpu.Topology, plan *gpu.Plan) {
	l.reasons = slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == catalog.ClocksEventReasons })
	layouts := layoutsOf(t)
	present := map[string]bool{}
	for row := range t.Devices {
		d := &t.Devices[row]
		if d.Entity.Kind != gpu.KindGPU || d.UUID == "" {
			continue
		}
		present[d.UUID] = true
		g := l.gpus[d.UUID]
		if g == nil {
			if len(l.gpus) >= maxGPUs {
				l.forget()
			}
			g = &state{layout: layouts[row], xids: map[int64]xid{}}
			l.gpus[d.UUID] = g
		}
		g.label = d.GPU
		if l.bound && !g.present {
			l.log.Info("A GPU is there", l.facts(d.UUID, g, "pci_bus_id", d.PCIBusID, "model", d.Model)...)
		}
		// The instances of a GPU that is not read cannot be read either: its layout is not known.
		if l.bound && g.present && g.layout != layouts[row] && g.reason == "" {
			l.log.Info("The MIG layout of a GPU changed", l.facts(d.UUID, g, "was", words(g.layout), "is", words(layouts[row]))...)
		}
		g.present, g.layout = true, layouts[row]
	}
	for uuid, g := range l.gpus {
		if g.present && !present[uuid] {
			g.present, g.reason, g.throttle = false, "", throttle{}
			l.log.Warn("A GPU is gone: the driver no longer lists it", l.facts(uuid, g)...)
		}
	}
	l.bound = true
}

// forget drops a GPU that is gone.
func (l *Log) forget() {
	for uuid, g := range l.gpus {
		if !g.present {
			delete(l.gpus, uuid)
			return
		}
	}
}

func (l *Log) facts(uuid string, g *state, more ...any) []any {
	return append([]any{"gpu", g.label, "uuid", uuid}, more...)
}

// layoutsOf returns the MIG profiles of each GPU, by row.
func layoutsOf(t *gpu.Topology) map[int]string {
	profiles := map[int][]string{}
	for row := range t.Devices {
		if t.Devices[row].Entity.Kind != gpu.KindGPUInstance {
			continue
		}
		if up := t.ParentRow(row); up >= 0 {
			profiles[up] = append(profiles[up], t.Devices[row].Profile)
		}
	}
	layouts := make(map[int]string, len(profiles))
	for row, list := range profiles {
		slices.Sort(list)
		layouts[row] = strings.Join(list, " ")
	}
	return layouts
}

func words(layout string) string {
	if layout == "" {
		return "no instances"
	}
	return layout
}

// Prepare does nothing: the reads of others are enough.
func (l *Log) Prepare(*gpu.Batch) {}

// Unavailable adds nothing: no family is the Log's.
func (l *Log) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth { return list }

// Derive writes what changed since the cycle before, and adds no family.
func (l *Log) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Kind != snapshot.Served {
		return list
	}
	for row := range c.Topology.Devices {
		d := &c.Topology.Devices[row]
		if d.Entity.Kind != gpu.KindGPU {
			continue
		}
		g := l.gpus[d.UUID]
		if g == nil {
			continue
		}
		l.writeDown(d.UUID, g, c.Down(row), c.Now)
		if l.reasons >= 0 {
			mask, _ := c.Value(l.reasons, row).Int64()
			l.writeThrottle(d.UUID, g, holding(mask), c.Now)
		}
	}
	return list
}

func (l *Log) writeDown(uuid string, g *state, down error, now time.Time) {
	reason := gpu.Reason(down)
	switch {
	case reason == g.reason:
	case reason == "":
		l.log.Info("A GPU is read again", l.facts(uuid, g, "after", now.Sub(g.downSince).Round(time.Second), "reason", g.reason)...)
	case g.reason == "":
		g.downSince = now
		l.log.Warn("A GPU is not read; the others are", l.facts(uuid, g, "reason", reason, "error", down)...)
	default:
		l.log.Warn("A GPU is not read for another reason than before", l.facts(uuid, g, "reason", reason, "was", g.reason, "error", down)...)
	}
	g.reason = reason
}

// holding returns the events of a mask that hold clocks down by heat or by the supply of power. A
// power cap is not among them: under full load it is the usual state.
func holding(mask int64) string {
	var events []string
	for e := range catalog.ClockEvents(mask) {
		switch e.Name {
		case "hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake":
			events = append(events, e.Name)
		}
	}
	return strings.Join(events, " ")
}

func (l *Log) writeThrottle(uuid string, g *state, events string, now time.Time) {
	t := &g.throttle
	switch {
	case events != "" && t.since.IsZero():
		*t = throttle{since: now, last: now, events: events}
	case events != "":
		t.last, t.events = now, events
		if !t.written && now.Sub(t.since) >= longThrottle {
			t.written = true
			l.log.Warn("A GPU has been throttled for long", l.facts(uuid, g, "since", t.since.UTC().Format(time.RFC3339), "clock_events", events)...)
		}
	case !t.since.IsZero() && now.Sub(t.last) >= throttleGap:
		if t.written {
			l.log.Info("A GPU is no longer throttled", l.facts(uuid, g, "after", t.last.Sub(t.since).Round(time.Second), "clock_events", t.events)...)
		}
		*t = throttle{}
	}
}

// XID writes a report of an XID, and is for events.Options.Reported. In a storm it writes one line
// per code and GPU in ten minutes, which says how many there were.
func (l *Log) XID(uuid string, code int64, owner []gpu.Label, now time.Time) {
	g := l.gpus[uuid]
	if g == nil {
		return
	}
	x := g.xids[code]
	x.more++
	if x.written.IsZero() || now.Sub(x.written) >= xidQuiet {
		facts := l.facts(uuid, g, "xid", code, "meaning", catalog.XIDMessage(code))
		if x.more > 1 {
			facts = append(facts, "reports", x.more)
		}
		for _, label := range owner {
			if label.Name == "namespace" || label.Name == "pod" || label.Name == "container" || label.Name == "hpc_job" {
				facts = append(facts, label.Name, label.Value)
			}
		}
		l.log.Warn("A GPU reported an XID", facts...)
		x = xid{written: now}
	}
	g.xids[code] = x
}
