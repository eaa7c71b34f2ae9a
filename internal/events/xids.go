package events

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

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
)

// An xidSource reports XIDs.
type xidSource uint8

const (
	sourceEngine xidSource = iota // DCGM, which repeats its XIDs to every session
	sourceDriver                  // NVML, whose event queue reports each XID once
	sourceKernel                  // the kernel log, which needs no session
)

// A span is the time during which a source was read; zero before the first Read.
type span struct{ from, until int64 }

// extend moves the end of the span to now. If the clock was set back, it moves the beginning back by as much.
func (s *span) extend(now int64) {
	s.from -= max(0, s.until-now)
	s.until = now
}

func (s *span) contains(at int64) bool { return s.from <= at && at <= s.until }

// An xidEvent is an XID and when it occurred.
type xidEvent struct {
	xid
	at int64
}

// entityEvents holds the events of one entity. It outlives sessions.
type entityEvents struct {
	pci     string
	reports [sourceKernel]reports
	window  []xidEvent // oldest first
	lasts   []xidEvent // the newest of the whole GPU and of each instance, most recently recorded last
	reasons reasons
	owners  owners
	details tally
	session int // the latest session that had it
}

// last returns the newest XID. It is zero if there is none.
func (e *entityEvents) last() (newest xidEvent) {
	for _, v := range e.lasts {
		if v.at >= newest.at {
			newest = v
		}
	}
	return newest
}

// lastOf returns the newest XID of an instance, or for wholeGPU the newest XID that names no instance. It is zero if
// there is none.
func (e *entityEvents) lastOf(instance int64) xidEvent {
	if i := slices.IndexFunc(e.lasts, func(v xidEvent) bool { return v.instance == instance }); i >= 0 {
		return e.lasts[i]
	}
	return xidEvent{}
}

// setLast keeps an event if it is the newest of its instance. If there are too many instances, it forgets the one
// recorded first.
func (e *entityEvents) setLast(v xidEvent, now int64) {
	for i := range e.lasts {
		if e.lasts[i].at > now { // the clock was set back
			e.lasts[i].at = v.at
		}
	}
	if e.lastOf(v.instance).at > v.at {
		return
	}
	e.lasts = slices.DeleteFunc(e.lasts, func(old xidEvent) bool { return old.instance == v.instance })
	if len(e.lasts) == maxLasts {
		e.lasts = slices.Delete(e.lasts, 0, 1)
	}
	e.lasts = append(e.lasts, v)
}

// expire drops the windows without events after the given time. If the window of XIDs is dropped, so are the last XIDs.
func (e *entityEvents) expire(before int64) {
	if e.last().at <= before {
		e.window, e.lasts = nil, nil
	}
	e.reasons.expire(before)
}

// bindXIDs prepares for a session. It forgets instances that are gone, and expired windows of entities that were
// absent, such as a GPU that fell off the bus and comes back after a reset.
func (l *Log) bindXIDs(t *gpu.Topology) {
	l.topology = t
	l.sessions++
	l.repeat()
	source := sourceEngine
	if t.Source == "nvml" {
		source = sourceDriver
	}
	if source != l.source {
		l.source, l.spans[source] = source, span{}
	}
	l.owned, l.earlier, l.assigned = nil, nil, false
	l.rows, l.unreported = make([]*entityEvents, len(t.Devices)), make([]bool, len(t.Devices))
	for row := range t.Devices {
		d := &t.Devices[row]
		id := d.Identity()
		id.UUID = cmp.Or(d.UUID, d.PCIBusID, d.Entity.String())
		e := l.entities[id]
		if e == nil {
			e = &entityEvents{}
			l.entities[id] = e
		} else if e.session < l.sessions-1 {
			e.expire(l.now - int64(l.opt.XIDWindow))
		}
		e.session, e.pci = l.sessions, strings.ToUpper(d.PCIBusID)
		l.rows[row] = e
	}
	maps.DeleteFunc(l.entities, func(id gpu.Identity, e *entityEvents) bool {
		return e.session != l.sessions && id.Kind != gpu.KindGPU
	})
	l.forgetGPUs()
}

// forgetGPUs forgets the GPUs that have been absent longest if there are too many. No instances are absent.
func (l *Log) forgetGPUs() {
	gpus := slices.DeleteFunc(slices.Collect(maps.Keys(l.entities)), func(id gpu.Identity) bool {
		return id.Kind != gpu.KindGPU
	})
	slices.SortFunc(gpus, func(a, b gpu.Identity) int {
		return cmp.Compare(l.entities[a].session, l.entities[b].session)
	})
	for _, id := range gpus[:max(0, len(gpus)-maxGPUs)] {
		if l.entities[id].session < l.sessions {
			delete(l.entities, id)
			l.dropped.WithLabelValues(droppedGPU, reasonFull).Inc()
		}
	}
}

// repeat records that the next Read may repeat reports of earlier ones.
func (l *Log) repeat() {
	l.epoch++
	l.repeated = true
}

// countXIDs counts the XIDs of the kernel log and of a Read.
func (l *Log) countXIDs(c *snapshot.Cycle) {
	l.now = c.Now.UnixNano()
	l.life.extend(l.now)
	if l.xids < 0 {
		return
	}
	if c.Batch.XIDsRepeat {
		l.repeat()
	}
	if l.opt.KernelLog != nil {
		l.readKernelLog()
	}
	for i := range c.Batch.XIDs {
		l.countReport(c, &c.Batch.XIDs[i])
	}
	s := &l.spans[l.source]
	if s.until == 0 {
		s.from = c.Begin.UnixNano()
	}
	s.extend(l.now)
	l.repeated = false
	for row := range l.rows {
		l.unreported[row] = l.opt.KernelLog == nil && c.Missing(catalog.XIDErrors, row) != ""
	}
}

// countReport counts an XID that the session reported.
func (l *Log) countReport(c *snapshot.Cycle, r *gpu.XID) {
	if r.Row < 0 || r.Row >= len(l.rows) || !c.Topology.Serves(&c.Plan.Fields[l.xids], r.Row) {
		return
	}
	if r.Code < 1 || r.Code > gpu.MaxXID {
		l.dropped.WithLabelValues(droppedXID, reasonRange).Inc()
		return
	}
	e, what := l.rows[r.Row], xidOf(r)
	if !e.reports[l.source].add(report{r.ID, what}, l.epoch, l.repeated, l.source == sourceEngine) {
		return
	}
	at := min(r.Time, l.now)
	owner := l.ownerAt(min(cmp.Or(r.Since, at), at), e, r.Row, what)
	counted := l.repeated && at < l.life.from // an earlier process has counted it
	for w := range l.spans {
		if w != int(l.source) && l.spans[w].contains(at) { // another source counts it
			e.owners.noteSeen(what, owner, at, l.now)
			return
		}
	}
	l.record(e, xidEvent{what, at}, owner, counted)
}

// ownerAt returns who owned the instance that an XID names at the given time, or the GPU if it names none.
func (l *Log) ownerAt(at int64, e *entityEvents, row int, what xid) []gpu.Label {
	for i := range l.topology.Devices {
		d := &l.topology.Devices[i]
		if d.Entity.Kind == gpu.KindGPUInstance && l.topology.ParentRow(i) == row &&
			int64(d.InstanceID) == what.instance {
			return l.rows[i].owners.at(at)
		}
	}
	return e.owners.at(at)
}

// readKernelLog counts the XIDs and SXIDs of the kernel log.
func (l *Log) readKernelLog() {
	since := l.opt.KernelLog.Since()
	if s := &l.spans[sourceKernel]; !since.IsZero() {
		if since != l.logSince {
			*s = span{from: since.UnixNano()}
		}
		s.extend(l.now)
	}
	l.logSince = since
	if !l.assigned {
		return // the XIDs wait for the next cycle, which has owners
	}
	l.logged, l.past = l.opt.KernelLog.Drain(append(l.logged[:0], l.past...)), l.past[:0]
	for i := range l.logged {
		l.countLogged(&l.logged[i])
	}
}

// countLogged counts an XID or SXID of the kernel log.
func (l *Log) countLogged(r *gpu.XID) {
	what, at := xidOf(r), min(r.Time, l.now)
	k := key{what, r.OnSwitch, r.Switch, r.Detail}
	if r.OnSwitch {
		count := int64(1)
		if r.Past {
			count = 0
		}
		l.sxids.add(k, maxTallies, count, at, math.MaxInt64)
		return
	}
	e, row := l.byBus(r.PCIBusID)
	switch {
	case e == nil && r.Past:
		if len(l.past) < maxEvents {
			l.past = append(l.past, *r) // its GPU may be lost now, and come back
		}
		return
	case e == nil:
		l.unplaced.Inc()
		return
	case r.Past:
		e.owners.noteSeen(what, nil, at, l.now)
		return
	}
	if r.Detail != (gpu.XIDDetail{}) {
		k.instance = wholeGPU
		e.details.add(k, maxTallies, 1, at, math.MaxInt64)
	}
	owner := l.ownerAt(at, e, row, what)
	for _, uid := range r.PodUIDs { // outermost first, since a pod may run pods itself
		if len(owner) == 0 && row >= 0 {
			owner = l.ownerOf(uid, row)
		}
	}
	l.record(e, xidEvent{what, at}, owner, false)
}

// record records an XID of a GPU and its owner. If counted is set, an earlier process has counted the XID, so its
// counter does not increase.
func (l *Log) record(e *entityEvents, v xidEvent, owner []gpu.Label, counted bool) {
	e.setLast(v, l.now)
	after := l.now - int64(l.opt.XIDWindow)
	e.window = slices.DeleteFunc(e.window, func(old xidEvent) bool { return old.at <= after || old.at > l.now })
	if v.at > after {
		i, _ := slices.BinarySearchFunc(e.window, v.at+1, func(e xidEvent, at int64) int {
			return cmp.Compare(e.at, at)
		})
		e.window = slices.Insert(e.window, i, v)
	}
	if len(e.window) > maxEvents {
		l.dropped.WithLabelValues(droppedWindow, reasonFull).Inc()
		e.window = slices.Delete(e.window, 0, 1)
	}
	if counted {
		e.owners.noteSeen(v.xid, owner, v.at, l.now)
	} else {
		e.owners.add(v.xid, owner, 1, v.at, l.now)
	}
}

// byBus returns the GPU at a PCI address and its row. If there is none now, it returns the latest one that was there,
// and the row -1.
func (l *Log) byBus(id string) (*entityEvents, int) {
	id = strings.ToUpper(id)
	for row, e := range l.rows {
		if e.pci == id && l.topology.Devices[row].Entity.Kind == gpu.KindGPU {
			return e, row
		}
	}
	var latest *entityEvents
	for key, e := range l.entities {
		if key.Kind == gpu.KindGPU && e.pci == id && (latest == nil || e.session > latest.session) {
			latest = e
		}
	}
	return latest, -1
}

// ownerOf returns the labels of a pod if it owns a GPU or one of its instances, otherwise nil.
func (l *Log) ownerOf(podUID string, gpuRow int) []gpu.Label {
	for _, owners := range []*gpu.Owners{l.owned, l.earlier} {
		for row := range l.topology.Devices {
			if row != gpuRow && l.topology.ParentRow(row) != gpuRow {
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
func (l *Log) assign(owners *gpu.Owners, begin int64) {
	if l.assigned && owners == l.owned {
		return
	}
	l.earlier, l.owned, l.assigned = l.owned, owners, true
	for row, e := range l.rows {
		if k := l.topology.Devices[row].Entity.Kind; k == gpu.KindGPU || k == gpu.KindGPUInstance {
			e.owners.set(sortedLabels(owners.Of(row)), begin)
		}
	}
}
