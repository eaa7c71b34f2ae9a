// Package accounting divides shared GPUs among their owners.
//
// Its Accountant is a snapshot.Deriver. It combines the devices' own values, the owners that attributors reported and
// the processes that the source reported. It makes the dcgm_pod_gpu_* families, the remainder that belongs to no pod
// (dcgm_gpu_unattributed_*), and the reasons for what is unknown. The shares of the pods and the remainder add up to
// the device's own value.
//
// Accounts outlive sessions and end with their owners. The package reads no files and calls no driver.
package accounting

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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
	virtualGPUs   bool
	scaled        *prometheus.CounterVec
	ownersDropped prometheus.Counter

	accounts map[accountKey]*ownerUsage
	totals   map[gpu.Identity]*deviceTotals
	// dropped holds the current owners that have no account, so that each is counted once.
	dropped map[accountKey]bool

	session
}

// New returns an Accountant without accounts. Its own metrics are registered with reg. VirtualGPUs adds series with
// each owner's share to the utilization and used-memory fields, as dcgm-exporter does with --kubernetes-virtual-gpus;
// the page repeats all other series for each owner.
func New(reg prometheus.Registerer, virtualGPUs bool) *Accountant {
	s := &Accountant{
		virtualGPUs: virtualGPUs, accounts: map[accountKey]*ownerUsage{}, totals: map[gpu.Identity]*deviceTotals{},
		scaled: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "dcgm_exporter_attribution_scaled_total",
			Help: "Times that the processes of a shared device reported more use than the device, " +
				"so that their use was scaled down.",
		}, []string{"what"}),
		ownersDropped: promauto.With(reg).NewCounter(prometheus.CounterOpts{
			Name: "dcgm_exporter_attribution_owners_dropped_total",
			Help: "Owners without an account because the maximum number of accounts was reached.",
		}),
	}
	for _, what := range claimNames {
		s.scaled.WithLabelValues(what)
	}
	return s
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

// Derive implements snapshot.Deriver. It divides a reading among the owners.
func (s *Accountant) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Final {
		return list
	}
	s.cycle = c
	if c.Owners != s.owners {
		s.assign(c.Owners)
		s.sweep()
	}
	clear(s.missing)
	for _, e := range s.entities {
		e.reading = reading{}
		clear(e.totals.now[:])
		for _, a := range e.accounts {
			a.now, a.claims = [measures]gpu.Value{}, claims{}
		}
	}
	s.readProcesses()
	for _, e := range s.entities { // GPUs come before their instances
		if !e.instance {
			s.readMeter(&e.totals.meter, e.row)
		}
		s.charge(e)
	}
	if s.virtualGPUs {
		list = s.appendOwn(list)
	}
	return s.appendFamilies(list)
}

// charge divides the use of an entity in this cycle.
func (s *Accountant) charge(e *sharedDevice) {
	if e.unknown {
		s.miss(whatOwners, snapshot.ReasonNoData)
		return
	}
	s.accrue(e)
	s.divide(e)
	if share, known := s.share(e); known {
		s.addSeconds(e, share)
		s.chargeEnergy(e, share)
	} else if len(e.accounts) > 0 {
		s.miss(whatMIGShare, snapshot.ReasonNoData)
	}
	e.totals.seen = s.cycle.Now
	for _, a := range e.accounts {
		a.seen = s.cycle.Now
	}
}

// Unavailable implements snapshot.Deriver. The unknowns have a family of their own, so it adds nothing.
func (s *Accountant) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	return list
}

// share returns which fraction of its GPU an entity is, by compute slices. For a partitioned GPU, it is the fraction
// that belongs to no instance.
func (s *session) share(e *sharedDevice) (share float64, known bool) {
	if !e.instance && !e.partitioned {
		return 1, true
	}
	if e.gpu == nil {
		return 0, false
	}
	total, _ := s.cycle.Value(catalog.MIGMaxSlices, e.gpu.row).Number()
	used, part := e.gpu.slices, e.slices
	if e.partitioned {
		part = total - used
	}
	return part / total, total >= max(used, 1) // used is infinite if it is unknown
}

// readMeter advances the meter of the GPU in a row. It counts no energy after too long a gap, or if the counter
// decreased because the driver was reloaded.
func (s *session) readMeter(m *meter, row int) {
	m.seconds, m.used = s.since(m.seen), 0
	m.before, m.seen = m.seen, s.cycle.Now
	millijoules, known := s.cycle.Value(catalog.TotalEnergyConsumption, row).Number()
	if m.known = known; !known {
		return
	}
	joules := millijoules / 1e3
	if s.since(m.energyAt) > 0 {
		m.used = max(joules-m.joules, 0)
	}
	m.joules, m.energyAt = joules, s.cycle.Now
}

// accrue adds what its GPU's meter counted to the pending totals of an entity. An entity that is new, or whose
// partitioning changed, starts with this cycle.
func (s *session) accrue(e *sharedDevice) {
	if e.gpu == nil {
		return
	}
	m, l := &e.gpu.totals.meter, e.totals
	if !l.seen.Equal(m.before) || l.partitioned != e.partitioned || l.slices != e.slices {
		l.partitioned, l.slices = e.partitioned, e.slices
		l.seconds, l.joules, l.activeAt, l.energyAt = 0, 0, m.before, m.before
	}
	l.seconds += m.seconds
	l.joules += m.used
}

// addSeconds increases the seconds counters of an entity whose share of its GPU is known. The time since the previous
// cycle is charged to the current owners, so that an owner seen in only one cycle is charged too. Activity is not
// counted after it was unknown for too long.
func (s *session) addSeconds(e *sharedDevice, share float64) {
	l := e.totals
	for _, a := range e.accounts {
		a.count(allocated, e.gpu.totals.meter.seconds*share*a.share)
	}
	seconds := l.seconds * share
	if s.since(l.activeAt) == 0 {
		seconds = 0
	} else if e.device.IsAbsent() {
		return
	}
	l.seconds, l.activeAt = 0, s.cycle.Now
	for _, a := range e.accounts {
		if util, ok := a.now[utilization].Number(); ok {
			a.count(active, util*seconds)
		}
	}
	if rest, ok := l.now[utilization].Number(); ok {
		l.count(active, rest*seconds)
	}
}

// since returns the seconds from a time until this cycle, or 0 if the gap is too long. Setting the wall clock does not
// affect it, because the times have monotonic readings.
func (s *session) since(from time.Time) float64 {
	passed := s.cycle.Now.Sub(from)
	if passed > s.maxGap {
		return 0
	}
	return passed.Seconds()
}

// chargeEnergy charges the energy that an entity used since the last charge to its owners. The active part, which is
// proportional to the time in which anything ran, is divided by the owners' activity. The idle part is divided by the
// shares that they hold. The remainder is unattributed; without owners, that is all energy. While an owner's activity
// is unknown, its counter is hidden and grows only by the idle part.
func (s *session) chargeEnergy(e *sharedDevice, share float64) {
	l := e.totals
	util, known := e.device.Number()
	hidden := func(known bool) bool { return !known && !e.partitioned && len(e.accounts) > 0 }
	if !e.gpu.totals.meter.known || hidden(known) {
		return
	}
	used := l.joules * share
	if s.since(l.energyAt) == 0 {
		used = 0
	}
	l.joules, l.energyAt = 0, s.cycle.Now
	idle := used * (1 - util)
	left := idle
	for _, a := range e.accounts {
		left -= idle * a.share
		part, known := a.now[utilization].Number()
		if a.count(energy, idle*a.share+used*part); hidden(known) {
			a.now[energy] = gpu.Value{}
		}
	}
	rest, known := l.now[utilization].Number()
	l.count(energy, max(left, 0))
	if l.count(energy, used*rest); hidden(known) {
		l.now[energy] = gpu.Value{}
	}
}

// miss records what is unknown in this cycle, and why.
func (s *session) miss(what, reason string) { s.missing[[2]string{what, reason}] = true }
