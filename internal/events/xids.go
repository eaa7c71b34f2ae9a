package events

import (
	"cmp"
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
	// maxGPUs bounds the GPUs that are remembered, absent ones included: the last XID of many a GPU is
	// that it has gone.
	maxGPUs = 256
)

// What is dropped, and why, as in dcgm_exporter_events_dropped_total.
const (
	droppedXID    = "xid"    // a report
	droppedWindow = "window" // an event that left its window early
	droppedGPU    = "gpu"    // the counts of a GPU that is gone

	reasonRange = "out_of_range"
	reasonFull  = "full"
)

// A witness reports XIDs.
type witness uint8

const (
	// witnessEngine keeps XIDs for a while and reports them to every session: DCGM.
	witnessEngine witness = iota
	// witnessDriver is the driver's queue: an XID that it handed over is gone from it: NVML.
	witnessDriver
	// witnessKernel is the kernel's log, which needs no session.
	witnessKernel
)

// A KernelLog reports the XIDs of the kernel's log. It is the witness of the time in which it is
// read.
type KernelLog interface {
	// Drain appends the XIDs since the previous call, oldest first.
	Drain([]gpu.XID) []gpu.XID
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
	last    xidEvent   // the newest of all; zero for none
	reasons reasons
	owners  owners
	session int // the latest session that had it
}

// A span is a time in which a witness was read: it has reported what happened in it. It is zero for
// a witness that was not read yet.
type span struct{ from, until int64 }

// extend makes now the end of the span. A clock that was set back moves the beginning by as much.
func (s *span) extend(now int64) {
	s.from -= max(0, s.until-now)
	s.until = now
}

func (s *span) contains(at int64) bool { return s.from <= at && at <= s.until }

// An xidCounter counts XIDs, each once: by its witness, and however often that repeats it. It owns
// what is known of the entities. Times are Unix nanoseconds of this machine's clock.
//
// Two witnesses date an XID differently, by a second or so. One of the moment at which a witness
// gives way to another can therefore count twice.
type xidCounter struct {
	log      KernelLog          // nil for none
	unplaced prometheus.Counter // of GPUs that were never here
	dropped  *prometheus.CounterVec
	window   time.Duration

	entities map[gpu.Identity]*entityEvents
	spans    [witnessKernel + 1]span
	sessions int     // how many there were
	witness  witness // of the session
	opened   bool    // its span has begun
	logged   bool    // the kernel's log was read at the latest cycle
	epoch    uint32  // reports that are repeated begin another
	repeated bool    // the next Read may report what others did
	now      int64   // of the latest cycle

	topology   *gpu.Topology
	plan       *gpu.Plan
	rows       []*entityEvents // by row
	unreported []bool          // by row: no witness reports its XIDs
	field      int             // of XIDs; -1 where it is not planned

	owned, earlier *gpu.Owners // of the latest cycle, and those before them
	assigned       bool
	kernel         []gpu.XID
}

// bind prepares for a session. It forgets the window of an entity that was away for longer, such as
// a GPU that fell off the bus and comes back after a reset.
func (x *xidCounter) bind(t *gpu.Topology, plan *gpu.Plan) {
	x.topology, x.plan = t, plan
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
	x.forget()
}

// forget forgets entities that are gone: of GPUs those that are gone for longest, where there are
// too many.
func (x *xidCounter) forget() {
	var gone []gpu.Identity
	gpus := 0
	for id, e := range x.entities {
		if id.Kind == gpu.KindGPU {
			gpus++
		}
		switch {
		case e.session == x.sessions:
		case id.Kind == gpu.KindGPU:
			gone = append(gone, id)
		default:
			delete(x.entities, id)
		}
	}
	slices.SortFunc(gone, func(a, b gpu.Identity) int { return cmp.Compare(x.entities[a].session, x.entities[b].session) })
	for _, id := range gone[:min(len(gone), max(0, gpus-maxGPUs))] {
		x.dropped.WithLabelValues(droppedGPU, reasonFull).Inc()
		delete(x.entities, id)
	}
}

// expire empties the windows, and with them the gauge of the last XID, if nothing is in them.
func (e *entityEvents) expire(before int64) {
	if e.last.at <= before {
		e.window, e.last = nil, xidEvent{}
	}
	e.reasons.expire(before)
}

// repeat says that reports which earlier Reads had may come again.
func (x *xidCounter) repeat() {
	x.epoch++
	x.repeated = true
}

// count counts what the kernel's log and a Read reported.
func (x *xidCounter) count(c *snapshot.Cycle) {
	x.now = c.Now.UnixNano()
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

// countReport counts an XID that a session reported.
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
	if !e.reports[x.witness].add(report{r.ID, what}, x.epoch, x.repeated) {
		return
	}
	at := min(r.Time, x.now)
	for w := range x.spans {
		if w != int(x.witness) && x.spans[w].contains(at) {
			return // another witness has reported it
		}
	}
	x.record(e, xidEvent{what, at}, x.ownerAt(min(cmp.Or(r.Since, at), at), e, r.Row, what))
}

func xidOf(r *gpu.XID) xid {
	if r.OnInstance {
		return xid{r.Code, int64(r.InstanceID)}
	}
	return xid{r.Code, wholeGPU}
}

// ownerAt returns the owner at a time of the instance that an XID of a GPU names, or else of the GPU.
func (x *xidCounter) ownerAt(at int64, e *entityEvents, row int, what xid) []gpu.Label {
	for i := range x.topology.Devices {
		d := &x.topology.Devices[i]
		if d.Entity.Kind == gpu.KindGPUInstance && int64(d.InstanceID) == what.instance && x.topology.ParentRow(i) == row {
			return x.rows[i].owners.at(at)
		}
	}
	return e.owners.at(at)
}

// countKernel counts what the kernel's log reported.
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
	x.kernel = x.log.Drain(x.kernel[:0])
	for i := range x.kernel {
		r := &x.kernel[i]
		e, row := x.byBus(r.PCIBusID)
		if e == nil {
			x.unplaced.Inc()
			continue
		}
		what, at := xidOf(r), min(r.Time, x.now)
		owner := x.ownerAt(at, e, row, what)
		if len(owner) == 0 && r.PodUID != "" && row >= 0 {
			owner = x.ownerOf(r.PodUID, row)
		}
		x.record(e, xidEvent{what, at}, owner)
	}
}

// record counts an XID of a GPU for its owner.
func (x *xidCounter) record(e *entityEvents, v xidEvent, owner []gpu.Label) {
	if v.at >= e.last.at || e.last.at > x.now { // a time to come is that of a clock that was wrong
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
	e.owners.of(owner, x.now).add(v.xid, 1, v.at, x.now)
}

// byBus returns the GPU at a PCI address, and its row; -1 if it is not here now.
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

// ownerOf returns the labels that a pod has as an owner of a GPU, or of one of its instances; nil
// where it is not one.
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
