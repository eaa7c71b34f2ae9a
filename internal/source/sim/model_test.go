package sim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// Field IDs used in the tests.
const (
	driverVersion  = 1
	smClock        = 100
	clockReasons   = 112
	gpuTemp        = 150
	powerUsage     = 155
	energy         = 156
	powerLimit     = 164
	gpuUtil        = 203
	xid            = 230
	powerThrottled = 240
	fbTotal        = 250
	fbFree         = 251
	fbUsed         = 252
	fbReserved     = 253
	graphics       = 1001
	smActive       = 1002
	occupancy      = 1003
	tensor         = 1004
	pcieTx         = 1009
	pcieTxTotal    = 1091
	nvlinkTx       = 1011
	nvlinkTxTotal  = 1201
	coreBusy       = 1100
)

// A rig is an open session and the clock of its world. processes, if not nil, is the request of its reads.
type rig struct {
	testing.TB
	*simulated.Clock
	src       *sim.Source
	s         *sim.Session
	plan      *gpu.Plan
	b         gpu.Batch
	processes []bool
}

func play(tb testing.TB, o sim.Options, plan *gpu.Plan) *rig {
	tb.Helper()
	r := &rig{TB: tb, Clock: simulated.NewClock(), plan: plan}
	o.Now = r.Now
	var err error
	if r.src, err = sim.New(o); err != nil {
		tb.Fatal(err)
	}
	r.open()
	return r
}

func (r *rig) open() {
	r.Helper()
	s, err := r.src.Open(context.Background(), r.plan)
	if err != nil {
		r.Fatal(err)
	}
	r.s = s
	r.Cleanup(func() { s.Close() })
}

// read reads the session and returns the latest value of each row and field.
func (r *rig) read() values {
	r.Helper()
	r.b.Reset()
	if err := r.s.Read(context.Background(), gpu.ReadRequest{Processes: r.processes}, &r.b); err != nil {
		r.Fatal(err)
	}
	v := values{r: r, of: map[[2]int]gpu.Value{}}
	for _, x := range r.b.Samples {
		v.of[[2]int{x.Row, x.Field}] = x.Value
	}
	return v
}

// rows returns the rows of a kind.
func (r *rig) rows(kind gpu.Kind) []int { return r.s.Topology().RowsOf(gpu.KindsOf(kind)) }

// entity returns the entity of a row.
func (r *rig) entity(row int) gpu.Entity { return r.s.Topology().Devices[row].Entity }

// values holds the values of one Read.
type values struct {
	r  *rig
	of map[[2]int]gpu.Value
}

// get returns a value, which is absent if there is none.
func (v values) get(row int, id gpu.FieldID) gpu.Value {
	i := slices.IndexFunc(v.r.plan.Fields, func(f gpu.Field) bool { return f.ID == id })
	return v.of[[2]int{row, i}]
}

// num returns a number, which must exist.
func (v values) num(row int, id gpu.FieldID) float64 {
	v.r.Helper()
	n, ok := v.get(row, id).Number()
	if !ok {
		v.r.Fatalf("field %d of %v has no number", id, v.r.entity(row))
	}
	return n
}

// Every exportable field has, on every entity of every node, either a value within the catalog's bounds or a fault.
// Reads returns true exactly for the fields that some node has.
func TestEveryFieldOfTheCatalog(t *testing.T) {
	plan := simulated.Plan()
	plan.Fields = append(plan.Fields, gpu.Field{ID: 60000, Name: "unknown", Levels: gpu.KindsOf(gpu.KindGPU)})
	sampled := make([]bool, len(plan.Fields))
	for _, name := range sim.Nodes() {
		t.Run(name, func(t *testing.T) {
			r := play(t, sim.Options{Node: name, Seed: 7}, plan)
			last := map[[2]int]float64{}
			for range 8 {
				r.Pass(37 * time.Minute)
				v := r.read()
				faults := map[[2]int]bool{}
				for _, x := range r.b.Faults {
					if gpu.Reason(x.Err) != "not_supported" {
						t.Fatalf("%s in row %d: %v", r.plan.Fields[x.Field].Name, x.Row, x.Err)
					}
					faults[[2]int{x.Row, x.Field}] = true
				}
				for row := range r.s.Topology().Devices {
					for i := range r.plan.Fields {
						cell := [2]int{row, i}
						if _, ok := v.of[cell]; ok {
							sampled[i] = true
						}
						if r.plan.Fields[i].ID != xid { // the node has no such entity
							checkCell(t, v, cell, faults[cell], last)
						}
					}
				}
			}
		})
	}
	for i, f := range plan.Fields {
		reads := sim.Reads(&gpu.Plan{Fields: plan.Fields[i : i+1]})
		if reads != sampled[i] && f.ID != xid {
			t.Errorf("%s (%d): Reads = %t, but some node has a value = %t; want the same", f.Name, f.ID, reads, sampled[i])
		}
	}
}

// checkCell checks the value or fault of a row and field. last holds the previous numbers.
func checkCell(t *testing.T, v values, cell [2]int, hasFault bool, last map[[2]int]float64) {
	t.Helper()
	entity, f := v.r.entity(cell[0]), &v.r.plan.Fields[cell[1]]
	x, hasValue := v.of[cell]
	if exists := f.Levels.Has(entity.Kind); exists != (hasValue != hasFault) {
		t.Fatalf("%s of %v: has value = %t, has fault = %t, field exists = %t; want one of both if it exists",
			f.Name, entity, hasValue, hasFault, exists)
	}
	n, ok := x.Number()
	if !ok {
		return
	}
	if !f.Range.Contains(n) {
		t.Errorf("%s of %v = %v, want %v to %v", f.Name, entity, n, f.Range.Min, f.Range.Max)
	}
	e, _ := catalog.ByID(f.ID)
	if _, whole := x.Int64(); e.Type == catalog.Integer && !whole {
		t.Errorf("%s of %v = %v, want an integer", f.Name, entity, x)
	}
	if prev, seen := last[cell]; seen && e.Monotonic && n < prev {
		t.Errorf("%s of %v fell from %v to %v", f.Name, entity, prev, n)
	}
	last[cell] = n
}

func TestValuesAreConsistent(t *testing.T) {
	plan := simulated.Plan(smClock, clockReasons, gpuTemp, powerUsage, powerLimit, gpuUtil,
		fbTotal, fbFree, fbUsed, fbReserved, graphics, smActive, occupancy, tensor)
	for _, name := range []string{"demo", "h100x8", "a100-mig", "mig8x7", "t4"} {
		t.Run(name, func(t *testing.T) {
			r := play(t, sim.Options{Node: name, Seed: 3}, plan)
			top := r.s.Topology()
			for range 200 {
				r.Pass(97 * time.Second)
				v := r.read()
				compute, memory := map[int]float64{}, map[int]float64{}
				for _, row := range top.RowsOf(gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)) {
					e, g, used := r.entity(row), v.num(row, graphics), v.num(row, fbUsed)
					if sum := used + v.num(row, fbFree) + v.num(row, fbReserved); sum != v.num(row, fbTotal) {
						t.Errorf("%v: used + free + reserved = %v MiB, want %v", e, sum, v.num(row, fbTotal))
					}
					chain := []float64{v.num(row, tensor), v.num(row, smActive), g, 1}
					if o := v.num(row, occupancy); !slices.IsSorted(chain) || o > chain[1] {
						t.Errorf("%v: tensor, SM and graphics activity = %v, occupancy = %v; want ascending values, "+
							"and an occupancy of at most the SM activity", e, chain[:3], o)
					}
					if p := top.ParentRow(row); p >= 0 {
						var slices float64
						fmt.Sscanf(top.Devices[row].Profile, "%fg", &slices)
						compute[p] += g * slices / 7
						memory[p] += used
						continue
					}
					if p, limit := v.num(row, powerUsage), v.num(row, powerLimit); p > limit || p <= 0 {
						t.Errorf("%v: power = %v W, want above 0 and at most %v W", e, p, limit)
					}
					if u, ok := v.get(row, gpuUtil).Number(); ok && math.Abs(u-100*g) > 1 {
						t.Errorf("%v: utilization = %v %%, graphics activity = %v, want at most 1 %% apart", e, u, g)
					}
					held := int64(v.num(row, clockReasons))&4 != 0
					if fast := v.num(row, smClock); held && g > 0.5 && fast > 1980*0.999 {
						t.Errorf("%v: clock while the power cap is reported = %v MHz, want less than 1980", e, fast)
					}
				}
				for p := range compute {
					if g := v.num(p, graphics); compute[p] > g+1e-9 || memory[p] > v.num(p, fbUsed) {
						t.Errorf("%v: activity and memory of the instances = %v, %v MiB; want at most %v, %v MiB as of the GPU",
							r.entity(p), compute[p], memory[p], g, v.num(p, fbUsed))
					}
				}
			}
		})
	}
}

// The energy counter is the integral of power, and byte counters are integrals of rates. The test integrates values
// read once per second.
func TestCountersAreIntegrals(t *testing.T) {
	plan := simulated.Plan(powerUsage, energy, pcieTx, pcieTxTotal, nvlinkTx, nvlinkTxTotal)
	r := play(t, sim.Options{Node: "gb200", Seed: 5}, plan)
	pairs := []struct {
		rate, total gpu.FieldID
		unit        float64
	}{{powerUsage, energy, 1e3}, {pcieTx, pcieTxTotal, 1}, {nvlinkTx, nvlinkTxTotal, 1}}
	before := r.read()
	first, area := before, make([]float64, len(pairs))
	for range 3600 {
		r.Pass(time.Second)
		now := r.read()
		for i, p := range pairs {
			area[i] += (before.num(0, p.rate) + now.num(0, p.rate)) / 2 * p.unit
		}
		before = now
	}
	for i, p := range pairs {
		got := before.num(0, p.total) - first.num(0, p.total)
		if got == 0 || math.Abs(got/area[i]-1) > 1e-4 {
			t.Errorf("counter %d grew by %v, the integral of field %d is %v, want equal values above 0",
				p.total, got, p.rate, area[i])
		}
	}
}

func TestTemperatureFollowsPowerWithALag(t *testing.T) {
	// The training job pauses for 25 s every ten minutes.
	r := play(t, sim.Options{Node: "single", Seed: 5}, simulated.Plan(powerUsage, gpuTemp))
	var lowest, coolest time.Duration
	power, temp := math.Inf(1), math.Inf(1)
	for at := 10 * time.Minute; at < 20*time.Minute; at += time.Second {
		r.At(at)
		v := r.read()
		if p := v.num(0, powerUsage); p < power {
			power, lowest = p, at
		}
		if x := v.num(0, gpuTemp); x < temp {
			temp, coolest = x, at
		}
	}
	if power > 300 || temp > 62 || coolest <= lowest {
		t.Errorf("lowest temperature (%v °C) at %v, lowest power (%v W) at %v: want at most 300 W in the pause, and the "+
			"temperature to fall later", temp, coolest, power, lowest)
	}
}

func TestValuesDependOnSeedAndTime(t *testing.T) {
	plan := simulated.Plan()
	samples := func(seed uint64, steps ...time.Duration) []gpu.Sample {
		r := play(t, sim.Options{Node: "demo", Seed: seed}, plan)
		for _, at := range steps {
			r.At(at)
			r.read()
		}
		return r.b.Samples
	}
	opt := cmp.Comparer(func(a, b gpu.Value) bool { return a == b })
	want := samples(1, 26*time.Hour)
	if diff := cmp.Diff(want, samples(1, time.Second, 15*time.Minute, 25*time.Hour, 26*time.Hour), opt); diff != "" {
		t.Errorf("values depend on earlier reads (-direct +in steps):\n%s", diff)
	}
	if diff := cmp.Diff(want, samples(1, 30*time.Hour, 26*time.Hour), opt); diff != "" {
		t.Errorf("values differ after the clock goes back (-direct +back):\n%s", diff)
	}
	if cmp.Equal(want, samples(2, 26*time.Hour), opt) {
		t.Error("values with another seed are equal, want others")
	}
}

func TestValuesHaveUnitOfPlan(t *testing.T) {
	plan := simulated.Plan(smClock, energy, gpuUtil, fbTotal)
	twins := simulated.Plan(smClock, energy, gpuUtil, fbTotal)
	for i, unit := range []gpu.Unit{"hertz", "joules", "ratio", "bytes"} {
		twins.Fields[i].Unit = unit
	}
	a := play(t, sim.Options{Node: "single", Seed: 1}, plan).read()
	b := play(t, sim.Options{Node: "single", Seed: 1}, twins).read()
	for id, factor := range map[gpu.FieldID]float64{smClock: 1e6, energy: 1e-3, gpuUtil: 1e-2, fbTotal: 1 << 20} {
		if want, got := a.num(0, id)*factor, b.num(0, id); math.Abs(got/want-1) > 1e-12 {
			t.Errorf("field %d = %v, want %v", id, got, want)
		}
	}
}

func TestMissingFieldsByBoard(t *testing.T) {
	const memoryTemp, fan, nvlink, remapped, retired, sbe = 140, 191, 449, 394, 390, 310
	plan := simulated.Plan(memoryTemp, fan, nvlink, remapped, retired, sbe, gpuUtil, graphics)
	r := play(t, sim.Options{Node: "mixed"}, plan)
	v := r.read()
	want := map[string][]gpu.FieldID{ // in the order of the IDs
		"Tesla T4":                {gpuUtil, sbe, retired, graphics},
		"NVIDIA A10":              {gpuUtil, sbe, remapped, graphics},
		"NVIDIA A100-SXM4-80GB":   {memoryTemp, gpuUtil, sbe, remapped, nvlink, graphics},
		"NVIDIA L40S":             {gpuUtil, sbe, remapped, graphics},
		"NVIDIA GeForce RTX 4090": {fan, gpuUtil},
	}
	got := map[string][]gpu.FieldID{}
	for row, d := range r.s.Topology().Devices {
		for _, f := range plan.Fields {
			if !v.get(row, f.ID).IsAbsent() {
				got[d.Model] = append(got[d.Model], f.ID)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields by board (-want +got):\n%s", diff)
	}
}

func TestSlowFieldsKeepTheirSample(t *testing.T) {
	plan := simulated.Plan(powerUsage)
	plan.Fields[0].Interval = time.Minute
	r := play(t, sim.Options{Node: "single"}, plan)
	times := map[int64]gpu.Value{}
	for range 13 { // read every 10 s for two minutes
		r.read()
		x := r.b.Samples[0]
		if v, seen := times[x.Time]; seen && v != x.Value {
			t.Errorf("sample of time %v has the values %v and %v, want one value", time.Unix(0, x.Time), v, x.Value)
		}
		times[x.Time] = x.Value
		r.Pass(10 * time.Second)
	}
	if len(times) != 3 {
		t.Errorf("samples in two minutes = %d, want one per minute", len(times))
	}
}

func TestClockReasonsHaveTrails(t *testing.T) {
	r := play(t, sim.Options{Node: "single", Seed: 1}, simulated.Plan(clockReasons))
	r.read()
	r.Pass(30 * time.Minute)
	r.read()
	masks := map[string]int{}
	for i, x := range r.b.Trails {
		masks[x.Value.String()]++
		if i > 0 && x.Time <= r.b.Trails[i-1].Time {
			t.Error("samples of the trail are not in time order")
		}
	}
	if masks["4"] < 2 || masks["0"] < 2 {
		t.Errorf("masks in half an hour at the power limit with pauses = %v, want 4 and 0 at least twice", masks)
	}
	r.Pass(time.Second)
	if r.read(); len(r.b.Trails) > 2 {
		t.Errorf("samples in the next second = %d, want at most 2", len(r.b.Trails))
	}
}

// Sessions overlap: a reload opens the new session before it closes the old one. Attributors and Stats run at the same
// time as reads.
func TestSessionsOverlap(t *testing.T) {
	src := newSource(t, "demo", "faults: []")
	plan := simulated.Plan(gpuTemp, fbUsed, energy, clockReasons)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := src.Open(t.Context(), plan)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			var b gpu.Batch
			for range 50 {
				b.Reset()
				if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
					t.Error(err)
				}
				if _, err := src.Attribute(t.Context(), s.Topology()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := src.Stats(); got != (sim.Stats{}) {
		t.Errorf("calls and sessions left open = %+v, want none", got)
	}
}

func TestPowerLimitOfTheNode(t *testing.T) {
	// The node limits the A10 to 120 W of 150 W.
	const defaultLimit = 163
	r := play(t, sim.Options{Node: "mixed", Seed: 2}, simulated.Plan(powerUsage, powerLimit, defaultLimit))
	most := 0.0
	for range 500 {
		r.Pass(time.Minute)
		most = max(most, r.read().num(1, powerUsage))
	}
	v := r.read()
	if v.num(1, powerLimit) != 120 || v.num(1, defaultLimit) != 150 || most > 120 {
		t.Errorf("power limit = %v W (default %v W), highest power = %v W, want 120, 150, at most 120",
			v.num(1, powerLimit), v.num(1, defaultLimit), most)
	}
}

func TestShapes(t *testing.T) {
	for _, test := range []struct {
		name, node string
		row        int
		idle, busy [2]float64 // bounds of the fractions of time below 2 % and above 70 %
	}{
		{"training is busy except for pauses", "single", 0, [2]float64{0, 0}, [2]float64{0.9, 0.99}},
		{"batch is busy about half of the time", "mixed", 4, [2]float64{0.3, 0.6}, [2]float64{0.4, 0.7}},
		{"two notebooks on one GPU are mostly idle", "mixed", 1, [2]float64{0.6, 0.95}, [2]float64{0, 0.1}},
		{"inference follows the day", "t4", 0, [2]float64{0, 0}, [2]float64{0.2, 0.4}},
		{"a GPU without a pod is idle", "t4", 3, [2]float64{1, 1}, [2]float64{0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := play(t, sim.Options{Node: test.node, Seed: 1}, simulated.Plan(gpuUtil))
			idle, busy := 0.0, 0.0
			for range 4000 {
				r.Pass(29 * time.Second)
				switch u := r.read().num(test.row, gpuUtil); {
				case u < 2:
					idle += 1. / 4000
				case u > 70:
					busy += 1. / 4000
				}
			}
			const rounding = 1e-9
			for what, x := range map[string]struct {
				got  float64
				want [2]float64
			}{"idle": {idle, test.idle}, "busy": {busy, test.busy}} {
				if x.got < x.want[0]-rounding || x.got > x.want[1]+rounding {
					t.Errorf("%s fraction = %v, want %v", what, x.got, x.want)
				}
			}
		})
	}
}

func TestSwitchTrafficIsGPUTraffic(t *testing.T) {
	const switchRx, linkTx = 862, 780
	r := play(t, sim.Options{Node: "nvswitch", Seed: 1}, simulated.Plan(switchRx, linkTx))
	r.Pass(time.Hour)
	v := r.read()
	sent := map[string]float64{}
	for _, row := range r.rows(gpu.KindNVLink) {
		sent["links of "+r.entity(row).ParentKind.String()] += v.num(row, linkTx)
	}
	for _, row := range r.rows(gpu.KindNVSwitch) {
		sent["switches"] += v.num(row, switchRx)
	}
	gpus := sent["links of GPU"]
	for what, got := range sent {
		if len(sent) != 3 || gpus < 1e12 || math.Abs(got/gpus-1) > 1e-6 {
			t.Errorf("the %s carried %v bytes, want %v as sent by the GPUs", what, got, gpus)
		}
	}
}

func TestCPUsAndTheirCores(t *testing.T) {
	const cpuPower, cpuLimit = 1130, 1131
	r := play(t, sim.Options{Node: "grace-hopper", Seed: 1}, simulated.Plan(coreBusy, cpuPower, cpuLimit))
	for range 20 {
		r.Pass(41 * time.Second)
		v := r.read()
		mean := map[int]float64{}
		for _, row := range r.rows(gpu.KindCPUCore) {
			mean[r.s.Topology().ParentRow(row)] += v.num(row, coreBusy) / 72
		}
		for _, row := range r.rows(gpu.KindCPU) {
			if got := v.num(row, coreBusy); math.Abs(got-mean[row]) > 0.1 {
				t.Errorf("%v: utilization = %v, want %v, the mean of its cores", r.entity(row), got, mean[row])
			}
			if p, limit := v.num(row, cpuPower), v.num(row, cpuLimit); p <= 0 || p > limit {
				t.Errorf("%v: power = %v W, want above 0 and at most %v W", r.entity(row), p, limit)
			}
		}
	}
}

// Memory and link errors are rare, but occur on some of many nodes.
func TestErrorsAreRare(t *testing.T) {
	fields := []gpu.FieldID{312, 394, 202} // SBEs, remapped rows and PCIe replays
	const nodes = 40
	with := map[gpu.FieldID]int{}
	for seed := range uint64(nodes) {
		r := play(t, sim.Options{Node: "nvswitch", Seed: seed}, simulated.Plan(fields...))
		v := r.read()
		for _, row := range r.rows(gpu.KindGPU) {
			for _, id := range fields {
				if v.num(row, id) > 0 {
					with[id]++
				}
			}
		}
	}
	for _, id := range fields {
		if share := float64(with[id]) / (8 * nodes); share == 0 || share > 0.25 {
			t.Errorf("fraction of the GPUs on which field %d is not 0 = %v, want above 0 and at most 0.25", id, share)
		}
	}
}

// The processes of a shared device use at most the device's memory. Their utilization adds up to the device's since
// the previous Read, except for rounding to whole percent. As with a real GPU, the utilization field is a momentary
// value and differs.
func TestProcessesAddUpToDevice(t *testing.T) {
	r := play(t, sim.Options{Node: "shared", Seed: 3}, simulated.Plan(gpuUtil, fbUsed))
	r.processes = slices.Repeat([]bool{true}, len(r.s.Topology().Devices))
	furthest := 0.0
	for range 200 {
		r.Pass(17 * time.Second)
		v := r.read()
		busy, used, count := map[int]float64{}, map[int]float64{}, map[int]float64{}
		for _, p := range r.b.Processes {
			n, _ := p.Busy.Number()
			m, _ := p.Memory.Number()
			busy[p.Row], used[p.Row] = busy[p.Row]+100*n, used[p.Row]+m/(1<<20)
			count[p.Row]++
			if r.entity(p.Row).Kind == gpu.KindGPUInstance && !p.Busy.IsAbsent() {
				t.Errorf("process in MIG mode has a utilization of %v, want none", n)
			}
		}
		for _, u := range r.b.Utilizations {
			n, _ := u.Busy.Number()
			if math.Abs(busy[u.Row]-100*n) > count[u.Row]/2+1e-6 || r.entity(u.Row).Kind != gpu.KindGPU {
				t.Errorf("%v: utilization of the processes = %v %%, want %v %% as of the GPU",
					r.entity(u.Row), busy[u.Row], 100*n)
			}
			furthest = max(furthest, math.Abs(v.num(u.Row, gpuUtil)-busy[u.Row]))
		}
		for row := range count {
			if n := v.num(row, fbUsed); used[row] > n || used[row] < n-count[row] {
				t.Errorf("%v: memory of the processes = %v MiB, want %v MiB as of the device", r.entity(row), used[row], n)
			}
		}
		if len(count) != 7 || len(r.b.Utilizations) != 5 {
			t.Fatalf("rows with processes = %v and with a utilization = %d, want 7 and 5", count, len(r.b.Utilizations))
		}
	}
	if furthest < 5 {
		t.Errorf("largest difference of momentary and mean utilization = %v %%, want at least 5 %% as on real GPUs",
			furthest)
	}
	if uid, err := r.src.PodOf(1); uid != nil || err != nil {
		t.Errorf("PodOf(1) = %q, %v, want none", uid, err)
	}
}

// A Read of 56 instances and 100 fields, like that of the benchmark, does not allocate.
func TestReadDoesNotAllocate(t *testing.T) {
	plan := simulated.PlanOf(func(e catalog.Entry) bool {
		return e.Levels.Has(gpu.KindGPUInstance) && e.Type != catalog.Text
	})
	one := plan.Fields
	for len(plan.Fields) < 100 {
		plan.Fields = append(plan.Fields, one[:min(len(one), 100-len(plan.Fields))]...)
	}
	r := play(t, sim.Options{Node: "mig8x7", Seed: 1}, plan)
	read := func() {
		r.Pass(30 * time.Second)
		r.b.Reset()
		if err := r.s.Read(context.Background(), gpu.ReadRequest{}, &r.b); err != nil {
			t.Fatal(err)
		}
	}
	read() // grow the batch
	if len(r.b.Samples) < 56*80 {
		t.Fatalf("samples = %d, want most of 56 × 100 and those of the GPUs", len(r.b.Samples))
	}
	if n := testing.AllocsPerRun(100, read); n > 2 {
		t.Errorf("allocations per Read = %v, want at most 2", n)
	}
}
