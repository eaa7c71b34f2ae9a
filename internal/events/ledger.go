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
	// maxEvents bounds what one entity can keep in a window. A GPU in a storm of XIDs drops the oldest
	// ones.
	maxEvents = 4096
	// maxGPUs bounds the GPUs that are remembered, those that are gone included: the last XID of many
	// a GPU is that it has gone.
	maxGPUs = 256
)

// What is dropped, and why, as in dcgm_exporter_events_dropped_total.
const (
	droppedXID    = "xid"    // a report
	droppedWindow = "window" // an XID that left its window early
	droppedPair   = "pair"   // an XID that no longer waits for the other witness
	droppedGPU    = "gpu"    // what was counted of a GPU that is gone

	reasonRange = "out_of_range"
	reasonFull  = "full"
)

// A KernelLog is a second witness of XIDs, beside the engine.
type KernelLog interface {
	// Drain appends the XIDs since the previous call, oldest first.
	Drain([]gpu.XID) []gpu.XID
	// Current reports whether it is read now. Else what happens meanwhile may be reported once it is.
	Current() bool
}

// An event is an XID, or a sample of clock event reasons, of a window.
type event struct {
	at      int64 // uptime
	value   int64
	witness gpu.Witness
	paired  bool // with one of a session of another witness
}

// An account is what is known of one entity. It outlives sessions.
type account struct {
	pci     string
	uuid    string
	reports [gpu.WitnessKernel]reports
	xids    []event // oldest first: those of the window, and the last one of all
	reasons reasons
	owners  owners // of a GPU
	pairs   pairs  // of a GPU
	reach   reach  // of its session's reports
	current bool   // they were read in the latest cycle
	bound   int    // the latest session that had it
}

// A ledger counts XIDs, each once, whichever witness reports it and how often. It owns what is
// known of the entities.
type ledger struct {
	log      KernelLog
	unplaced prometheus.Counter // of GPUs that were never here
	dropped  *prometheus.CounterVec
	window   time.Duration

	accounts map[gpu.Identity]*account
	sessions int    // how many there were
	epoch    uint32 // reports that are repeated begin another
	again    bool   // the next Read may report what others did
	witness  gpu.Witness

	topology   *gpu.Topology
	plan       *gpu.Plan
	rows       []*account // by row
	unreported []bool     // by row: no witness reports its XIDs
	xid        int        // the field of XIDs; -1 where it is not planned
	total      bool       // families count them for good

	owned    *gpu.Owners // of the latest cycle
	earlier  *gpu.Owners // before those
	assigned bool

	kernel  []gpu.XID
	current bool // the log was read when the latest cycle but this began
	logged  reach
}

// bind prepares for a session.
func (l *ledger) bind(t *gpu.Topology, plan *gpu.Plan) {
	l.topology, l.plan = t, plan
	l.sessions++
	l.repeat()
	l.owned, l.earlier, l.assigned = nil, nil, false
	l.rows, l.unreported = make([]*account, len(t.Devices)), make([]bool, len(t.Devices))
	l.xid = slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == catalog.XIDErrors })
	l.total = l.xid >= 0 && slices.ContainsFunc(plan.Derived, func(d gpu.Derived) bool {
		return d.Field == l.xid && (d.Name == catalog.XIDErrorsTotal || d.Name == catalog.XIDLastSeen)
	})
}

// repeat says that reports which earlier Reads had may come again.
func (l *ledger) repeat() {
	l.epoch++
	l.again = true
}

// enter finds the accounts of the session's entities at its first cycle, and forgets those of
// entities that are gone, or were away for longer than the window: one that falls off the bus and
// is reset comes back.
func (l *ledger) enter(k *clock) {
	if len(l.rows) == 0 || l.rows[0] != nil {
		return
	}
	for row := range l.topology.Devices {
		d := &l.topology.Devices[row]
		id := d.Identity()
		id.UUID = cmp.Or(d.UUID, d.PCIBusID, d.Entity.String())
		a := l.accounts[id]
		if a == nil {
			a = &account{uuid: d.UUID}
			l.accounts[id] = a
		}
		if a.bound < l.sessions-1 {
			a.expire(k.now - int64(l.window))
		}
		a.bound, a.pci = l.sessions, strings.ToUpper(d.PCIBusID)
		l.rows[row] = a
	}
	gpus := 0
	for id, a := range l.accounts {
		switch {
		case id.Kind == gpu.KindGPU:
			gpus++
			if a.bound < l.sessions {
				a.expire(k.now - int64(l.window))
			}
		case a.bound < l.sessions && (len(a.xids) == 0 || a.xids[len(a.xids)-1].at <= k.now-int64(l.window)):
			delete(l.accounts, id)
		}
	}
	for ; gpus > maxGPUs; gpus-- {
		l.forgetOne()
	}
}

// expire empties a window, and with it the gauge of the last XID, if nothing is in it.
func (a *account) expire(before int64) {
	if n := len(a.xids); n > 0 && a.xids[n-1].at <= before {
		a.xids = nil
	}
	a.reasons.expire(before)
}

// forgetOne forgets the GPU that is gone for longest.
func (l *ledger) forgetOne() {
	var oldest gpu.Identity
	for id, a := range l.accounts {
		if id.Kind == gpu.KindGPU && (oldest.UUID == "" || a.bound < l.accounts[oldest].bound) {
			oldest = id
		}
	}
	l.dropped.WithLabelValues(droppedGPU, reasonFull).Inc()
	delete(l.accounts, oldest)
}

// count takes what a Read and the kernel's log reported.
func (l *ledger) count(c *snapshot.Cycle, k *clock) {
	if l.xid < 0 {
		return
	}
	if c.Batch.XIDsRepeat {
		l.repeat()
	}
	late := false
	if l.total && c.Kind != snapshot.Overlapping { // then the owners are not known
		late = l.countKernel(k) // first, since it knows the process
	}
	switched := false
	for i := range c.Batch.XIDs {
		x := &c.Batch.XIDs[i]
		switched = switched || x.Witness != l.witness
		l.countReport(c, k, x, switched && c.Kind == snapshot.Overlapping)
	}
	if n := len(c.Batch.XIDs); n > 0 {
		l.witness = c.Batch.XIDs[n-1].Witness
	}
	l.again = false
	for row, a := range l.rows {
		read, was := c.Missing(l.xid, row) == "" && c.Down(row) == nil, a.current
		if a.current = read; read {
			a.reach.read, a.reach.known = k.begin, true
		}
		if read && was && !late && c.Kind != snapshot.Overlapping {
			// Both witnesses have had their time.
			a.pairs.forget(k.begin - k.memory)
		}
		l.unreported[row] = l.log == nil && c.Missing(l.xid, row) != ""
	}
}

// countReport counts an XID that a session reported.
func (l *ledger) countReport(c *snapshot.Cycle, k *clock, x *gpu.XID, switched bool) {
	if x.Row < 0 || x.Row >= len(l.rows) || x.Witness >= gpu.WitnessKernel || !c.Topology.Serves(&c.Plan.Fields[l.xid], x.Row) {
		return
	}
	if x.Code < 1 || x.Code > gpu.MaxXID {
		l.dropped.WithLabelValues(droppedXID, reasonRange).Inc()
		return
	}
	a := l.rows[x.Row]
	if !a.reports[x.Witness].add(report{id: x.ID, code: x.Code}, l.epoch, l.again) {
		return
	}
	from, to := k.span(cmp.Or(x.Since, x.Time), x.Time, a.reach)
	if switched && a.reportedBy(x, from, to) {
		return
	}
	a.addToWindow(l, k, event{at: to, value: x.Code, witness: x.Witness})
	if l.topology.Devices[x.Row].Entity.Kind != gpu.KindGPU {
		return
	}
	if l.total && l.log != nil && !l.pair(a, Unpaired{Code: x.Code, Count: 1, From: from, To: to, seen: k.now}) {
		return
	}
	if l.total {
		a.owners.count(a.owners.at(from), x.Code, min(x.Time, k.wall(k.now)), k)
	}
}

// reportedBy reports whether the session before this one, of another witness, reported an XID. Both
// were open at once, and what happened meanwhile both report, each with an id of its own.
func (a *account) reportedBy(x *gpu.XID, from, to int64) bool {
	for i := range a.xids {
		e := &a.xids[i]
		if e.value == x.Code && e.witness != x.Witness && !e.paired && e.at >= from-int64(pairWindow) && e.at <= to+int64(pairWindow) {
			e.paired = true
			return true
		}
	}
	return false
}

// addToWindow puts an XID into the window.
func (a *account) addToWindow(l *ledger, k *clock, e event) {
	old := 0 // what has left the window; the last event stays for the gauge
	for old < len(a.xids) && k.now-a.xids[old].at >= int64(l.window) {
		old++
	}
	if full := len(a.xids) + 1 - maxEvents; full > old {
		l.dropped.WithLabelValues(droppedWindow, reasonFull).Add(float64(full - old))
		old = full
	}
	a.xids = append(slices.Delete(a.xids, 0, old), e)
}

func (l *ledger) pair(a *account, e Unpaired) bool {
	isNew, dropped := a.pairs.add(e)
	if dropped > 0 {
		l.dropped.WithLabelValues(droppedPair, reasonFull).Add(float64(dropped))
	}
	return isNew
}

// countKernel counts what the kernel's log reported. Late says that it may yet report what happened
// long ago.
func (l *ledger) countKernel(k *clock) (late bool) {
	if l.log == nil {
		return false
	}
	current := l.log.Current()
	late = !current || !l.current
	l.current, l.logged.late = current, late
	l.kernel = l.log.Drain(l.kernel[:0])
	for i := range l.kernel {
		x := &l.kernel[i]
		a, row := l.byBus(x.PCIBusID)
		if a == nil {
			l.unplaced.Inc()
			continue
		}
		from, to := k.span(x.Time, x.Time, l.logged)
		if !l.pair(a, Unpaired{Kernel: true, Code: x.Code, Count: 1, From: from, To: to, seen: k.now}) {
			continue
		}
		owner := a.owners.at(from)
		if len(owner) == 0 && x.PodUID != "" && row >= 0 {
			owner = l.ownerOf(x.PodUID, row)
		}
		a.owners.count(owner, x.Code, min(x.Time, k.wall(k.now)), k)
	}
	if current {
		l.logged.read, l.logged.known = k.begin, true
	}
	return late
}

// byBus returns the GPU at a PCI address, and its row; -1 if it is not here now.
func (l *ledger) byBus(id string) (*account, int) {
	id = strings.ToUpper(id)
	for row, a := range l.rows {
		if a.pci == id && l.topology.Devices[row].Entity.Kind == gpu.KindGPU {
			return a, row
		}
	}
	var latest *account
	for key, a := range l.accounts {
		if key.Kind == gpu.KindGPU && a.pci == id && (latest == nil || a.bound > latest.bound) {
			latest = a
		}
	}
	return latest, -1
}

// ownerOf returns the labels that a pod has as an owner of a GPU, or of one of its instances; nil
// where it is not one.
func (l *ledger) ownerOf(podUID string, gpuRow int) []gpu.Label {
	for _, owners := range []*gpu.Owners{l.owned, l.earlier} {
		for row := range l.topology.Devices {
			if row != gpuRow && l.topology.ParentRow(row) != gpuRow {
				continue
			}
			use := owners.UseOf(row)
			for i := range use.Owners {
				if o := &use.Owners[i]; o.PodUID == podUID {
					labels := []gpu.Label{{Name: "container", Value: o.Container}, {Name: "namespace", Value: o.Namespace}, {Name: "pod", Value: o.Pod}}
					return sortedLabels(append(labels, o.Labels...))
				}
			}
		}
	}
	return nil
}

// assign notes who owns the GPUs from the beginning of the Read on.
func (l *ledger) assign(owners *gpu.Owners, k *clock) {
	if l.assigned && owners == l.owned {
		return
	}
	l.earlier, l.owned, l.assigned = l.owned, owners, true
	for row, a := range l.rows {
		if l.topology.Devices[row].Entity.Kind == gpu.KindGPU {
			a.owners.take(sortedLabels(owners.Of(row)), k.begin)
		}
	}
}
