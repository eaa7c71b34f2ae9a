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

	gocmp "github.com/google/go-cmp/cmp"

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
	rows := playRows
	if r.Float64() < 0.2 {
		rows = append(slices.Clone(rows), 2) // owners of the partitioned GPU itself
	}
	for _, row := range rows {
		use := &uses[row]
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
	batch   gpu.Batch // the batch of the cycle
	request gpu.ReadRequest
	past    map[string]float64 // last value of every counter
	budget  map[string]float64 // per entity: joules used that are not in a published counter yet
	// energySeries names the energy series of an entity in the previous cycle. When a hidden counter returns, it
	// includes the idle energy of the time since.
	energySeries map[string]string
	uids         map[string]bool // per entity and pod: whether its UID was known at any time
	clock        time.Duration
	activeAt     map[int]time.Duration // per row: end of the time for which the device's activity is known
	energyAt     map[string]time.Duration
	pending      map[string]float64 // per entity: energy that its GPU used since energyAt
	counters     map[int]counter    // per GPU
}

// counter holds a GPU's last known energy counter and its growth in this cycle.
type counter struct {
	at           time.Duration
	joules, used float64
}

func newJudge(t testing.TB, p *play) *judge {
	j := &judge{
		t: t, past: map[string]float64{}, budget: map[string]float64{}, energySeries: map[string]string{},
		uids: map[string]bool{}, activeAt: map[int]time.Duration{}, energyAt: map[string]time.Duration{},
		pending: map[string]float64{}, counters: map[int]counter{},
	}
	p.after = func(req gpu.ReadRequest, b *gpu.Batch) {
		j.batch.Processes = append(j.batch.Processes[:0], b.Processes...)
		j.batch.Utilizations = append(j.batch.Utilizations[:0], b.Utilizations...)
		j.request = req
	}
	return j
}

// sum returns the total of a pod family for an entity.
func sum(series map[string]float64, entity string) (total float64) {
	for key, v := range series {
		if e, _, owned := strings.Cut(key, " "); owned && e == entity {
			total += v
		}
	}
	return total
}

func (j *judge) equal(cycle int, what string, got, want float64) {
	j.t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		j.t.Errorf("cycle %d: %s: pods and remainder = %v, want the device's %v", cycle, what, got, want)
	}
}

// atMost checks an upper bound, for cycles in which some shares are unknown.
func (j *judge) atMost(cycle int, what string, got, want float64) {
	j.t.Helper()
	if got > want+1e-9*max(1, math.Abs(want)) {
		j.t.Errorf("cycle %d: %s: pods = %v, want at most the device's %v", cycle, what, got, want)
	}
}

// grown returns the growth of an entity's counters since the previous cycle, including new counters.
func (j *judge) grown(now reported, entity string, families ...string) float64 {
	grown := 0.0
	for _, family := range families {
		for key, v := range now[family] {
			if e, _, _ := strings.Cut(key, " "); e == entity {
				grown += v - j.past[family+key]
			}
		}
	}
	return grown
}

// owners returns the pods that own an entity and whether the UID of each is known.
func (j *judge) owners(s *gpu.Snapshot, row int) map[string]bool {
	list := s.Owners.UseOf(row).Owners
	if len(list) == 0 && row > 2 {
		list = s.Owners.UseOf(2).Owners
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
func (j *judge) device(m *moment, row int, shared bool) (float64, bool) {
	n, known := m.util[row].Number()
	if row < 3 {
		n /= 100
	}
	n = min(n, 1)
	if !shared || row > 2 || j.noShares(m, row) {
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

func (j *judge) runs(row int) bool {
	return slices.ContainsFunc(j.batch.Processes, func(p gpu.Process) bool { return p.Row == row })
}

func (m *moment) failed(row int, part gpu.Part) bool {
	return slices.ContainsFunc(m.faults, func(f gpu.Fault) bool { return f.Row == row && f.Part == part })
}

// noProcesses reports whether the processes of a row are unknown: one of them is stale, or the row is down.
func (m *moment) noProcesses(row int) bool {
	stale := func(p gpu.Process) bool { return p.Row == row && p.Time > int64(3*interval) }
	down := m.util[row].IsAbsent() && m.memory[row].IsAbsent() && m.energy[row].IsAbsent()
	return m.failed(row, gpu.PartProcesses) || slices.ContainsFunc(m.procs, stale) || down
}

// unknowable reports whether the shares of an entity's activity cannot be known.
func (j *judge) unknowable(m *moment, s *gpu.Snapshot, row int) bool {
	uids := j.owners(s, row)
	if len(uids) < 2 {
		return false
	}
	return j.noShares(m, row) || slices.Contains(slices.Collect(maps.Values(uids)), false)
}

// noShares reports whether the utilization of a row's processes, or their pods, are unknown.
func (j *judge) noShares(m *moment, row int) bool {
	return !j.request.WantsProcesses(row) || m.noProcesses(row) || m.failed(row, gpu.PartProcessBusy) ||
		m.noPodOf != nil && j.runs(row)
}

func (j *judge) see(i int, m *moment, s *gpu.Snapshot) {
	now := shares(s)
	passed := cmp.Or(m.gap, interval)
	j.clock += passed
	j.sane(i, now)
	if m.uses == nil {
		j.unknown(i, m, now)
		return
	}
	for _, row := range playRows {
		j.activity(i, m, s, now, row)
		entity := entityOf(row)
		if rest, ok := now[restMemory][entity]; ok {
			used, _ := m.memory[row].Number()
			j.equal(i, "memory of "+entity, sum(now[podMemory], entity)+rest, used*(1<<20))
		}
		j.atMost(i, "seconds of "+entity, j.grown(now, entity, podAllocated), passed.Seconds()*playShares[row])
	}
	j.atMost(i, "seconds of GPU 2 outside its instances", j.grown(now, "GPU-2/", podAllocated), passed.Seconds()/7)
	for root, entities := range map[int][]int{0: {0}, 1: {1}, 2: {2, 3, 4, 5}} {
		j.count(m, root)
		for _, row := range entities {
			j.energy(i, m, s, now, root, row)
		}
	}
	j.ownership(i, s, now)
	for family, series := range now {
		if strings.HasSuffix(family, "_total") {
			for key, v := range series {
				j.past[family+key] = v
			}
		}
	}
}

// unknown checks that a cycle with unknown owners reports and counts nothing.
func (j *judge) unknown(i int, m *moment, now reported) {
	for root := range 3 {
		j.count(m, root)
	}
	for family, series := range now {
		if family != notAvailable && len(series) > 0 {
			j.t.Errorf("cycle %d: %s = %v while the owners are unknown, want no series", i, family, series)
		}
	}
	for _, row := range []int{0, 1, 2, 3, 4, 5} {
		entity := entityOf(row)
		j.activeAt[row], j.energyAt[entity] = j.clock, j.clock
		j.pending[entity], j.energySeries[entity] = 0, ""
	}
}

// sane checks invariants of every page.
func (j *judge) sane(i int, now reported) {
	for family, series := range now {
		for key, v := range series {
			if v < 0 || math.IsNaN(v) || math.IsInf(v, 0) || strings.HasSuffix(key, "twice") {
				j.t.Errorf("cycle %d: %s %s = %v, want one series with a finite value of 0 or more", i, family, key, v)
			}
			if strings.HasSuffix(family, "_total") && v < j.past[family+key] {
				j.t.Errorf("cycle %d: %s %s fell from %v to %v", i, family, key, j.past[family+key], v)
			}
		}
	}
}

func (j *judge) activity(i int, m *moment, s *gpu.Snapshot, now reported, row int) {
	entity := entityOf(row)
	device, known := j.device(m, row, len(j.owners(s, row)) > 1)
	rest, ok := now[restUtil][entity]
	if ok != known && (ok || len(j.owners(s, row)) < 2) || ok && j.unknowable(m, s, row) {
		j.t.Errorf("cycle %d: remainder of %s present = %v; device known = %v, shares known = %v",
			i, entity, ok, known, !j.unknowable(m, s, row))
	}
	at, was := j.activeAt[row]
	if late := !was || j.clock-at > 3*interval; !known {
		if late {
			j.activeAt[row] = j.clock
		}
		return
	}
	pods, grown := sum(now[podUtil], entity), j.grown(now, entity, podActive, restActive)
	seconds := 0.0
	if was && j.clock-at <= 3*interval {
		seconds = (j.clock - at).Seconds() * playShares[row]
	}
	j.activeAt[row] = j.clock
	if !ok {
		j.atMost(i, "utilization of "+entity, pods, device)
		j.atMost(i, "active seconds of "+entity, grown, device*seconds)
		return
	}
	j.equal(i, "utilization of "+entity, pods+rest, device)
	j.equal(i, "active seconds of "+entity, grown, device*seconds)
}

// count reads the energy counter of a GPU.
func (j *judge) count(m *moment, root int) {
	before, was := j.counters[root]
	now := before
	now.used = 0
	if mj, ok := m.energy[root].Number(); ok {
		now.at, now.joules = j.clock, mj/1e3
		if was && now.at-before.at <= 3*interval {
			now.used = max(now.joules-before.joules, 0)
		}
	} else if !was {
		return
	}
	j.counters[root] = now
}

// energy checks that the counters of an entity's pods and its remainder grow by the entity's part of the energy.
func (j *judge) energy(i int, m *moment, s *gpu.Snapshot, now reported, root, row int) {
	entity, share := entityOf(row), playShares[row]
	_, known := j.device(m, row, len(j.owners(s, row)) > 1)
	if row == 2 {
		share, known = 1./7, true
	}
	known = known || len(j.owners(s, row)) == 0
	j.pending[entity] += j.counters[root].used
	_, ok := m.energy[root].Number()
	_, rest := now[restEnergy][entity]
	if known = known && ok; !known || j.unknowable(m, s, row) && row != 2 {
		if rest {
			j.t.Errorf("cycle %d: unattributed energy of %s is reported, want no series: it cannot be known", i, entity)
		}
	}
	if !known {
		j.energySeries[entity] = ""
		return
	}
	defer func() { j.energySeries[entity] = j.series(now, entity) }()
	used := 0.0
	if at, was := j.energyAt[entity]; was && j.clock-at <= 3*interval {
		used = j.pending[entity] * share
	}
	j.energyAt[entity], j.pending[entity] = j.clock, 0
	grown := j.grown(now, entity, podEnergy, restEnergy)
	j.budget[entity] += used
	j.atMost(i, "energy of "+entity, grown, j.budget[entity])
	j.budget[entity] -= grown
	if rest && j.energySeries[entity] == j.series(now, entity) {
		j.equal(i, "energy of "+entity, grown, used)
	}
}

// series names the energy series of an entity.
func (j *judge) series(now reported, entity string) string {
	var keys []string
	for _, family := range []string{podEnergy, restEnergy} {
		for key := range now[family] {
			if e, _, _ := strings.Cut(key, " "); e == entity {
				keys = append(keys, family+" "+key)
			}
		}
	}
	slices.Sort(keys)
	return strings.Join(keys, "\n")
}

// ownership checks that only owners have series, and that each is charged the seconds allocated to it.
func (j *judge) ownership(i int, s *gpu.Snapshot, now reported) {
	present := map[string]bool{}
	for _, row := range append(slices.Clone(playRows), 2) {
		for pod := range j.owners(s, row) {
			present[entityOf(row)+" "+pod] = true
		}
	}
	for _, family := range []string{podUtil, podMemory, podActive, podEnergy, podAllocated} {
		for key := range now[family] {
			if !present[key] {
				j.t.Errorf("cycle %d: %s has a series for %s, want none: the pod owns no device", i, family, key)
			}
		}
	}
	got := slices.Sorted(maps.Keys(now[podAllocated]))
	if diff := gocmp.Diff(slices.Sorted(maps.Keys(present)), got); diff != "" {
		j.t.Errorf("cycle %d: owners with allocated seconds (-want +got):\n%s", i, diff)
	}
}

func conserves(t testing.TB, seed uint64) {
	p := random(rand.New(rand.NewPCG(seed, 0)), 25)
	j := newJudge(t, p)
	p.run(t, func(i int, s *gpu.Snapshot) { j.see(i, &p.moments[i], s) })
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

// The pods' shares and the unattributed remainder add up to the device's own values.
func TestConservation(t *testing.T) {
	for seed := range seedsOf(t) {
		conserves(t, seed)
	}
}

// seedsOf returns the number of histories that TestConservation checks.
func seedsOf(t *testing.T) uint64 {
	text := os.Getenv("ACCOUNTING_SEEDS")
	if text == "" {
		return 1000
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("ACCOUNTING_SEEDS: %v", err)
	}
	return n
}

func FuzzConservation(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { conserves(t, seed) })
}
