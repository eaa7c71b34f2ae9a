package events

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events/statefile"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const (
	// maxOwnerSets bounds the earlier owners of a GPU whose XIDs are told apart.
	// What is older goes into the series without owner, so that no sum falls.
	maxOwnerSets = 32
	// maxCodes bounds the XIDs of one owner that have a series of their own.
	maxCodes = 64
	// maxHolders bounds how many changes of owner are remembered, to find that of
	// the time of an event.
	maxHolders = 16
	// maxGPUs bounds the GPUs that are remembered, those that are gone included:
	// the last XID of many a GPU is that it has gone.
	maxGPUs = 256
	// otherXIDs stands for the XIDs beyond maxCodes.
	otherXIDs = -1
)

// A KernelLog is a second witness of XIDs, beside the engine.
type KernelLog interface {
	// Drain appends the XIDs since the previous call, oldest first, and returns
	// how far they go in the witness's own words, for the state.
	Drain([]gpu.XID) (xids []gpu.XID, position string)
	// Current reports whether it is read now. Else what happens meanwhile may be
	// told once it is.
	Current() bool
}

// An xidCount is how often one XID struck a GPU under one owner.
type xidCount struct {
	code, count int64
	last        int64       // when, Unix nanoseconds; 0 for never
	labels      []gpu.Label // xid
}

// An ownerSet is what happened under one owner.
type ownerSet struct {
	key    string
	owner  []gpu.Label // sorted by name
	counts []xidCount
	seen   int64 // when the owner was last told, or struck
}

// A holder is the owner of a GPU from a time on.
type holder struct {
	at    int64
	key   string
	owner []gpu.Label
}

// A gpuEvents is what happened to one GPU. It outlives sessions.
type gpuEvents struct {
	uuid, pci string
	sets      []ownerSet // the first is that of no owner
	holders   []holder   // oldest first
	told      seenUntil  // of the engine's XIDs
	unpaired  []unpaired
	clock     clockEvents
	seen      int64
}

// A tally counts events for good: XIDs by the owner of their time, and clock
// events. It belongs to the Loop, outlives sessions, and can be restored.
type tally struct {
	log    KernelLog
	unseen func() // an XID of a GPU that was never here

	gpus map[string]*gpuEvents

	topology   *gpu.Topology
	plan       *gpu.Plan
	rows       []*gpuEvents // by row, nil for what is no GPU
	dark       []bool       // by row: nobody can tell its XIDs
	xid, clock int          // indexes of fields; -1 where nothing counts them
	owners     *gpu.Owners
	earlier    *gpu.Owners // before those
	assigned   bool

	samples  []gpu.Sample // of this cycle
	kernel   []gpu.XID
	position string
	current  bool  // the log was read when the latest cycle but this began
	previous int64 // when the latest Read but this began, 0 for none
	changed  bool  // since it was last saved
	out      map[string][]gpu.Series
}

func newTally(log KernelLog, unseen func(), kept *statefile.State) *tally {
	l := &tally{log: log, unseen: unseen, gpus: map[string]*gpuEvents{}, out: map[string][]gpu.Series{}, xid: -1, clock: -1}
	if kept != nil {
		l.restore(kept, time.Now().UnixNano())
	}
	return l
}

// counts reports whether a tally makes a family.
func counts(d *gpu.Derived) bool {
	switch d.Name {
	case catalog.XIDErrorsTotal, catalog.XIDLastSeen,
		catalog.ClockEventsTotal, catalog.ClockEventSeconds:
		return d.Field >= 0
	}
	return false
}

// bind prepares for a session.
func (l *tally) bind(t *gpu.Topology, plan *gpu.Plan) {
	l.topology, l.plan = t, plan
	l.owners, l.earlier, l.assigned = nil, nil, false
	l.samples = l.samples[:0]
	l.rows, l.dark = make([]*gpuEvents, len(t.Devices)), make([]bool, len(t.Devices))
	l.xid, l.clock = -1, -1
	for i := range plan.Derived {
		if d := &plan.Derived[i]; counts(d) {
			if plan.Fields[d.Field].ID == catalog.XIDErrors {
				l.xid = d.Field
			} else {
				l.clock = d.Field
			}
		}
	}
	if !l.counting() {
		return
	}
	now := time.Now().UnixNano()
	for row := range t.Devices {
		d := &t.Devices[row]
		if d.Entity.Kind != gpu.KindGPU {
			continue
		}
		key := cmp.Or(d.UUID, d.PCIBusID, d.Entity.String())
		g := l.gpus[key]
		if g == nil {
			g = &gpuEvents{uuid: d.UUID, sets: make([]ownerSet, 1)}
			l.gpus[key] = g
		}
		g.seen, g.pci = now, strings.ToUpper(d.PCIBusID)
		l.rows[row] = g
	}
	for len(l.gpus) > maxGPUs {
		l.forgetOne()
	}
}

// forgetOne forgets the GPU that is gone for longest.
func (l *tally) forgetOne() {
	oldest := ""
	for key, g := range l.gpus {
		if oldest == "" || g.seen < l.gpus[oldest].seen {
			oldest = key
		}
	}
	delete(l.gpus, oldest)
}

// counting reports whether there is anything to count.
func (l *tally) counting() bool { return l.xid >= 0 || l.clock >= 0 }

// add takes a sample that a Read told of a field that has events.
func (l *tally) add(s *gpu.Sample, read uint64) {
	g := l.rows[s.Row]
	if g == nil || s.Field != l.xid && s.Field != l.clock {
		return
	}
	if s.Field == l.xid {
		if _, ok := codeOf(s.Value); !ok || !g.told.beyond(s.Time, read) {
			return
		}
	}
	l.samples = append(l.samples, *s)
}

// step counts what a Read that began at begin reported, and appends the
// families that tell. Owners are those that were told meanwhile.
func (l *tally) step(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if !l.counting() {
		return list
	}
	at := c.Begin.UnixNano()
	if c.Kind == snapshot.Served {
		l.assign(c.Owners, at)
	} else {
		l.assign(l.owners, at)
	}
	forgetful := true // the log has told what it has to tell
	if l.log != nil {
		current := l.log.Current()
		forgetful, l.current = current && l.current, current
		l.kernel, l.position = l.drain(at)
	}
	for i := range l.samples {
		s := &l.samples[i]
		if g := l.rows[s.Row]; s.Field == l.xid {
			l.engine(g, s, at)
		} else if n, ok := s.Value.Int64(); ok {
			limit := int64(snapshot.MaxAgeIntervals * max(l.plan.Interval, l.plan.IntervalOf(l.clock)))
			l.changed = g.clock.add(n, s.Time, limit) || l.changed
		}
	}
	l.samples = l.samples[:0]
	for row, g := range l.rows {
		if g == nil {
			continue
		}
		if forgetful && len(g.unpaired) > 0 {
			l.changed = g.forget(at-int64(pairMemory+2*l.plan.Interval)) || l.changed
		}
		l.dark[row] = l.log == nil && l.xid >= 0 && c.Missing(l.xid, row) != ""
	}
	l.previous = at
	return l.families(list)
}

// drain takes what the kernel's log told.
func (l *tally) drain(at int64) ([]gpu.XID, string) {
	xids, position := l.log.Drain(l.kernel[:0])
	if position != l.position {
		l.changed = true
	}
	for i := range xids {
		x := &xids[i]
		g, row := l.byBus(x.PCIBusID)
		if g == nil {
			l.unseen()
			continue
		}
		e := unpaired{kernel: true, code: x.Code, count: 1, from: x.Time, to: x.Time, seen: at}
		if !g.pair(e) {
			continue
		}
		owner := g.holderAt(x.Time).owner
		if len(owner) == 0 && x.PodUID != "" && row >= 0 {
			owner = l.ownerOf(x.PodUID, row)
		}
		g.count(owner, x.Code, x.Time)
		l.changed = true
	}
	return xids, position
}

// byBus returns the GPU at a PCI address, and its row; -1 if it is not here now.
func (l *tally) byBus(id string) (*gpuEvents, int) {
	id = strings.ToUpper(id)
	for row, g := range l.rows {
		if g != nil && g.pci == id {
			return g, row
		}
	}
	var latest *gpuEvents
	for _, g := range l.gpus {
		if g.pci == id && (latest == nil || g.seen > latest.seen) {
			latest = g
		}
	}
	return latest, -1
}

// codeOf returns the XID of a sample; false where it says that there was none.
func codeOf(v gpu.Value) (code int64, ok bool) {
	n, ok := v.Number()
	return int64(n), ok && n >= 1
}

// engine counts an XID that the engine told.
func (l *tally) engine(g *gpuEvents, s *gpu.Sample, begin int64) {
	code, _ := codeOf(s.Value)
	e := unpaired{code: code, count: 1, from: s.Time, to: s.Time, seen: begin}
	if s.Time >= begin && l.previous > 0 {
		e.from = l.previous // dated by the Read that found it
	}
	l.changed = true
	if l.log != nil && !g.pair(e) {
		return
	}
	g.count(g.holderAt(e.from).owner, code, s.Time)
}

// ownerOf returns the labels that a pod has as an owner of a GPU, or of one of
// its instances; nil where it is none.
func (l *tally) ownerOf(podUID string, gpuRow int) []gpu.Label {
	for _, owners := range []*gpu.Owners{l.owners, l.earlier} {
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

// assign notes who holds the GPUs from at on.
func (l *tally) assign(owners *gpu.Owners, at int64) {
	if l.assigned && owners == l.owners {
		return
	}
	l.earlier, l.owners, l.assigned = l.owners, owners, true
	for row, g := range l.rows {
		if g != nil {
			g.hold(sortedLabels(owners.Of(row)), at)
		}
	}
}

func sortedLabels(labels []gpu.Label) []gpu.Label {
	out := slices.DeleteFunc(slices.Clone(labels), func(x gpu.Label) bool { return x.Value == "" })
	slices.SortStableFunc(out, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func keyOfLabels(labels []gpu.Label) string {
	var b strings.Builder
	for _, x := range labels {
		b.WriteString(strconv.Quote(x.Name) + "=" + strconv.Quote(x.Value) + ",")
	}
	return b.String()
}

// hold notes the owner from at on, and opens its series.
func (g *gpuEvents) hold(owner []gpu.Label, at int64) {
	key := keyOfLabels(owner)
	if n := len(g.holders); n == 0 || g.holders[n-1].key != key {
		if n == maxHolders {
			g.holders = slices.Delete(g.holders, 0, 1)
		}
		g.holders = append(g.holders, holder{at: at, key: key, owner: owner})
	}
	// Owners who are gone and whom nothing struck leave nothing behind.
	g.sets = append(g.sets[:1], slices.DeleteFunc(g.sets[1:], func(s ownerSet) bool {
		return s.key != key && !slices.ContainsFunc(s.counts, func(c xidCount) bool { return c.count > 0 })
	})...)
	g.set(owner, at)
}

// holderAt returns who was last told to hold the GPU before a time.
func (g *gpuEvents) holderAt(at int64) holder {
	for i := len(g.holders) - 1; i >= 0; i-- {
		if g.holders[i].at <= at {
			return g.holders[i]
		}
	}
	return holder{}
}

// present returns the key of the present owner.
func (g *gpuEvents) present() string {
	if n := len(g.holders); n > 0 {
		return g.holders[n-1].key
	}
	return ""
}

// set returns what happened under an owner. Where there are too many, the one
// that was not seen for longest becomes part of no owner's.
func (g *gpuEvents) set(owner []gpu.Label, at int64) *ownerSet {
	key := keyOfLabels(owner)
	for i := range g.sets {
		if s := &g.sets[i]; s.key == key {
			s.seen = max(s.seen, at)
			return s
		}
	}
	if len(g.sets) > maxOwnerSets {
		oldest := 0
		for i := 1; i < len(g.sets); i++ {
			if g.sets[i].key != g.present() && (oldest == 0 || g.sets[i].seen < g.sets[oldest].seen) {
				oldest = i
			}
		}
		for _, c := range g.sets[oldest].counts {
			g.sets[0].add(c.code, c.count, c.last)
		}
		g.sets = slices.Delete(g.sets, oldest, oldest+1)
	}
	g.sets = append(g.sets, ownerSet{key: key, owner: owner, seen: at})
	return &g.sets[len(g.sets)-1]
}

func (g *gpuEvents) count(owner []gpu.Label, code, at int64) { g.set(owner, at).add(code, 1, at) }

func (s *ownerSet) add(code, count, at int64) {
	c := s.of(code)
	c.count += count
	c.last = max(c.last, at)
}

// of returns the count of an XID, or that of the others if there are too many.
func (s *ownerSet) of(code int64) *xidCount {
	at, found := slices.BinarySearchFunc(s.counts, code, func(c xidCount, code int64) int { return cmp.Compare(c.code, code) })
	if found {
		return &s.counts[at]
	}
	if len(s.counts) >= maxCodes && code != otherXIDs {
		return s.of(otherXIDs)
	}
	label := "other"
	if code != otherXIDs {
		label = strconv.FormatInt(code, 10)
	}
	s.counts = slices.Insert(s.counts, at, xidCount{code: code, labels: []gpu.Label{{Name: "xid", Value: label}}})
	return &s.counts[at]
}
