package accounting

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// PodOf returns the UID of the pod that a process of the host belongs to; ""
// for one that is in no pod or has ended. The error wraps one of gpu's if
// processes cannot be told apart here. It is called on the Loop's goroutine.
type PodOf func(pid uint32) (uid string, err error)

const (
	// maxAccounts bounds the owners that are accounted for at once, each on
	// each entity. A node has 110 pods by default; the largest have 500.
	maxAccounts = 4096
	// dormancy is how long an account is kept, unseen, for an owner that is
	// not told of: a counter goes on where it was if the owner was there all
	// the time and only the kubelet, the driver or the session was not.
	dormancy = 15 * time.Minute
)

// What attribution can lack, as in dcgm_exporter_attribution_unavailable.
const (
	lacksUtilization        = "utilization"         // of a device that has owners
	lacksProcesses          = "processes"           // of a shared device
	lacksProcessUtilization = "process_utilization" // likewise
	lacksPodOfProcess       = "pod_of_process"
	lacksPodUID             = "pod_uid" // of an owner that shares a device
	lacksMIGShare           = "mig_share"
)

// An accountKey names an owner on an entity: a pod, or a job by its labels.
type accountKey struct {
	entity         gpu.Identity
	namespace, pod string
	job            string
}

// An account is what one owner has used of one entity so far.
type account struct {
	uid    string
	labels []gpu.Label
	held   float64 // the share of the entity that is assigned to it
	seen   int64

	active, allocated, energy float64 // GPU seconds, GPU seconds, joules
	hasActive, hasAllocated   bool
	hasEnergy                 bool

	util, memory gpu.Value // of this cycle
	busy, bytes  float64   // of its processes in this cycle
}

// A ledger is what is known of an entity itself, and what of it no owner had.
type ledger struct {
	seen, activeAt, energyAt int64
	joules                   float64 // the device's counter at energyAt

	active, energy       float64 // unattributed
	hasActive, hasEnergy bool
}

// A shareRow is an entity that is divided among its owners.
type shareRow struct {
	row, root int
	id        gpu.Identity
	labels    []gpu.Label // gpu, UUID, GPU_I_ID
	slices    float64     // compute slices of an instance; 0 for a GPU
	instance  bool
	cut       []shareRow  // the instances of a GPU that is cut
	parts     []sharePart // of a divided instance, whose compute instances tell its activity
	ledger    *ledger
	accounts  []*account

	util, memory gpu.Value // unattributed in this cycle
}

// A sharePart is a compute instance: its row, and which part of its GPU
// instance it is.
type sharePart struct {
	row  int
	part float64
}

// An Accountant divides devices among their owners. It outlives sessions, and its
// results are valid until the next cycle.
type Accountant struct {
	podOf  PodOf
	inputs inputs
	maxGap time.Duration // above which nothing is known of the time between

	scaledBusy, scaledBytes, ownersDropped prometheus.Counter

	accounts map[accountKey]*account
	ledgers  map[gpu.Identity]*ledger

	topology *gpu.Topology
	owners   *gpu.Owners
	rows     []shareRow
	roots    []shareRow // the GPUs that are cut, for their energy
	want     []bool     // of the next Read
	asked    []bool     // of the latest Read
	infos    []gpu.Series

	procs         [][]gpu.Process // by row, of this cycle
	noProcesses   []error         // by row: why its processes are not reported
	noUtilization []error         // by row: why their utilization is not reported
	lacks         []unavailable
	families      []gpu.Family

	// copies are made where they were asked for (--kubernetes-virtual-gpus).
	virtual bool
	copies  virtualSeries
}

// Options configure an Accountant.
type Options struct {
	// VirtualGPUs repeats the series of shared GPUs for every owner, as
	// dcgm-exporter does under --kubernetes-virtual-gpus.
	VirtualGPUs bool
	// Registerer gets the Accountant's own series. Required.
	Registerer prometheus.Registerer
}

// An unavailable is something that attribution does not know in this cycle, and why.
type unavailable struct{ what, reason string }

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
		Help: "Owners left out because there were more than the exporter accounts for.",
	})
	opt.Registerer.MustRegister(scaled, dropped)
	return &Accountant{
		virtual: opt.VirtualGPUs, accounts: map[accountKey]*account{}, ledgers: map[gpu.Identity]*ledger{},
		families:   shareFamilies(),
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
	d.Accountant.podOf = d.podOf
	d.bind(t, plan)
}

// bind prepares for a session of a plan.
func (s *Accountant) bind(t *gpu.Topology, plan *gpu.Plan) {
	in := inputsOf(plan)
	s.inputs, s.maxGap = in, snapshot.MaxAgeIntervals*plan.Interval
	s.topology, s.owners, s.infos = t, nil, nil
	s.want, s.asked = make([]bool, len(t.Devices)), make([]bool, len(t.Devices))
	s.procs = make([][]gpu.Process, len(t.Devices))
	s.noProcesses, s.noUtilization = make([]error, len(t.Devices)), make([]error, len(t.Devices))
	s.rows, s.roots = nil, nil
	for row := range t.Devices {
		d := &t.Devices[row]
		if d.Entity.Kind != gpu.KindGPU && d.Entity.Kind != gpu.KindGPUInstance {
			continue
		}
		r := shareRow{
			row: row, root: row, instance: d.Entity.Kind == gpu.KindGPUInstance,
			id: d.Identity(),
		}
		r.labels = []gpu.Label{{Name: "gpu", Value: strconv.FormatUint(uint64(d.GPU), 10)}, {Name: "UUID", Value: d.UUID}}
		if r.instance {
			r.labels = append(r.labels, gpu.Label{Name: "GPU_I_ID", Value: strconv.FormatUint(uint64(d.InstanceID), 10)})
			r.root = t.ParentRow(row)
			r.slices = computeSlices(d.Profile)
			if in.present && !t.Serves(&plan.Fields[in.engine], row) {
				r.parts = shareParts(t, row)
			}
		}
		if s.ledgers[r.id] == nil {
			s.ledgers[r.id] = &ledger{}
		}
		r.ledger = s.ledgers[r.id]
		s.rows = append(s.rows, r)
	}
	for i := range s.rows {
		if r := &s.rows[i]; !r.instance && slices.ContainsFunc(s.rows, func(x shareRow) bool { return x.instance && x.root == r.row }) {
			s.roots = append(s.roots, *r)
		}
	}
	s.rows = slices.DeleteFunc(s.rows, func(r shareRow) bool {
		return slices.ContainsFunc(s.roots, func(root shareRow) bool { return root.row == r.row })
	})
	for i := range s.roots {
		root := &s.roots[i]
		first := slices.IndexFunc(s.rows, func(r shareRow) bool { return r.root == root.row })
		last := first
		for last < len(s.rows) && s.rows[last].root == root.row {
			last++
		}
		root.cut = s.rows[first:last]
	}
	s.rebuildSeries()
}

// shareParts returns the compute instances of the GPU instance of a row that
// have rows.
func shareParts(t *gpu.Topology, row int) []sharePart {
	var parts []sharePart
	for i := range t.Divided {
		if t.Divided[i].Instance != row {
			continue
		}
		for at := range t.Devices {
			if t.InstanceRow(at) == row && t.Devices[at].ComputeID == t.Divided[i].ID {
				parts = append(parts, sharePart{row: at, part: t.Part(i)})
			}
		}
	}
	return parts
}

// computeSlices returns the compute slices of a MIG profile ("2g.20gb"), 0
// where its name does not tell.
func computeSlices(profile string) float64 {
	digits, _, found := strings.Cut(profile, "g.")
	n, err := strconv.ParseUint(digits, 10, 8)
	if !found || err != nil {
		return 0
	}
	return float64(n)
}

// Prepare implements snapshot.Deriver: the next Read is to report the processes of the rows that
// were shared in the latest cycle.
func (s *Accountant) Prepare(b *gpu.Batch) {
	copy(s.asked, s.want)
	b.WantProcesses = s.asked
}

// assign opens an account for every owner of every entity.
func (s *Accountant) assign(owners *gpu.Owners, now int64) {
	s.owners, s.infos = owners, s.infos[:0:0]
	for i := range s.rows {
		r := &s.rows[i]
		use := owners.UseOf(r.row)
		r.accounts = s.open(r, &use, now)
		s.want[r.row] = len(r.accounts) > 1
		s.infos = appendInfos(s.infos, r, &use)
	}
	s.rebuildSeries()
}

// open returns the accounts of the owners of an entity. Jobs count where no
// pod holds it: a job that runs in a pod is that pod.
func (s *Accountant) open(r *shareRow, use *gpu.Use, now int64) []*account {
	pods := 0
	for i := range use.Owners {
		if use.Owners[i].Pod != "" {
			pods++
		}
	}
	var list []*account
	replicas := float64(max(use.Replicas, pods))
	if pods == 0 {
		replicas = float64(max(use.Replicas, len(use.Owners)))
	}
	for first := range use.Owners {
		o := &use.Owners[first]
		key := keyOf(r, o)
		if pods > 0 && o.Pod == "" || slices.ContainsFunc(use.Owners[:first], func(x gpu.Owner) bool { return keyOf(r, &x) == key }) {
			continue
		}
		held, uid, container := 0.0, "", o.Container
		for i := range use.Owners {
			x := &use.Owners[i]
			if keyOf(r, x) != key {
				continue
			}
			if x.Part > 0 {
				held += x.Part
			} else {
				held += 1 / replicas
			}
			uid = cmp.Or(uid, x.PodUID)
			if x.Container != container {
				container = "" // processes tell pods apart, not containers
			}
		}
		a := s.accounts[key]
		if a != nil && a.uid != "" && uid != "" && a.uid != uid {
			a = nil // another pod of that name
		}
		if a == nil {
			if len(s.accounts) >= maxAccounts && !s.makeRoom(now) {
				s.ownersDropped.Inc()
				continue
			}
			a = &account{}
			s.accounts[key] = a
		}
		a.uid = cmp.Or(uid, a.uid)
		a.held = min(held, 1)
		a.seen = now
		a.labels = ownerLabels(r, o, container)
		list = append(list, a)
	}
	return list
}

func keyOf(r *shareRow, o *gpu.Owner) accountKey {
	key := accountKey{entity: r.id, namespace: o.Namespace, pod: o.Pod}
	if o.Pod == "" {
		var b strings.Builder
		b.WriteString(o.Container + "\x00")
		for _, l := range o.Labels {
			b.WriteString(l.Name + "\x00" + l.Value + "\x00")
		}
		key.job = b.String()
	}
	return key
}

// makeRoom forgets the owners that are not there now.
func (s *Accountant) makeRoom(now int64) bool {
	for key, a := range s.accounts {
		if a.seen != now {
			delete(s.accounts, key)
		}
	}
	return len(s.accounts) < maxAccounts
}

// sweep forgets what was not seen for long.
func (s *Accountant) sweep(now int64) {
	for key, a := range s.accounts {
		if now-a.seen > int64(dormancy) {
			delete(s.accounts, key)
		}
	}
	for id, l := range s.ledgers {
		if now-l.seen > int64(dormancy) && !s.has(id) {
			delete(s.ledgers, id)
		}
	}
}

func (s *Accountant) has(id gpu.Identity) bool {
	same := func(r shareRow) bool { return r.id == id }
	return slices.ContainsFunc(s.rows, same) || slices.ContainsFunc(s.roots, same)
}

// Derive implements snapshot.Deriver: it divides what a cycle read among the owners.
func (s *Accountant) Derive(list []gpu.Family, c *snapshot.Cycle) []gpu.Family {
	if c.Kind != snapshot.Served || !s.inputs.present {
		return list
	}
	at := c.Now.UnixNano()
	if c.Owners != s.owners {
		s.assign(c.Owners, at)
		s.sweep(at)
		if s.virtual {
			s.copies.assign(s)
		}
	}
	s.lacks = s.lacks[:0]
	s.sort(c.Batch)
	for i := range s.rows {
		r := &s.rows[i]
		s.divide(c, r)
		s.addSeconds(c, r, at)
		if !r.instance {
			s.chargeEnergy(c, r, s.rows[i:i+1], at)
		}
	}
	for i := range s.roots {
		root := &s.roots[i]
		s.chargeEnergy(c, root, root.cut, at)
		root.ledger.seen = at
	}
	for i := range s.rows {
		r := &s.rows[i]
		r.ledger.seen = at
		for _, a := range r.accounts {
			a.seen = at
		}
	}
	if s.virtual {
		list = s.copies.copy(list, c, s)
	}
	return s.appendFamilies(list)
}

// Unavailable implements snapshot.Deriver: what is missing is a family of its own.
func (s *Accountant) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth {
	return list
}

// sort puts the processes and their faults where their rows find them.
func (s *Accountant) sort(b *gpu.Batch) {
	for row := range s.procs {
		s.procs[row] = s.procs[row][:0]
	}
	clear(s.noProcesses)
	clear(s.noUtilization)
	for i := range b.Processes {
		p := &b.Processes[i]
		s.procs[p.Row] = append(s.procs[p.Row], *p)
	}
	for i := range b.Faults {
		f := &b.Faults[i]
		var of []error
		switch f.Field {
		case gpu.FieldProcesses, gpu.AllFields:
			of = s.noProcesses
		case gpu.FieldProcessBusy:
			of = s.noUtilization
		default:
			continue
		}
		if f.Row != gpu.AllRows {
			of[f.Row] = f.Err
			continue
		}
		for row := range of {
			of[row] = f.Err
		}
	}
}

// utilization returns the device's own, 0 to 1.
func (s *Accountant) utilization(c *snapshot.Cycle, r *shareRow) (ratio float64, ok bool) {
	if !r.instance {
		if n, ok := c.Value(s.inputs.util, r.row).Number(); ok {
			return min(n/100, 1), true
		}
	}
	if r.parts == nil {
		n, ok := c.Value(s.inputs.engine, r.row).Number()
		return min(n, 1), ok
	}
	for _, p := range r.parts {
		n, known := c.Value(s.inputs.engine, p.row).Number()
		if !known {
			return 0, false
		}
		ratio += min(n, 1) * p.part
	}
	return min(ratio, 1), true
}

// divideByPart gives the owners what their compute instances did. What one did
// that several hold is told of none of them.
func (s *Accountant) divideByPart(c *snapshot.Cycle, r *shareRow) {
	for _, p := range r.parts {
		use := s.owners.UseOf(p.row)
		var only *account
		for i := range use.Owners {
			a := s.accounts[keyOf(r, &use.Owners[i])]
			if !slices.Contains(r.accounts, a) {
				continue // a job in a pod, or one for which there was no room
			}
			if only != nil && only != a {
				s.miss(lacksProcessUtilization, gpu.Reason(gpu.ErrNotSupported))
				only = nil
				break
			}
			only = a
		}
		if only != nil {
			had, _ := only.util.Number()
			n, _ := c.Value(s.inputs.engine, p.row).Number()
			only.util = gpu.Float(had + min(n, 1)*p.part)
		}
	}
}

const bytesPerMiB = 1 << 20

// divide finds the owners' parts of the utilisation and the memory of this
// moment, and what is left.
func (s *Accountant) divide(c *snapshot.Cycle, r *shareRow) {
	util, utilKnown := s.utilization(c, r)
	memory, memoryKnown := c.Value(s.inputs.memory, r.row).Number()
	memory *= bytesPerMiB
	for _, a := range r.accounts {
		a.util, a.memory, a.busy, a.bytes = gpu.Value{}, gpu.Value{}, 0, 0
	}
	if !utilKnown && len(r.accounts) > 0 {
		s.miss(lacksUtilization, cmp.Or(s.missing(c, r), snapshot.ReasonNoData))
	}
	if len(r.accounts) == 1 { // whatever runs there is its
		a := r.accounts[0]
		if utilKnown {
			a.util = gpu.Float(util)
		}
		if memoryKnown {
			a.memory = bytesOf(memory)
		}
	}
	r.util, r.memory = gpu.Value{}, gpu.Value{}
	// One that is shared since this cycle is divided by process from the next on.
	known := len(r.accounts) < 2 || s.asked[r.row]
	if len(r.accounts) > 1 {
		if utilKnown && r.parts != nil {
			s.divideByPart(c, r)
		}
		if known {
			s.divideByProcess(r, util, utilKnown && r.parts == nil, memory, memoryKnown)
		}
	}
	if utilKnown && (known || r.parts != nil) {
		r.util = gpu.Float(rest(util, r.accounts, func(a *account) gpu.Value { return a.util }))
	}
	if memoryKnown && known {
		r.memory = bytesOf(rest(memory, r.accounts, func(a *account) gpu.Value { return a.memory }))
	}
}

// bytesOf returns a number of bytes, as an integer where it is one.
func bytesOf(n float64) gpu.Value {
	if n == math.Trunc(n) && n < 1<<53 {
		return gpu.Int(int64(n))
	}
	return gpu.Float(n)
}

// missing says why a row has no utilisation.
func (s *Accountant) missing(c *snapshot.Cycle, r *shareRow) string {
	if r.instance {
		return c.Missing(s.inputs.engine, r.row)
	}
	return c.Missing(s.inputs.util, r.row)
}

// rest returns what of a device's value no account has. Rounding never makes
// it negative.
func rest(value float64, accounts []*account, of func(*account) gpu.Value) float64 {
	for _, a := range accounts {
		n, _ := of(a).Number()
		value -= n
	}
	return max(value, 0)
}

// divideByProcess divides a shared entity by what its processes did.
func (s *Accountant) divideByProcess(r *shareRow, util float64, utilKnown bool, memory float64, memoryKnown bool) {
	if err := s.noProcesses[r.row]; err != nil {
		s.miss(lacksProcesses, gpu.Reason(err))
		return
	}
	var busy, bytes float64 // of all processes
	for i := range s.procs[r.row] {
		p := &s.procs[r.row][i]
		b, _ := p.Busy.Number()
		m, _ := p.Memory.Number()
		b, m = max(b, 0), max(m, 0)
		busy, bytes = busy+b, bytes+m
		if s.podOf == nil {
			s.miss(lacksPodOfProcess, gpu.Reason(gpu.ErrUnavailable))
			return
		}
		uid, err := s.podOf(p.PID)
		if err != nil {
			s.miss(lacksPodOfProcess, gpu.Reason(err))
			return // whose the others are would look like all that there is
		}
		if uid == "" {
			continue
		}
		for _, a := range r.accounts {
			if a.uid == uid {
				a.busy, a.bytes = a.busy+b, a.bytes+m
			}
		}
	}
	busyKnown := utilKnown
	if err := s.noUtilization[r.row]; err != nil && r.parts == nil {
		s.miss(lacksProcessUtilization, gpu.Reason(err))
		busyKnown = false
	}
	// Differently timed samples can add up to more than there was.
	scaleBusy, scaleBytes := 1.0, 1.0
	if busyKnown && busy > util {
		scaleBusy = util / busy
		s.scaledBusy.Inc()
	}
	if memoryKnown && bytes > memory {
		scaleBytes = memory / bytes
		s.scaledBytes.Inc()
	}
	for _, a := range r.accounts {
		if a.uid == "" {
			s.miss(lacksPodUID, snapshot.ReasonNoData)
			continue
		}
		if busyKnown {
			a.util = gpu.Float(a.busy * scaleBusy)
		}
		if memoryKnown {
			a.memory = bytesOf(a.bytes * scaleBytes)
		}
	}
}

// share returns which part of its GPU an entity is, by compute slices.
func (s *Accountant) share(c *snapshot.Cycle, r *shareRow) (float64, bool) {
	if !r.instance {
		return 1, true
	}
	if r.root < 0 {
		return 0, false
	}
	total, _ := c.Value(s.inputs.slices, r.root).Number()
	if r.slices == 0 || total < r.slices {
		return 0, false
	}
	return r.slices / total, true
}

// addSeconds lets the counters of seconds run. The time since the previous
// cycle is that of its present owners, so that one that was seen once has its
// seconds; a time of which nothing is known is nobody's.
func (s *Accountant) addSeconds(c *snapshot.Cycle, r *shareRow, at int64) {
	share, known := s.share(c, r)
	if !known {
		if len(r.accounts) > 0 {
			s.miss(lacksMIGShare, snapshot.ReasonNoData)
		}
		return
	}
	seconds := s.since(r.ledger.seen, at) * share
	for _, a := range r.accounts {
		a.allocated += seconds * a.held
		a.hasAllocated = true
	}
	rest, ok := r.util.Number()
	if !ok {
		if s.since(r.ledger.activeAt, at) == 0 {
			r.ledger.activeAt = at // from here on there will be something to tell
		}
		return
	}
	seconds = s.since(r.ledger.activeAt, at) * share
	r.ledger.activeAt = at
	for _, a := range r.accounts {
		if util, ok := a.util.Number(); ok {
			a.active += util * seconds
			a.hasActive = true
		}
	}
	r.ledger.active += rest * seconds
	r.ledger.hasActive = true
}

// since returns the seconds from one time to another, 0 where too many passed
// or none, or where there was no first time.
func (s *Accountant) since(from, to int64) float64 {
	if from == 0 || to <= from || to-from > int64(s.maxGap) {
		return 0
	}
	return float64(to-from) / float64(time.Second)
}

// chargeEnergy divides the energy that a GPU used since the previous cycle. The only
// owner of a whole GPU pays all of it; others pay for the part of the GPU and
// of the time in which they were active, and the idle rest is nobody's.
func (s *Accountant) chargeEnergy(c *snapshot.Cycle, root *shareRow, rows []shareRow, at int64) {
	millijoules, ok := c.Value(s.inputs.energy, root.row).Number()
	if !ok {
		return
	}
	l := root.ledger
	joules := millijoules / 1e3
	used := joules - l.joules
	known := s.since(l.energyAt, at) > 0
	if l.energyAt == 0 || used < 0 { // the driver was loaded anew
		used = 0
	}
	l.joules, l.energyAt, l.hasEnergy = joules, at, true
	left := used
	for i := range rows {
		r := &rows[i]
		share, shareKnown := s.share(c, r)
		for _, a := range r.accounts {
			part, ok := a.util.Number()
			part *= share
			if !r.instance && len(r.accounts) == 1 {
				part, ok = 1, true
			}
			if !ok || !shareKnown {
				continue
			}
			a.hasEnergy = true
			if known {
				paid := min(used*part, left)
				a.energy += paid
				left -= paid
			}
		}
	}
	l.energy += left
}

func (s *Accountant) miss(what, reason string) {
	if l := (unavailable{what, reason}); !slices.Contains(s.lacks, l) {
		s.lacks = append(s.lacks, l)
	}
}
