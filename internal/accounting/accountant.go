package accounting

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// PodOf returns the UIDs of the pods that a process of the host belongs to, the outermost first; nil
// for a process in no pod. The error wraps one of gpu's if the pods of processes cannot be found
// here. It is called on the Loop's goroutine.
type PodOf func(pid uint32) (uids []string, err error)

// The words of dcgm_exporter_attribution_unavailable{what}: the missing thing.
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

// A measure is a thing that is divided.
type measure int

const (
	utilization measure = iota // a part of the entity's time, 0 to 1
	memory                     // bytes
	active                     // GPU seconds, all that follow since the account began
	allocated                  // GPU seconds
	energy                     // joules
	measures
)

// A usage is an owner's use of an entity, or nobody's.
type usage struct {
	sums [measures]float64   // of those that are counted
	now  [measures]gpu.Value // in this cycle; absent where it is not known
}

// count adds to a measure that is counted, and has it shown.
func (u *usage) count(m measure, v float64) {
	u.sums[m] += v
	u.now[m] = gpu.Float(u.sums[m])
}

// An ownerUsage is the account of one owner of one entity.
type ownerUsage struct {
	usage
	uid    string
	labels []gpu.Label
	share  float64 // the part of the entity that is assigned to it
	seen   time.Time
	claims claims // of its processes, in this cycle
}

// deviceTotals are the figures of an entity itself, over all sessions.
type deviceTotals struct {
	usage           // of no pod
	meter meter     // of a GPU
	seen  time.Time // the latest cycle
	// The part of its GPU that the entity was in that cycle.
	partitioned bool
	slices      float64

	// Counted by its GPU's meter and not accounted for yet, since then: its activity was not known.
	seconds, joules    float64
	activeAt, energyAt time.Time
}

// A meter counts the time and the energy of a GPU from one cycle to the next. The partition of a
// cycle is charged with all of it, so that none is accounted for twice.
type meter struct {
	before, seen time.Time // the previous cycle, and this one
	energyAt     time.Time // when the counter was last known
	joules       float64   // the counter then

	// Of this cycle: since the previous one, and since the counter was known before.
	seconds, used float64
	known         bool // the counter is
}

// An Accountant divides devices among their owners. Its accounts outlive sessions.
type Accountant struct {
	opt           Options
	scaled        *prometheus.CounterVec
	ownersDropped prometheus.Counter

	accounts map[accountKey]*ownerUsage
	totals   map[gpu.Identity]*deviceTotals
	// dropped are the present owners that have no account, so that each is counted once.
	dropped map[accountKey]bool

	session
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
	for _, what := range claimed() {
		scaled.WithLabelValues(what)
	}
	return &Accountant{
		opt: opt, accounts: map[accountKey]*ownerUsage{}, totals: map[gpu.Identity]*deviceTotals{},
		scaled: scaled, ownersDropped: dropped,
	}
}

// A deriver is an Accountant with the finder of the pods of one source's processes.
type deriver struct {
	*Accountant
	podOf PodOf
}

// Deriver returns the maker of the Accountant's families for plans that Extend returned. PodOf is nil
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
}

// Derive implements snapshot.Deriver: it divides a reading among the owners.
func (s *Accountant) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Kind != snapshot.Served || !s.inputs.present {
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

// begin forgets the cycle before.
func (e *sharedDevice) begin() {
	e.reading = reading{}
	clear(e.totals.now[:])
	for _, a := range e.accounts {
		clear(a.now[:])
		a.claims = claims{}
	}
}

// Unavailable implements snapshot.Deriver: a family of its own has the missing things.
func (s *Accountant) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	return list
}

// share returns the part of its GPU that an entity is, by compute slices; a partitioned GPU is the
// part that is in no instance.
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

// readMeter advances the meter of a GPU. Energy is not counted over a time that was too long, nor
// where the counter is less than it was: the driver was loaded again.
func (s *session) readMeter(c *snapshot.Cycle, e *sharedDevice, at time.Time) {
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

// accrue adds the count of its GPU's meter to the totals of an entity. An entity that was not there in
// the cycle before, or was another part of its GPU, begins with this cycle.
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

// meterOf returns the meter of the GPU of an entity, which is watched.
func (s *session) meterOf(e *sharedDevice) *meter { return &s.entities[s.at[e.root]].totals.meter }

// addSeconds advances the counters of seconds of an entity that is a known share of its GPU. The time
// since the previous cycle is that of the present owners, so that an owner that is seen once has its
// seconds. Activity that was not known for too long is not counted.
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

// since returns the seconds from one time to another, 0 where too many passed. A wall clock that is
// set does not change them: the times have monotonic readings.
func (s *session) since(from, to time.Time) float64 {
	passed := to.Sub(from)
	if passed > s.maxGap {
		return 0
	}
	return float64(passed) / float64(time.Second)
}

// chargeEnergy divides an entity's part of the energy that its GPU used since it was last charged.
// The active part, in proportion to the time in which anything ran, goes to the owners that were
// active; the idle part goes to the owners by the share that each holds. The remainder of both is
// unattributed, and so is all of it where there is no owner, whatever ran. While the activity of an
// owner is not known its counter is not shown, and grows by its idle part alone.
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
