package events

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const (
	// maxEvents is the maximum number of events in the window of one entity. If there are more, the oldest leave early.
	maxEvents = 4096
	// maxLasts is the maximum number of instances of a GPU whose last XIDs are kept, the whole GPU included. A GPU has
	// at most seven instances at a time.
	maxLasts = 16
	// maxGPUs is the maximum number of GPUs, present and absent, whose counts are kept.
	maxGPUs = 256

	// Labels of dcgm_exporter_events_dropped_total.
	droppedXID    = "xid"    // a report
	droppedWindow = "window" // an event that left its window early
	droppedGPU    = "gpu"    // the counts of a GPU that is gone

	reasonRange = "out_of_range"
	reasonFull  = "full"
)

// An xidSource reports XIDs.
type xidSource uint8

const (
	sourceEngine xidSource = iota // DCGM, which repeats its XIDs to every session
	sourceDriver                  // NVML, whose event queue reports each XID once
	sourceKernel                  // the kernel log, which needs no session
)

// A KernelLog reports the XIDs and SXIDs of the kernel log. It is their source while it is read.
type KernelLog interface {
	// Drain appends the XIDs since the previous call, oldest first. Those from before the log was opened are marked as
	// Past.
	Drain([]gpu.XID) []gpu.XID
	// DrainSXIDs appends the SXIDs, like Drain.
	DrainSXIDs([]gpu.SXID) []gpu.SXID
	// Since returns since when the log has been read, or false if it is not read now.
	Since() (time.Time, bool)
}

// An xidEvent is an XID and when it occurred.
type xidEvent struct {
	xid
	at int64 // Unix nanoseconds
}

// entityEvents holds the events of one entity. It outlives sessions.
type entityEvents struct {
	pci     string
	reports [sourceKernel]reports
	window  []xidEvent // oldest first
	last    xidEvent   // the newest; zero for none
	lasts   []xidEvent // the newest of the whole GPU and of each instance, most recently recorded last
	reasons reasons
	owners  owners
	details tally[xidDetail]
	session int // the latest session that had it
}

// A span is the time during which a source was read; zero before the first Read.
type span struct{ from, until int64 }

// extend moves the end of the span to now. If the clock was set back, it moves the beginning back by as much.
func (s *span) extend(now int64) {
	s.from -= max(0, s.until-now)
	s.until = now
}

func (s *span) contains(at int64) bool { return s.from <= at && at <= s.until }

// An xidCounter counts each XID of its source once, even if the source repeats it, and holds the events of all
// entities. Times are Unix nanoseconds of this machine's clock.
//
// Sources date an XID differently, by about a second. When the source changes, an XID of that moment can be counted
// twice.
type xidCounter struct {
	log      KernelLog          // nil for none
	unplaced prometheus.Counter // XIDs of GPUs that are not known
	dropped  *prometheus.CounterVec
	window   time.Duration

	entities map[gpu.Identity]*entityEvents
	spans    [sourceKernel + 1]span
	sessions int       // number of sessions
	source   xidSource // the driver of the session
	opened   bool      // the span of source has begun
	logged   bool      // the kernel log was read in the latest cycle
	epoch    uint32    // incremented whenever reports may be repeated
	repeated bool      // the next Read may repeat XIDs of earlier ones
	now      int64     // time of the latest cycle
	life     span      // of the process

	topology   *gpu.Topology
	rows       []*entityEvents // by row
	unreported []bool          // by row: no source reports its XIDs
	field      int             // index of the XID field in the plan; -1 for none

	owned, earlier *gpu.Owners // owners of the latest cycle, and the ones before them
	assigned       bool
	kernel         []gpu.XID
	past           []gpu.XID // from the kernel log, of GPUs that are not known yet
	kernelSXIDs    []gpu.SXID
	sxids          tally[sxid]
}

// bind prepares for a session. It forgets instances that are gone, and expired windows of entities that were absent,
// such as a GPU that fell off the bus and comes back after a reset.
func (x *xidCounter) bind(t *gpu.Topology, plan *gpu.Plan) {
	x.topology = t
	x.sessions++
	x.repeat()
	before := x.source
	x.source = sourceEngine
	if t.Source == "nvml" {
		x.source = sourceDriver
	}
	x.opened = x.opened && x.source == before
	x.owned, x.earlier, x.assigned = nil, nil, false
	x.rows, x.unreported = make([]*entityEvents, len(t.Devices)), make([]bool, len(t.Devices))
	x.field = slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == catalog.XIDErrors })
	for row := range t.Devices {
		d := &t.Devices[row]
		id := d.Identity()
		id.UUID = cmp.Or(d.UUID, d.PCIBusID, d.Entity.String())
		e := x.entities[id]
		if e == nil {
			e = &entityEvents{}
			x.entities[id] = e
		} else if e.session < x.sessions-1 {
			e.expire(x.now - int64(x.window))
		}
		e.session, e.pci = x.sessions, strings.ToUpper(d.PCIBusID)
		x.rows[row] = e
	}
	maps.DeleteFunc(x.entities, func(id gpu.Identity, e *entityEvents) bool {
		return e.session != x.sessions && id.Kind != gpu.KindGPU
	})
	for x.forgetGPU() {
		x.dropped.WithLabelValues(droppedGPU, reasonFull).Inc()
	}
}

// forgetGPU forgets the GPU that has been absent longest if there are too many, and reports whether it forgot one.
func (x *xidCounter) forgetGPU() bool {
	gpus, oldest, session := 0, gpu.Identity{}, x.sessions
	for id, e := range x.entities {
		if id.Kind == gpu.KindGPU {
			gpus++
			if e.session < session {
				oldest, session = id, e.session
			}
		}
	}
	if gpus <= maxGPUs || session == x.sessions {
		return false
	}
	delete(x.entities, oldest)
	return true
}

// expire empties the windows that have no event after the given time. With the window of XIDs, the last XID is
// forgotten.
func (e *entityEvents) expire(before int64) {
	if e.last.at <= before {
		e.window, e.last, e.lasts = nil, xidEvent{}, nil
	}
	e.reasons.expire(before)
}

// repeat records that the next Read may repeat reports of earlier ones.
func (x *xidCounter) repeat() {
	x.epoch++
	x.repeated = true
}

// count counts the XIDs of the kernel log and of a Read.
func (x *xidCounter) count(c *snapshot.Cycle) {
	x.now = c.Now.UnixNano()
	x.life.extend(x.now)
	if x.field < 0 {
		return
	}
	if c.Batch.XIDsRepeat {
		x.repeat()
	}
	if x.log != nil {
		x.countKernel()
	}
	for i := range c.Batch.XIDs {
		x.countReport(c, &c.Batch.XIDs[i])
	}
	s := &x.spans[x.source]
	if !x.opened {
		*s = span{from: c.Begin.UnixNano()}
	}
	s.extend(x.now)
	x.opened, x.repeated = true, false
	for row := range x.rows {
		x.unreported[row] = x.log == nil && c.Missing(catalog.XIDErrors, row) != ""
	}
}

// countReport counts an XID that the session reported.
func (x *xidCounter) countReport(c *snapshot.Cycle, r *gpu.XID) {
	if r.Row < 0 || r.Row >= len(x.rows) || !c.Topology.Serves(&c.Plan.Fields[x.field], r.Row) {
		return
	}
	if r.Code < 1 || r.Code > gpu.MaxXID {
		x.dropped.WithLabelValues(droppedXID, reasonRange).Inc()
		return
	}
	e := x.rows[r.Row]
	what := xidOf(r)
	if !e.reports[x.source].add(report{r.ID, what}, x.epoch, x.repeated, x.source == sourceEngine) {
		return
	}
	at := min(r.Time, x.now)
	owner := x.ownerAt(min(cmp.Or(r.Since, at), at), e, r.Row, what)
	for w := range x.spans {
		if w != int(x.source) && x.spans[w].contains(at) { // another source counts it
			e.owners.noteSeen(what, owner, at, x.now)
			return
		}
	}
	x.record(e, xidEvent{what, at}, owner, x.repeated && at < x.life.from)
}

func xidOf(r *gpu.XID) xid {
	return xid{r.Code, instance{r.OnInstance, r.InstanceID}}
}

// ownerAt returns who owned the instance that an XID names at the given time, or the GPU if it names none.
func (x *xidCounter) ownerAt(at int64, e *entityEvents, row int, what xid) []gpu.Label {
	for i := range x.topology.Devices {
		d := &x.topology.Devices[i]
		if d.Entity.Kind == gpu.KindGPUInstance && x.topology.ParentRow(i) == row &&
			what.instance == (instance{true, d.InstanceID}) {
			return x.rows[i].owners.at(at)
		}
	}
	return e.owners.at(at)
}

// countKernel counts the XIDs and SXIDs of the kernel log.
func (x *xidCounter) countKernel() {
	since, read := x.log.Since()
	if s := &x.spans[sourceKernel]; read {
		if !x.logged {
			*s = span{from: since.UnixNano()}
		}
		s.extend(x.now)
	}
	x.logged = read
	if !x.assigned {
		return // the next cycle knows the owners
	}
	x.kernelSXIDs = x.log.DrainSXIDs(x.kernelSXIDs[:0])
	for _, s := range x.kernelSXIDs {
		count, at := int64(1), min(s.Time, x.now)
		if s.Past {
			count = 0
		}
		s.Time, s.Past = 0, false
		x.sxids.of(sxid(s), maxTallies).add(count, at, math.MaxInt64)
	}
	x.kernel, x.past = x.log.Drain(append(x.kernel[:0], x.past...)), x.past[:0]
	for i := range x.kernel {
		r := &x.kernel[i]
		e, row := x.byBus(r.PCIBusID)
		switch {
		case e == nil && r.Past:
			if len(x.past) < maxEvents {
				x.past = append(x.past, *r) // its GPU may be lost now, and come back
			}
			continue
		case e == nil:
			x.unplaced.Inc()
			continue
		}
		what, at := xidOf(r), min(r.Time, x.now)
		if r.Past {
			e.owners.noteSeen(what, nil, at, x.now)
			continue
		}
		if r.Detail != (gpu.XIDDetail{}) {
			e.details.of(xidDetail{r.Code, r.Detail}, maxTallies).add(1, r.Time, math.MaxInt64)
		}
		owner := x.ownerAt(at, e, row, what)
		for _, uid := range r.PodUIDs { // outermost first, since a pod may run pods itself
			if len(owner) == 0 && row >= 0 {
				owner = x.ownerOf(uid, row)
			}
		}
		x.record(e, xidEvent{what, at}, owner, false)
	}
}

// record records an XID of a GPU and its owner. If old is set, it is from before the process started, and the total
// does not count it.
func (x *xidCounter) record(e *entityEvents, v xidEvent, owner []gpu.Label, old bool) {
	if v.at >= e.last.at || e.last.at > x.now { // the clock was wrong if the last XID is in the future
		e.last = v
	}
	if last := e.lastOf(v.instance); v.at >= last.at || last.at > x.now {
		e.setLast(v)
	}
	after := x.now - int64(x.window)
	e.window = slices.DeleteFunc(e.window, func(old xidEvent) bool { return old.at <= after || old.at > x.now })
	if v.at > after {
		at, _ := slices.BinarySearchFunc(e.window, v.at+1, func(e xidEvent, at int64) int {
			return cmp.Compare(e.at, at)
		})
		e.window = slices.Insert(e.window, at, v)
	}
	if len(e.window) > maxEvents {
		x.dropped.WithLabelValues(droppedWindow, reasonFull).Inc()
		e.window = slices.Delete(e.window, 0, 1)
	}
	if old {
		e.owners.noteSeen(v.xid, owner, v.at, x.now)
		return
	}
	e.owners.of(owner, x.now).add(v.xid, 1, v.at, x.now)
}

// lastOf returns the newest XID of an instance, or for the whole GPU the newest XID that names no instance. It is zero
// if there is none.
func (e *entityEvents) lastOf(i instance) xidEvent {
	for _, v := range e.lasts {
		if v.instance == i {
			return v
		}
	}
	return xidEvent{}
}

// setLast replaces the newest XID of an instance. If there are too many instances, it forgets the one recorded first.
func (e *entityEvents) setLast(v xidEvent) {
	e.lasts = slices.DeleteFunc(e.lasts, func(old xidEvent) bool { return old.instance == v.instance })
	if len(e.lasts) == maxLasts {
		e.lasts = slices.Delete(e.lasts, 0, 1)
	}
	e.lasts = append(e.lasts, v)
}

// byBus returns the GPU at a PCI address and its row. If there is none now, it returns the latest one that was there,
// and the row -1.
func (x *xidCounter) byBus(id string) (*entityEvents, int) {
	id = strings.ToUpper(id)
	for row, e := range x.rows {
		if e.pci == id && x.topology.Devices[row].Entity.Kind == gpu.KindGPU {
			return e, row
		}
	}
	var latest *entityEvents
	for key, e := range x.entities {
		if key.Kind == gpu.KindGPU && e.pci == id && (latest == nil || e.session > latest.session) {
			latest = e
		}
	}
	return latest, -1
}

// ownerOf returns the labels of a pod if it owns a GPU or one of its instances, otherwise nil.
func (x *xidCounter) ownerOf(podUID string, gpuRow int) []gpu.Label {
	for _, owners := range []*gpu.Owners{x.owned, x.earlier} {
		for row := range x.topology.Devices {
			if row != gpuRow && x.topology.ParentRow(row) != gpuRow {
				continue
			}
			use := owners.UseOf(row)
			for i := range use.Owners {
				if o := &use.Owners[i]; o.PodUID == podUID {
					return sortedLabels(o.AllLabels())
				}
			}
		}
	}
	return nil
}

// assign records who owns the GPUs from the beginning of the Read on.
func (x *xidCounter) assign(owners *gpu.Owners, begin int64) {
	if x.assigned && owners == x.owned {
		return
	}
	x.earlier, x.owned, x.assigned = x.owned, owners, true
	for row, e := range x.rows {
		if k := x.topology.Devices[row].Entity.Kind; k == gpu.KindGPU || k == gpu.KindGPUInstance {
			e.owners.set(sortedLabels(owners.Of(row)), begin)
		}
	}
}
