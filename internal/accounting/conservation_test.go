package accounting_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// random generates a random history. Owners and processes come and go, and the reports of processes need not add up.
// Samples are missing, counters are reset, sessions end and cycles are late.
func random(r *rand.Rand, cycles int) *play {
	p := &play{}
	var uses []gpu.Use
	energy := make([]float64, 6)
	chance := func(x float64) bool { return r.Float64() < x }
	for range cycles {
		m := silence(nil, 6)
		if uses == nil || chance(0.3) {
			uses = randomUses(r)
		}
		if m.uses = uses; chance(0.05) {
			m.uses = nil // the kubelet does not answer
		}
		if chance(0.05) {
			m.noPodOf = gpu.ErrPIDNamespace
		}
		if chance(0.1) {
			m.gap = time.Duration(1+r.IntN(6)) * interval
		}
		m.reopened = chance(0.05)
		for row := range 6 {
			switch {
			case chance(0.05):
			case row < 3:
				m.util[row] = gpu.Int(r.Int64N(101))
			default:
				m.util[row] = gpu.Float(r.Float64() * 1.05)
			}
			if !chance(0.05) {
				m.memory[row] = gpu.Int(r.Int64N(80000))
			}
			if energy[row] += r.Float64() * 7e6; chance(0.02) {
				energy[row] = 0 // the driver was reloaded
			}
			if row < 3 && !chance(0.05) {
				m.energy[row] = gpu.Int(int64(energy[row]))
			}
			m.run(r, row)
		}
		p.moments = append(p.moments, m)
	}
	return p
}

// run adds processes to a row. The source may fail to report them.
func (m *moment) run(r *rand.Rand, row int) {
	chance := func(x float64) bool { return r.Float64() < x }
	if chance(0.1) {
		m.faults = append(m.faults, gpu.Fault{Row: row, Part: gpu.PartProcessBusy, Err: gpu.ErrNotSupported})
	}
	if chance(0.05) {
		m.faults = append(m.faults, gpu.Fault{Row: row, Part: gpu.PartProcesses, Err: gpu.ErrPermission})
	}
	if row < 3 && !chance(0.1) {
		m.means = append(m.means, gpu.Utilization{Row: row, Busy: gpu.Float(r.Float64())})
	}
	for range r.IntN(5) {
		x := gpu.Process{
			Row: row, PID: uint32(r.IntN(120)), Busy: gpu.Float(r.Float64()), Memory: gpu.Int(r.Int64N(40 << 30)),
		}
		switch {
		case chance(0.05):
			x.Busy = gpu.Value{}
		case chance(0.05):
			x.Memory = gpu.Value{}
		case chance(0.1):
			x.Memory = gpu.Int(0) // the process has ended
		case chance(0.03):
			x.Time = int64(3*interval) + r.Int64N(2)
		}
		m.procs = append(m.procs, x)
	}
}

func randomUses(r *rand.Rand) []gpu.Use {
	uses := make([]gpu.Use, 6)
	ofGPU := r.Float64() < 0.2 // owners of the partitioned GPU itself
	for row := range uses {
		use := &uses[row]
		if row == partitionedRow && !ofGPU {
			continue
		}
		for range r.IntN(4) {
			n := r.IntN(6)
			o := gpu.Owner{
				Namespace: fmt.Sprint("ns", n%2), Pod: fmt.Sprint("pod", n), Container: fmt.Sprint("c", r.IntN(2)),
			}
			if n != 3 { // pod 3 has an unknown UID
				o.PodUID = fmt.Sprint("uid-", n)
			}
			use.Owners = append(use.Owners, o)
		}
		use.Replicas = r.IntN(8)
		use.Sharing = gpu.Sharing(r.IntN(4))
	}
	return uses
}

// judge checks that a history obeys the rules of conservation.
type judge struct {
	t       testing.TB
	past    of              // last value of every counter
	uids    map[string]bool // per entity and pod: whether its UID was known at any time
	clock   time.Duration
	meters  [3]meter  // by GPU
	ledgers [6]ledger // by row

	// These fields are of the current cycle.
	cycle   int
	m       *moment
	s       *gpu.Snapshot
	now     reported
	batch   gpu.Batch
	request gpu.ReadRequest
}

// meter holds a GPU's last known energy counter and its growth in this cycle, both in joules.
type meter struct {
	at           time.Duration
	joules, used float64
}

// ledger holds what is known about an entity.
type ledger struct {
	activeAt, energyAt time.Duration // ends of the times for which its activity and its energy are charged
	pending            float64       // energy that its GPU used since energyAt
	budget             float64       // joules used that are not in a published counter yet
	// series names its energy series in the previous cycle. A counter that was hidden and returns includes the idle
	// energy of the time since.
	series string
}

func newJudge(t testing.TB, p *play) *judge {
	// The clock starts at one hour, so that the zero times in meters and ledgers are long past.
	j := &judge{t: t, past: of{}, uids: map[string]bool{}, clock: time.Hour}
	p.after = func(req gpu.ReadRequest, b *gpu.Batch) {
		j.batch.Processes, j.batch.Utilizations = slices.Clone(b.Processes), slices.Clone(b.Utilizations)
		j.request = req
	}
	return j
}

// see checks a cycle.
func (j *judge) see(cycle int, m *moment, s *gpu.Snapshot) {
	j.cycle, j.m, j.s, j.now = cycle, m, s, shares(s)
	passed := cmp.Or(m.gap, interval)
	j.clock += passed
	j.sane()
	for root := range j.meters {
		j.meter(root)
	}
	if m.uses == nil {
		j.unknown()
		return
	}
	for row := range j.ledgers {
		entity := entityOf(row)
		if row != partitionedRow {
			j.activity(row)
		}
		if rest, ok := j.now[restMemory][entity]; ok {
			used, _ := m.memory[row].Number()
			j.equal("memory of "+entity, j.sum(nil, entity, podMemory)+rest, used*(1<<20))
		}
		j.atMost("seconds of "+entity, j.sum(j.past, entity, podAllocated), passed.Seconds()*playShares[row])
		j.energy(row)
	}
	j.ownership()
	for family, series := range j.now {
		if strings.HasSuffix(family, "_total") {
			for key, v := range series {
				j.past[family+key] = v
			}
		}
	}
}

// sum returns how much the series of an entity have grown since the past. If past is nil, it returns their total.
func (j *judge) sum(past of, entity string, families ...string) (sum float64) {
	for _, family := range families {
		for key, v := range j.now[family] {
			if e, _, _ := strings.Cut(key, " "); e == entity {
				sum += v - past[family+key]
			}
		}
	}
	return sum
}

// equal checks a sum.
func (j *judge) equal(what string, got, want float64) {
	j.t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		j.t.Errorf("cycle %d: %s: pods and remainder = %v, want the device's %v", j.cycle, what, got, want)
	}
}

// atMost checks an upper bound, for cycles in which some shares are unknown.
func (j *judge) atMost(what string, got, want float64) {
	j.t.Helper()
	if got > want+1e-9*max(1, math.Abs(want)) {
		j.t.Errorf("cycle %d: %s: pods = %v, want at most the device's %v", j.cycle, what, got, want)
	}
}

// owners returns the pods that own an entity and whether the UID of each is known.
func (j *judge) owners(row int) map[string]bool {
	list := j.s.Owners.UseOf(row).Owners
	if len(list) == 0 && row > partitionedRow {
		list = j.s.Owners.UseOf(partitionedRow).Owners
	}
	uids := map[string]bool{}
	for i := range list {
		key := list[i].Namespace + "/" + list[i].Pod
		once := entityOf(row) + " " + key
		j.uids[once] = j.uids[once] || list[i].PodUID != ""
		uids[key] = j.uids[once]
	}
	return uids
}

// device returns the expected utilization of an entity.
func (j *judge) device(row int) (n float64, known bool) {
	n, known = j.m.util[row].Number()
	if row <= partitionedRow {
		n /= 100
	}
	n = min(n, 1)
	if len(j.owners(row)) < 2 || row > partitionedRow || j.noShares(row) {
		return n, known
	}
	for _, u := range j.batch.Utilizations {
		if u.Row == row {
			n, _ = u.Busy.Number()
			return n, true
		}
	}
	busy := 0.0
	for _, p := range j.batch.Processes {
		if b, _ := p.Busy.Number(); p.Row == row {
			busy += b
		}
	}
	return max(n, min(busy, 1)), known
}

// noShares reports whether the utilization of a row's processes, or their pods, are unknown.
func (j *judge) noShares(row int) bool {
	m := j.m
	failed := func(f gpu.Fault) bool {
		return f.Row == row && (f.Part == gpu.PartProcesses || f.Part == gpu.PartProcessBusy)
	}
	stale := func(p gpu.Process) bool { return p.Row == row && p.Time > int64(3*interval) }
	runs := func(p gpu.Process) bool { return p.Row == row }
	down := m.util[row].IsAbsent() && m.memory[row].IsAbsent() && m.energy[row].IsAbsent()
	return !j.request.WantsProcesses(row) || down || slices.ContainsFunc(m.procs, stale) ||
		slices.ContainsFunc(m.faults, failed) || m.noPodOf != nil && slices.ContainsFunc(j.batch.Processes, runs)
}

// unknowable reports whether the shares of an entity's activity cannot be known.
func (j *judge) unknowable(row int) bool {
	uids := j.owners(row)
	return len(uids) > 1 && (j.noShares(row) || slices.Contains(slices.Collect(maps.Values(uids)), false))
}

// unknown checks that a cycle with unknown owners reports and counts nothing.
func (j *judge) unknown() {
	for family, series := range j.now {
		if family != notAvailable && len(series) > 0 {
			j.t.Errorf("cycle %d: %s = %v while the owners are unknown, want no series", j.cycle, family, series)
		}
	}
	for row := range j.ledgers {
		j.ledgers[row] = ledger{activeAt: j.clock, energyAt: j.clock, budget: j.ledgers[row].budget}
	}
}

// sane checks invariants of every page.
func (j *judge) sane() {
	for family, series := range j.now {
		for key, v := range series {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) || strings.HasSuffix(key, "twice") {
				j.t.Errorf("cycle %d: %s %s = %v, want one series with a finite value of 0 or more",
					j.cycle, family, key, v)
			}
			if strings.HasSuffix(family, "_total") && v < j.past[family+key] {
				j.t.Errorf("cycle %d: %s %s fell from %v to %v", j.cycle, family, key, j.past[family+key], v)
			}
		}
	}
}

// activity checks the utilization of an entity and the growth of its active seconds.
func (j *judge) activity(row int) {
	entity, l := entityOf(row), &j.ledgers[row]
	device, known := j.device(row)
	rest, ok := j.now[restUtil][entity]
	if ok != known && (ok || len(j.owners(row)) < 2) || ok && j.unknowable(row) {
		j.t.Errorf("cycle %d: remainder of %s present = %v; device known = %v, shares known = %v",
			j.cycle, entity, ok, known, !j.unknowable(row))
	}
	isLate := j.clock-l.activeAt > 3*interval
	if !known && !isLate {
		return
	}
	seconds := 0.0
	if !isLate {
		seconds = (j.clock - l.activeAt).Seconds() * playShares[row]
	}
	l.activeAt = j.clock
	pods, grown := j.sum(nil, entity, podUtil), j.sum(j.past, entity, podActive, restActive)
	switch {
	case !known:
	case !ok:
		j.atMost("utilization of "+entity, pods, device)
		j.atMost("active seconds of "+entity, grown, device*seconds)
	default:
		j.equal("utilization of "+entity, pods+rest, device)
		j.equal("active seconds of "+entity, grown, device*seconds)
	}
}

// meter reads the energy counter of a GPU.
func (j *judge) meter(root int) {
	x := &j.meters[root]
	x.used = 0
	if mj, ok := j.m.energy[root].Number(); ok {
		if j.clock-x.at <= 3*interval {
			x.used = max(mj/1e3-x.joules, 0)
		}
		x.at, x.joules = j.clock, mj/1e3
	}
}

// energy checks that the counters of an entity's pods and its remainder grow by the entity's part of the energy.
func (j *judge) energy(row int) {
	entity, root, l := entityOf(row), min(row, partitionedRow), &j.ledgers[row]
	_, known := j.device(row)
	_, metered := j.m.energy[root].Number()
	_, rest := j.now[restEnergy][entity]
	isPartitioned := row == partitionedRow
	known = metered && (known || isPartitioned || len(j.owners(row)) == 0)
	l.pending += j.meters[root].used
	if rest && (!known || j.unknowable(row) && !isPartitioned) {
		j.t.Errorf("cycle %d: unattributed energy of %s is reported, want no series: it cannot be known",
			j.cycle, entity)
	}
	before := l.series
	if l.series = ""; !known {
		return
	}
	l.series = j.energySeries(entity)
	used := 0.0
	if j.clock-l.energyAt <= 3*interval {
		used = l.pending * playShares[row]
	}
	l.energyAt, l.pending = j.clock, 0
	grown := j.sum(j.past, entity, podEnergy, restEnergy)
	l.budget += used
	j.atMost("energy of "+entity, grown, l.budget)
	l.budget -= grown
	if rest && before == l.series {
		j.equal("energy of "+entity, grown, used)
	}
}

// energySeries names the energy series of an entity.
func (j *judge) energySeries(entity string) string {
	var keys []string
	for _, family := range []string{podEnergy, restEnergy} {
		for key := range j.now[family] {
			if e, _, _ := strings.Cut(key, " "); e == entity {
				keys = append(keys, family+" "+key)
			}
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, "\n")
}

// ownership checks that only owners have series, and that each is charged the seconds allocated to it.
func (j *judge) ownership() {
	present := map[string]bool{}
	for row := range j.ledgers {
		for pod := range j.owners(row) {
			present[entityOf(row)+" "+pod] = true
		}
	}
	for _, family := range []string{podUtil, podMemory, podActive, podEnergy, podAllocated} {
		for key := range j.now[family] {
			if !present[key] {
				j.t.Errorf("cycle %d: %s has a series for %s, want none: the pod owns no device", j.cycle, family, key)
			}
		}
	}
	is(j.t, fmt.Sprintf("cycle %d: owners with allocated seconds", j.cycle),
		slices.Sorted(maps.Keys(j.now[podAllocated])), slices.Sorted(maps.Keys(present)))
}

func conserves(t testing.TB, seed uint64) {
	p := random(rand.New(rand.NewPCG(seed, 0)), 25)
	j := newJudge(t, p)
	p.run(t, func(i int, s *gpu.Snapshot) { j.see(i, &p.moments[i], s) })
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

// The pods' shares and the unattributed remainder add up to the device's own values. ACCOUNTING_SEEDS is the number of
// histories, 1000 by default.
func TestConservation(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("ACCOUNTING_SEEDS"), "1000"), 10, 32)
	if err != nil {
		t.Fatalf("ACCOUNTING_SEEDS: %v", err)
	}
	for seed := range seeds {
		conserves(t, seed)
	}
}

func FuzzConservation(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { conserves(t, seed) })
}
