package events

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const (
	// maxEvents bounds the events in the window of one entity. The oldest leave it early.
	maxEvents = 4096
	// maxGPUs bounds the known GPUs, absent ones included.
	maxGPUs = 256

	// Labels of dcgm_exporter_events_dropped_total.
	droppedXID    = "xid"    // a report
	droppedWindow = "window" // an event that left its window early
	droppedGPU    = "gpu"    // the counts of a GPU that is gone

	reasonRange = "out_of_range"
	reasonFull  = "full"
)

// A witness reports XIDs.
type witness uint8

const (
	witnessEngine witness = iota // DCGM, which repeats its XIDs to every session
	witnessDriver                // NVML: the driver's queue, which reports an XID once
	witnessKernel                // the kernel's log, which needs no session
)

// A KernelLog reports the XIDs of the kernel's log. It is the witness while it is read.
type KernelLog interface {
	// Drain appends the XIDs since the previous call, oldest first, and those of the time before it was read.
	Drain([]gpu.XID) []gpu.XID
	// DrainSXIDs is Drain for SXIDs.
	DrainSXIDs([]gpu.SXID) []gpu.SXID
	// Since returns when the log began to be read, and false while it is not.
	Since() (time.Time, bool)
}

// An xidEvent is an XID that happened at a time.
type xidEvent struct {
	xid
	at int64 // Unix nanoseconds
}

// entityEvents are the events of one entity. They outlive sessions.
type entityEvents struct {
	pci     string
	reports [witnessKernel]reports
	window  []xidEvent // oldest first
	last    xidEvent   // the newest; zero for none
	reasons reasons
	owners  owners
	details tally[xidDetail]
	session int // the latest session that had it
}

// A span is the time in which a witness was read; zero before the first Read.
type span struct{ from, until int64 }

// extend makes now the end of the span. If the clock was set back, the beginning moves by as much.
func (s *span) extend(now int64) {
	s.from -= max(0, s.until-now)
	s.until = now
}

func (s *span) contains(at int64) bool { return s.from <= at && at <= s.until }

// An xidCounter counts each XID of its witness once, however often that repeats it, and has the events of all entities.
// Times are Unix nanoseconds of this machine's clock.
//
// Witnesses date an XID differently, by a second or so: one of the moment at which the witness changes can count twice.
type xidCounter struct {
	log      KernelLog          // nil for none
	unplaced prometheus.Counter // of GPUs that were never here
	dropped  *prometheus.CounterVec
	window   time.Duration

	entities map[gpu.Identity]*entityEvents
	spans    [witnessKernel + 1]span
	sessions int     // their number
	witness  witness // of the session
	opened   bool    // its span has begun
	logged   bool    // the kernel's log was read at the latest cycle
	epoch    uint32  // reports that are repeated begin another
	repeated bool    // the next Read may report XIDs of earlier ones
	now      int64   // of the latest cycle
	life     span    // of the process

	topology   *gpu.Topology
	rows       []*entityEvents // by row
	unreported []bool          // by row: no witness reports its XIDs
	field      int             // of XIDs; -1 where it is not planned

	owned, earlier *gpu.Owners // of the latest cycle, and those before them
	assigned       bool
	kernel         []gpu.XID
	past           []gpu.XID // of the kernel's log, of GPUs that were not here yet
	kernelSXIDs    []gpu.SXID
	sxids          tally[gpu.SXID]
}

// bind prepares for a session. It forgets the old window of an entity that was away, such as a GPU that fell off the bus
// and comes back after a reset, and instances that are gone.
func (x *xidCounter) bind(t *gpu.Topology, plan *gpu.Plan) {
	x.topology = t
	x.sessions++
	x.repeat()
	before := x.witness
	x.witness = witnessEngine
	if t.Source == "nvml" {
		x.witness = witnessDriver
	}
	x.opened = x.opened && x.witness == before
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

// forgetGPU forgets the GPU that is gone for longest, if there are too many, and reports whether it did.
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

// expire empties the windows, and with them the gauge of the last XID, if they have no event after a time.
func (e *entityEvents) expire(before int64) {
	if e.last.at <= before {
		e.window, e.last = nil, xidEvent{}
	}
	e.reasons.expire(before)
}

// repeat notes that reports of earlier Reads may come again.
func (x *xidCounter) repeat() {
	x.epoch++
	x.repeated = true
}

// count counts the XIDs of the kernel's log and of a Read.
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
	s := &x.spans[x.witness]
	if !x.opened {
		*s = span{from: c.Begin.UnixNano()}
	}
	s.extend(x.now)
	x.opened, x.repeated = true, false
	for row := range x.rows {
		x.unreported[row] = x.log == nil && c.Missing(x.field, row) != ""
	}
}

// countReport counts an XID of a session.
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
	if !e.reports[x.witness].add(report{r.ID, what}, x.epoch, x.repeated, x.witness == witnessEngine) {
		return
	}
	at := min(r.Time, x.now)
	owner := x.ownerAt(min(cmp.Or(r.Since, at), at), e, r.Row, what)
	for w := range x.spans {
		if w != int(x.witness) && x.spans[w].contains(at) { // another source counts it
			e.owners.noteSeen(what, owner, at, x.now)
			return
		}
	}
	x.record(e, xidEvent{what, at}, owner, x.repeated && at < x.life.from)
}

func xidOf(r *gpu.XID) xid {
	if r.OnInstance {
		return xid{r.Code, int64(r.InstanceID)}
	}
	return xid{r.Code, wholeGPU}
}

// ownerAt returns the owner at a time of the instance of an XID, else of the GPU.
func (x *xidCounter) ownerAt(at int64, e *entityEvents, row int, what xid) []gpu.Label {
	for i := range x.topology.Devices {
		d := &x.topology.Devices[i]
		if d.Entity.Kind == gpu.KindGPUInstance && int64(d.InstanceID) == what.instance && x.topology.ParentRow(i) == row {
			return x.rows[i].owners.at(at)
		}
	}
	return e.owners.at(at)
}

// countKernel counts the XIDs and the SXIDs of the kernel's log.
func (x *xidCounter) countKernel() {
	since, read := x.log.Since()
	if s := &x.spans[witnessKernel]; read {
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
		x.sxids.add(s, gpu.SXID{Code: otherXIDs}, count, at, compareSXIDs, sxidLabels)
	}
	x.kernel, x.past = x.log.Drain(append(x.kernel[:0], x.past...)), x.past[:0]
	for i := range x.kernel {
		r := &x.kernel[i]
		e, row := x.byBus(r.PCIBusID)
		switch {
		case e == nil && r.Past:
			if len(x.past) < maxEvents {
				x.past = append(x.past, *r) // its GPU may be lost, and come back
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
			e.details.add(xidDetail{r.Code, r.Detail}, xidDetail{code: otherXIDs}, 1, r.Time, xidDetail.compare, xidDetail.labels)
		}
		owner := x.ownerAt(at, e, row, what)
		for uid := range strings.FieldsSeq(r.PodUIDs) { // a pod can be a node of pods: the outermost that owns the GPU
			if len(owner) == 0 && row >= 0 {
				owner = x.ownerOf(uid, row)
			}
		}
		x.record(e, xidEvent{what, at}, owner, false)
	}
}

// record records an XID of a GPU for its owner. An old one, from before the process started, is not counted in the total.
func (x *xidCounter) record(e *entityEvents, v xidEvent, owner []gpu.Label, old bool) {
	if v.at >= e.last.at || e.last.at > x.now { // a time to come is of a clock that was wrong
		e.last = v
	}
	after := x.now - int64(x.window)
	e.window = slices.DeleteFunc(e.window, func(old xidEvent) bool { return old.at <= after || old.at > x.now })
	if v.at > after {
		at, _ := slices.BinarySearchFunc(e.window, v.at+1, func(e xidEvent, at int64) int { return cmp.Compare(e.at, at) })
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

// byBus returns the GPU at a PCI address, else the latest one there, and its row; -1 if it is not here now.
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

// ownerOf returns the labels of a pod that owns a GPU or one of its instances; nil if it does not.
func (x *xidCounter) ownerOf(podUID string, gpuRow int) []gpu.Label {
	for _, owners := range []*gpu.Owners{x.owned, x.earlier} {
		for row := range x.topology.Devices {
			if row != gpuRow && x.topology.ParentRow(row) != gpuRow {
				continue
			}
			use := owners.UseOf(row)
			for i := range use.Owners {
				if o := &use.Owners[i]; o.PodUID == podUID {
					return sortedLabels(append(o.PodLabels(), o.Labels...))
				}
			}
		}
	}
	return nil
}

// assign notes who owns the GPUs from the beginning of the Read on.
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
