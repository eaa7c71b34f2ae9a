package accounting

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// PodOf returns the UIDs of the pods that a process of the host belongs to, the outermost first; nil
// for a process in no pod. The error wraps one of gpu's if the pods of processes cannot be found
// here. It is called on the Loop's goroutine.
type PodOf func(pid uint32) (uids []string, err error)

// What attribution can lack, as in dcgm_exporter_attribution_unavailable.
const (
	whatOwners             = "owners"              // of a device
	whatUtilization        = "utilization"         // of a device that has owners
	whatProcesses          = "processes"           // of a shared device
	whatProcessUtilization = "process_utilization" // likewise
	whatProcessMemory      = "process_memory"      // likewise
	whatPodOfProcess       = "pod_of_process"
	whatPodUID             = "pod_uid" // of an owner that shares a device
	whatMIGShare           = "mig_share"
)

// An unavailable is something that attribution does not know in this cycle, and why.
type unavailable struct{ what, reason string }

// An ownerUsage is the account of one owner: what it has used of one entity so far.
type ownerUsage struct {
	uid    string
	labels []gpu.Label
	share  float64 // the share of the entity that is assigned to it
	seen   int64

	active, allocated float64 // GPU seconds
	energy            float64 // joules

	use // of this cycle
}

// A use is what is known of an account in one cycle.
type use struct {
	util, memory gpu.Value // a part of the entity's time, 0 to 1; bytes
	busy, bytes  float64   // of its processes, as they say
	// noBusy and noBytes are set where a process does not say it.
	noBusy, noBytes bool
	// What the counters below got their part of, and may be shown.
	hasActive, hasAllocated, hasEnergy bool
}

// deviceTotals are what an entity itself did, over all sessions, and how much of it no pod had.
type deviceTotals struct {
	meter meter // of a GPU
	slice slice // which it was in the latest cycle
	seen  int64 // the latest cycle

	// What its GPU's meter counted that is not accounted for, and since when: its activity was not
	// known meanwhile.
	seconds, joules    float64
	activeAt, energyAt int64

	active, energy       float64 // unattributed
	hasActive, hasEnergy bool    // in this cycle
}

// A slice is the part of its GPU that an entity is.
type slice struct {
	partitioned bool
	slices      float64
}

// A meter counts the time and the energy of a GPU from one cycle to the next, whatever its
// partition is: that of the cycle has them all, so that none is accounted for twice.
type meter struct {
	before, seen int64   // the previous cycle, and this one
	energyAt     int64   // when the counter was last known
	joules       float64 // the counter then

	// Of this cycle: since the previous one, and since the counter was known before.
	seconds, used float64
	known         bool // the counter is
}

// An Accountant divides devices among their owners. Its accounts outlive sessions, and its results
// are valid until the next cycle.
type Accountant struct {
	virtual, strict                        bool
	scaledBusy, scaledBytes, ownersDropped prometheus.Counter

	epoch    time.Time
	accounts map[accountKey]*ownerUsage
	totals   map[gpu.Identity]*deviceTotals
	// dropped are the owners of this time that have no account, so that each is counted once.
	dropped, droppedBefore map[accountKey]struct{}

	session
}

// podsOfProcess are the UIDs of a process's pods, or why they are not known.
type podsOfProcess struct {
	uids []string
	err  error
}

// A session is all that an Accountant knows of one topology and plan. Bind replaces it as a whole:
// nothing of it is true of the next topology.
type session struct {
	podOf  PodOf
	pods   map[uint32]podsOfProcess // in this cycle
	inputs inputs
	maxGap time.Duration // above which nothing is known of the time between

	topology *gpu.Topology
	entities []sharedDevice
	at       []int       // row → index of its entity, -1 for none
	owners   *gpu.Owners // whose accounts the entities have

	missing       []unavailable
	missingLabels map[unavailable][]gpu.Label
	families      []gpu.Family
	infos         []gpu.Series
}

// Options configure an Accountant.
type Options struct {
	// VirtualGPUs adds each owner's own part to the fields of utilization and of memory in use, as
	// dcgm-exporter does under --kubernetes-virtual-gpus. The page repeats everything else.
	VirtualGPUs bool
	// Strict has 0 for a part that is not known, as dcgm-exporter has.
	Strict bool
	// Registerer gets the Accountant's own series. Required.
	Registerer prometheus.Registerer
}

// Of what the processes' own figures were scaled down to the device's.
const (
	scaledUtilization = "utilization"
	scaledMemory      = "memory"
)

// New returns an Accountant without any account.
func New(opt Options) *Accountant {
	scaled := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dcgm_exporter_attribution_scaled_total",
		Help: "Times that the processes of a shared device claimed more than the device had and were scaled down.",
	}, []string{"what"})
	dropped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dcgm_exporter_attribution_owners_dropped_total",
		Help: "Owners left out because there were more than the exporter accounts for; each once.",
	})
	opt.Registerer.MustRegister(scaled, dropped)
	return &Accountant{
		virtual: opt.VirtualGPUs, strict: opt.Strict, accounts: map[accountKey]*ownerUsage{}, totals: map[gpu.Identity]*deviceTotals{},
		dropped: map[accountKey]struct{}{}, droppedBefore: map[accountKey]struct{}{},
		scaledBusy: scaled.WithLabelValues(scaledUtilization), scaledBytes: scaled.WithLabelValues(scaledMemory), ownersDropped: dropped,
	}
}

// A deriver is an Accountant with what finds the pods of the processes of one source.
type deriver struct {
	*Accountant
	podOf PodOf
}

// Deriver returns what makes the Accountant's families for plans that Extend returned. PodOf is nil
// where nothing finds the pod of a process. Accounts go on from one Deriver to the next.
func (s *Accountant) Deriver(podOf PodOf) snapshot.Deriver { return deriver{s, podOf} }

// Bind implements snapshot.Deriver.
func (d deriver) Bind(t *gpu.Topology, plan *gpu.Plan) {
	d.session = newSession(t, plan, d.podOf)
	for i := range d.entities {
		e := &d.entities[i]
		if d.totals[e.id] == nil {
			d.totals[e.id] = &deviceTotals{}
		}
		e.totals = d.totals[e.id]
	}
	d.rebuildSeries()
}

// Derive implements snapshot.Deriver: it divides what a cycle read among the owners.
func (s *Accountant) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Kind != snapshot.Served || !s.inputs.present {
		return list
	}
	at := s.elapsed(c.Now)
	if c.Owners != s.owners {
		s.assign(c.Owners, at)
		s.sweep(at)
	}
	s.missing = s.missing[:0]
	s.readProcesses(c)
	for i := range s.entities {
		if e := &s.entities[i]; e.root == e.row {
			s.readMeter(c, e, at)
		}
	}
	for i := range s.entities {
		e := &s.entities[i]
		if e.unknown {
			s.miss(whatOwners, snapshot.ReasonNoData)
			e.totals.hasActive, e.totals.hasEnergy = false, false
			continue
		}
		s.accrue(e)
		s.divide(c, e)
		s.addSeconds(c, e, at)
		s.chargeEnergy(c, e, at)
		e.totals.seen = at
		for _, a := range e.accounts {
			a.seen = at
		}
	}
	if s.virtual {
		list = s.appendOwn(list, c)
	}
	return s.appendFamilies(list)
}

// elapsed returns the nanoseconds from an hour before the first cycle to now, which no setting of
// the wall clock changes.
func (s *Accountant) elapsed(now time.Time) int64 {
	if s.epoch.IsZero() {
		s.epoch = now.Add(-time.Hour)
	}
	return int64(now.Sub(s.epoch))
}

// Unavailable implements snapshot.Deriver: what is missing is a family of its own.
func (s *Accountant) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	return list
}

// share returns which part of its GPU an entity is, by compute slices. Of a partitioned GPU it is
// what is in no instance.
func (s *session) share(c *snapshot.Cycle, e *sharedDevice) (float64, bool) {
	if !e.instance && !e.partitioned {
		return 1, true
	}
	if e.root < 0 {
		return 0, false
	}
	total, _ := c.Value(s.inputs.slices, e.root).Number()
	slices, used := e.slices, s.entities[s.at[e.root]].slices
	if slices == 0 && !e.partitioned || used < 0 || total < max(used, 1) {
		return 0, false
	}
	if e.partitioned {
		slices = total - used
	}
	return slices / total, true
}

// readMeter advances the meter of a GPU. The energy of a time that was too long is not counted, nor
// is that before the driver was loaded again, when its counter is less than it was.
func (s *session) readMeter(c *snapshot.Cycle, e *sharedDevice, at int64) {
	m := &e.totals.meter
	m.seconds, m.used = s.since(m.seen, at), 0
	m.before, m.seen = m.seen, at
	millijoules, known := s.value(c, s.inputs.energy, e.row)
	if m.known = known; !known {
		return
	}
	joules := millijoules / 1e3
	if s.since(m.energyAt, at) > 0 {
		m.used = max(joules-m.joules, 0)
	}
	m.joules, m.energyAt = joules, at
}

// accrue adds what the meter of its GPU counted to the totals of an entity. One that was not there in
// the cycle before, or was another part of its GPU, begins there: what was before is others'.
func (s *session) accrue(e *sharedDevice) {
	if e.root < 0 {
		return
	}
	m, l := s.meterOf(e), e.totals
	if p := (slice{e.partitioned, e.slices}); l.seen != m.before || l.slice != p {
		l.slice = p
		l.seconds, l.joules, l.activeAt, l.energyAt = 0, 0, m.before, m.before
	}
	l.seconds += m.seconds
	l.joules += m.used
}

// meterOf returns the meter of the GPU of an entity, which is watched.
func (s *session) meterOf(e *sharedDevice) *meter { return &s.entities[s.at[e.root]].totals.meter }

// addSeconds advances the counters of seconds. The time since the previous cycle is that of the
// present owners, so that one that was seen once has its seconds. A time of which nothing is known
// is not accounted for, nor is activity whose share is not known.
func (s *session) addSeconds(c *snapshot.Cycle, e *sharedDevice, at int64) {
	l := e.totals
	l.hasActive = false
	share, known := s.share(c, e)
	if !known {
		if len(e.accounts) > 0 {
			s.miss(whatMIGShare, snapshot.ReasonNoData)
		}
		return
	}
	seconds := s.meterOf(e).seconds * share
	for _, a := range e.accounts {
		a.allocated += seconds * a.share
		a.hasAllocated = true
	}
	if s.since(l.activeAt, at) == 0 { // from here on there will be something to report
		l.seconds, l.activeAt = 0, at
	}
	if e.device.IsAbsent() {
		return
	}
	seconds = l.seconds * share
	l.seconds, l.activeAt = 0, at
	for _, a := range e.accounts {
		if util, ok := a.util.Number(); ok {
			a.active += util * seconds
			a.hasActive = true
		}
	}
	if rest, ok := e.util.Number(); ok {
		l.active += rest * seconds
		l.hasActive = true
	}
}

// since returns the seconds from one time to another, 0 where too many passed.
func (s *session) since(from, to int64) float64 {
	if to-from > int64(s.maxGap) {
		return 0
	}
	return float64(to-from) / float64(time.Second)
}

// chargeEnergy divides an entity's part of the energy that its GPU used since it was last charged.
// The active part, in proportion to the time in which anything ran, goes to the owners that were
// active; the idle part goes to the owners by the share that each holds. The remainder of both is
// unattributed, and so is all of it where there is no owner, whatever ran. While the activity of an
// owner is not known its counter is not shown, and grows by its idle part alone.
func (s *session) chargeEnergy(c *snapshot.Cycle, e *sharedDevice, at int64) {
	l := e.totals
	l.hasEnergy = false
	share, known := s.share(c, e)
	util, active := e.device.Number()
	unowned := len(e.accounts) == 0
	if !known || !s.meterOf(e).known || !active && !e.partitioned && !unowned {
		return
	}
	used := l.joules * share
	if s.since(l.energyAt, at) == 0 {
		used = 0
	}
	l.joules, l.energyAt = 0, at
	idle := used * (1 - util)
	left := idle
	for _, a := range e.accounts {
		left -= idle * a.share
		part, known := a.util.Number()
		a.energy += idle*a.share + used*part
		a.hasEnergy = known || e.partitioned
	}
	rest, known := e.util.Number()
	l.energy += max(left, 0)
	l.energy += used * rest
	l.hasEnergy = known || e.partitioned || unowned
}

func (s *session) miss(what, reason string) {
	if u := (unavailable{what, reason}); !slices.Contains(s.missing, u) {
		s.missing = append(s.missing, u)
	}
}

// sortMissing puts what is unavailable in a stable order.
func (s *session) sortMissing() {
	slices.SortFunc(s.missing, func(a, b unavailable) int {
		return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.reason, b.reason))
	})
}
