package accounting

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// PodOf returns the UIDs of the pods that a host process belongs to, outermost first, or nil if it is in no pod. The
// error wraps one of gpu's if the pods of processes cannot be determined. PodOf is called on the Loop's goroutine.
type PodOf func(pid uint32) (uids []string, err error)

// Values of the what label of dcgm_exporter_attribution_unavailable: what is unknown.
const (
	whatOwners             = "owners"              // the owners of a device
	whatUtilization        = "utilization"         // the utilization of a device that has owners
	whatProcesses          = "processes"           // the processes of a shared device
	whatProcessUtilization = "process_utilization" // the utilization of a shared device's processes
	whatProcessMemory      = "process_memory"      // the memory of a shared device's processes
	whatPodOfProcess       = "pod_of_process"
	whatPodUID             = "pod_uid" // the pod UID of an owner of a shared device
	whatMIGShare           = "mig_share"
)

// measure is a quantity that is divided among owners.
type measure int

const (
	utilization measure = iota // fraction of the entity's time, 0 to 1
	memory                     // bytes
	active                     // GPU seconds; this and the following measures are running totals
	allocated                  // GPU seconds
	energy                     // joules
	measures
)

// usage is what an owner, or no owner, uses of an entity.
type usage struct {
	sums [measures]float64   // running totals
	now  [measures]gpu.Value // values of this cycle; absent if unknown
}

// count adds v to a running total and publishes the total.
func (u *usage) count(m measure, v float64) {
	u.sums[m] += v
	u.now[m] = gpu.Float(u.sums[m])
}

// ownerUsage is the account of one owner of one entity.
type ownerUsage struct {
	usage
	uid    string
	labels []gpu.Label
	share  float64 // fraction of the entity that is assigned to the owner
	seen   time.Time
	claims claims // figures of the owner's processes in this cycle
}

// deviceTotals holds the totals of an entity. They outlive sessions.
type deviceTotals struct {
	usage           // unattributed
	meter meter     // of a GPU
	seen  time.Time // the latest cycle with the entity
	// partitioned and slices describe the entity in that cycle.
	partitioned bool
	slices      float64

	// Seconds and joules that the GPU's meter counted, but that are not charged yet because the activity was unknown.
	seconds, joules    float64
	activeAt, energyAt time.Time
}

// meter measures the time and the energy of a GPU from one cycle to the next. Each interval is charged by the partition
// of the cycle that ends it, so that nothing is charged twice.
type meter struct {
	before, seen time.Time // times of the previous cycle and of this one
	energyAt     time.Time // when the energy counter was last known
	joules       float64   // the energy counter at that time

	// seconds since the previous cycle, and joules since the energy counter was last known.
	seconds, used float64
	known         bool // whether the energy counter is known in this cycle
}

// Accountant divides devices among their owners. Its accounts outlive sessions.
type Accountant struct {
	opt           Options
	scaled        *prometheus.CounterVec
	ownersDropped prometheus.Counter

	accounts map[accountKey]*ownerUsage
	totals   map[gpu.Identity]*deviceTotals
	// dropped holds the current owners that have no account, so that each is counted once.
	dropped map[accountKey]bool

	session
}

// Options configure an Accountant.
type Options struct {
	// VirtualGPUs adds series with each owner's share to the utilization and used-memory fields, as dcgm-exporter does
	// with --kubernetes-virtual-gpus. All other series are repeated for each owner by the page.
	VirtualGPUs bool
	// Registerer is for the Accountant's own metrics. Required.
	Registerer prometheus.Registerer
}

// New returns an Accountant without accounts.
func New(opt Options) *Accountant {
	scaled := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "dcgm_exporter_attribution_scaled_total",
		Help: "Times that the processes of a shared device reported more use than the device, " +
			"so that their use was scaled down.",
	}, []string{"what"})
	dropped := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "dcgm_exporter_attribution_owners_dropped_total",
		Help: "Owners without an account because the maximum number of accounts was reached.",
	})
	opt.Registerer.MustRegister(scaled, dropped)
	for _, what := range claimed() {
		scaled.WithLabelValues(what)
	}
	return &Accountant{
		opt: opt, accounts: map[accountKey]*ownerUsage{}, totals: map[gpu.Identity]*deviceTotals{},
		scaled: scaled, ownersDropped: dropped,
	}
}

// deriver is an Accountant with the PodOf of one source.
type deriver struct {
	*Accountant
	podOf PodOf
}

// Deriver returns a snapshot.Deriver for plans that Extend returned. A nil PodOf means that the pods of processes
// cannot be found. Accounts carry over to the next Deriver.
func (s *Accountant) Deriver(podOf PodOf) snapshot.Deriver {
	if podOf == nil {
		podOf = func(uint32) ([]string, error) { return nil, gpu.ErrUnavailable }
	}
	return deriver{s, podOf}
}

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
}

// Derive implements snapshot.Deriver. It divides a reading among the owners.
func (s *Accountant) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Final {
		return list
	}
	at := c.Now
	if c.Owners != s.owners {
		s.assign(c.Owners, at)
		s.sweep(at)
	}
	clear(s.missing)
	for i := range s.entities {
		s.entities[i].begin()
	}
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
			continue
		}
		s.accrue(e)
		s.divide(c, e)
		share, known := s.share(c, e)
		if known {
			s.addSeconds(e, share, at)
			s.chargeEnergy(e, share, at)
		} else if len(e.accounts) > 0 {
			s.miss(whatMIGShare, snapshot.ReasonNoData)
		}
		e.totals.seen = at
		for _, a := range e.accounts {
			a.seen = at
		}
	}
	if s.opt.VirtualGPUs {
		list = s.appendOwn(list, c)
	}
	return s.appendFamilies(list)
}

// begin clears the state of the previous cycle.
func (e *sharedDevice) begin() {
	e.reading = reading{}
	clear(e.totals.now[:])
	for _, a := range e.accounts {
		clear(a.now[:])
		a.claims = claims{}
	}
}

// Unavailable implements snapshot.Deriver. The unknowns have a family of their own, so it adds nothing.
func (s *Accountant) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	return list
}

// share returns which fraction of its GPU an entity is, by compute slices. For a partitioned GPU, it is the fraction
// that belongs to no instance.
func (s *session) share(c *snapshot.Cycle, e *sharedDevice) (float64, bool) {
	if !e.instance && !e.partitioned {
		return 1, true
	}
	if e.root < 0 {
		return 0, false
	}
	total, _ := c.Value(catalog.MIGMaxSlices, e.root).Number()
	used := s.entities[s.at[e.root]].slices
	if total < max(used, 1) { // also if used is unknown
		return 0, false
	}
	if e.partitioned {
		return (total - used) / total, true
	}
	return e.slices / total, true
}

// readMeter advances the meter of a GPU. It counts no energy after too long a gap, or if the counter decreased because
// the driver was reloaded.
func (s *session) readMeter(c *snapshot.Cycle, e *sharedDevice, at time.Time) {
	m := &e.totals.meter
	m.seconds, m.used = s.since(m.seen, at), 0
	m.before, m.seen = m.seen, at
	millijoules, known := s.value(c, catalog.TotalEnergyConsumption, e.row)
	if m.known = known; !known {
		return
	}
	joules := millijoules / 1e3
	if s.since(m.energyAt, at) > 0 {
		m.used = max(joules-m.joules, 0)
	}
	m.joules, m.energyAt = joules, at
}

// accrue adds what its GPU's meter counted to the pending totals of an entity. An entity that is new, or whose
// partitioning changed, starts with this cycle.
func (s *session) accrue(e *sharedDevice) {
	if e.root < 0 {
		return
	}
	m, l := s.meterOf(e), e.totals
	if !l.seen.Equal(m.before) || l.partitioned != e.partitioned || l.slices != e.slices {
		l.partitioned, l.slices = e.partitioned, e.slices
		l.seconds, l.joules, l.activeAt, l.energyAt = 0, 0, m.before, m.before
	}
	l.seconds += m.seconds
	l.joules += m.used
}

// meterOf returns the meter of the GPU of an entity. The GPU must be watched.
func (s *session) meterOf(e *sharedDevice) *meter { return &s.entities[s.at[e.root]].totals.meter }

// addSeconds adds to the counters of seconds of an entity that is a known share of its GPU. The time since the previous
// cycle is charged to the current owners, so that an owner seen in only one cycle is charged too. Activity is not
// counted after it was unknown for too long.
func (s *session) addSeconds(e *sharedDevice, share float64, at time.Time) {
	l := e.totals
	seconds := s.meterOf(e).seconds * share
	for _, a := range e.accounts {
		a.count(allocated, seconds*a.share)
	}
	seconds = l.seconds * share
	if s.since(l.activeAt, at) == 0 {
		seconds = 0
	} else if e.device.IsAbsent() {
		return
	}
	l.seconds, l.activeAt = 0, at
	for _, a := range e.accounts {
		if util, ok := a.now[utilization].Number(); ok {
			a.count(active, util*seconds)
		}
	}
	if rest, ok := l.now[utilization].Number(); ok {
		l.count(active, rest*seconds)
	}
}

// since returns the seconds between two times, or 0 if the gap is too long. Setting the wall clock does not affect it,
// because the times have monotonic readings.
func (s *session) since(from, to time.Time) float64 {
	passed := to.Sub(from)
	if passed > s.maxGap {
		return 0
	}
	return float64(passed) / float64(time.Second)
}

// chargeEnergy charges the energy that an entity used since the last charge to its owners. The active part, which is
// proportional to the time in which anything ran, is divided by the owners' activity. The idle part is divided by the
// shares that they hold. The remainder is unattributed; without owners, that is all energy. While an owner's activity
// is unknown, its counter is hidden and grows only by the idle part.
func (s *session) chargeEnergy(e *sharedDevice, share float64, at time.Time) {
	l := e.totals
	util, known := e.device.Number()
	unowned := len(e.accounts) == 0
	if !s.meterOf(e).known || !known && !e.partitioned && !unowned {
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
		part, known := a.now[utilization].Number()
		a.count(energy, idle*a.share+used*part)
		if !known && !e.partitioned {
			a.now[energy] = gpu.Value{}
		}
	}
	rest, known := l.now[utilization].Number()
	l.count(energy, max(left, 0))
	l.count(energy, used*rest)
	if !known && !e.partitioned && !unowned {
		l.now[energy] = gpu.Value{}
	}
}

func (s *session) miss(what, reason string) { s.missing[unavailable{what, reason}] = true }
