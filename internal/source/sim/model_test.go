package sim_test

import (
	"context"
	"fmt"
	"math"
	"slices"
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
	dram           = 1005
	pcieTx         = 1009
	pcieTxTotal    = 1091
	nvlinkTx       = 1011
	nvlinkTxTotal  = 1201
	coreBusy       = 1100
)

// A rig is an open session and the clock of its world.
type rig struct {
	testing.TB
	*simulated.Clock
	src  *sim.Source
	s    *sim.Session
	plan *gpu.Plan
	b    gpu.Batch
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

// read reads the session and returns the latest value of each cell.
func (r *rig) read() values {
	r.Helper()
	r.b.Reset()
	if err := r.s.Read(context.Background(), gpu.ReadRequest{}, &r.b); err != nil {
		r.Fatal(err)
	}
	v := values{r: r, of: map[[2]int]gpu.Value{}}
	for _, x := range r.b.Samples {
		v.of[[2]int{x.Row, x.Field}] = x.Value
	}
	return v
}

// values holds the values of one Read.
type values struct {
	r  *rig
	of map[[2]int]gpu.Value
}

func (v values) get(row int, id gpu.FieldID) (gpu.Value, bool) {
	for i := range v.r.plan.Fields {
		if v.r.plan.Fields[i].ID == id {
			x, ok := v.of[[2]int{row, i}]
			return x, ok
		}
	}
	return gpu.Value{}, false
}

// num returns a number, which must exist.
func (v values) num(row int, id gpu.FieldID) float64 {
	v.r.Helper()
	x, _ := v.get(row, id)
	n, ok := x.Number()
	if !ok {
		v.r.Fatalf("field %d of %v has no number", id, v.r.s.Topology().Devices[row].Entity)
	}
	return n
}

// rows returns the rows of a kind.
func (r *rig) rows(kind gpu.Kind) []int {
	var rows []int
	for row := range r.s.Topology().Devices {
		if r.s.Topology().Devices[row].Entity.Kind == kind {
			rows = append(rows, row)
		}
	}
	return rows
}

// Every exportable field has, on every entity of every node, either a value within the catalog's bounds or a fault.
func TestEveryFieldOfTheCatalog(t *testing.T) {
	for _, name := range sim.Nodes() {
		t.Run(name, func(t *testing.T) {
			r := play(t, sim.Options{Node: name, Seed: 7}, simulated.Plan())
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
						if cell := [2]int{row, i}; r.plan.Fields[i].ID != xid { // the node has no such entity
							checkCell(t, v, cell, faults[cell], last)
						}
					}
				}
			}
		})
	}
}

// checkCell checks the value or fault of a row and field. last holds the previous numbers.
func checkCell(t *testing.T, v values, cell [2]int, hasFault bool, last map[[2]int]float64) {
	t.Helper()
	entity, f := v.r.s.Topology().Devices[cell[0]].Entity, &v.r.plan.Fields[cell[1]]
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
		fbTotal, fbFree, fbUsed, fbReserved, graphics, smActive, occupancy, tensor, dram)
	for _, name := range []string{"demo", "h100x8", "a100-mig", "mig8x7", "t4"} {
		t.Run(name, func(t *testing.T) {
			r := play(t, sim.Options{Node: name, Seed: 3}, plan)
			top := r.s.Topology()
			for range 200 {
				r.Pass(97 * time.Second)
				v := r.read()
				for _, row := range r.rows(gpu.KindGPU) {
					if p, limit := v.num(row, powerUsage), v.num(row, powerLimit); p > limit || p <= 0 {
						t.Errorf("GPU %d: power = %v W, want above 0 and at most %v W", row, p, limit)
					}
					g := v.num(row, graphics)
					if util, ok := v.get(row, gpuUtil); ok {
						if u, _ := util.Number(); math.Abs(u-100*g) > 1 {
							t.Errorf("GPU utilization = %v %%, graphics activity = %v, want at most 1 %% apart", u, g)
						}
					}
					held := int64(v.num(row, clockReasons))&4 != 0
					if fast := v.num(row, smClock); held && g > 0.5 && fast > 1980*0.999 {
						t.Errorf("clock while the power cap is reported = %v MHz, want at most %v MHz",
							fast, 1980*0.999)
					}
				}
				compute, memory := map[int]float64{}, map[int]float64{}
				for row := range top.Devices {
					if kind := top.Devices[row].Entity.Kind; kind != gpu.KindGPU && kind != gpu.KindGPUInstance {
						continue
					}
					sum := v.num(row, fbUsed) + v.num(row, fbFree) + v.num(row, fbReserved)
					if sum != v.num(row, fbTotal) {
						t.Errorf("%v: used + free + reserved = %v MiB, want %v",
							top.Devices[row].Entity, sum, v.num(row, fbTotal))
					}
					chain := []float64{v.num(row, tensor), v.num(row, smActive), v.num(row, graphics), 1}
					for i := 1; i < len(chain); i++ {
						if chain[i-1] > chain[i] {
							t.Errorf("%v: tensor, SM and graphics activity = %v, want ascending values",
								top.Devices[row].Entity, chain[:3])
						}
					}
					if o := v.num(row, occupancy); o > v.num(row, smActive) {
						t.Errorf("%v: occupancy = %v, want at most the SM activity", top.Devices[row].Entity, o)
					}
					if p := top.ParentRow(row); p >= 0 {
						var slices float64
						fmt.Sscanf(top.Devices[row].Profile, "%fg", &slices)
						compute[p] += v.num(row, graphics) * slices / 7
						memory[p] += v.num(row, fbUsed)
					}
				}
				for p := range compute {
					if g := v.num(p, graphics); compute[p] > g+1e-9 {
						t.Errorf("%v: activity of the instances = %v, want at most %v as of the GPU",
							top.Devices[p].Entity, compute[p], g)
					}
					if m := v.num(p, fbUsed); memory[p] > m {
						t.Errorf("%v: memory used by the instances = %v MiB, want at most %v MiB as by the GPU",
							top.Devices[p].Entity, memory[p], m)
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
	const seconds = 3600
	for range seconds {
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
	if power > 300 {
		t.Fatalf("lowest power = %v W, want at most 300 W: the job pauses", power)
	}
	if temp > 62 || coolest <= lowest {
		t.Errorf("lowest temperature (%v °C) at %v, lowest power (%v W) at %v: want the temperature to fall later",
			temp, coolest, power, lowest)
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
	want := map[string][]gpu.FieldID{
		"Tesla T4":                {gpuUtil, retired, sbe, graphics},
		"NVIDIA A10":              {gpuUtil, sbe, remapped, graphics},
		"NVIDIA A100-SXM4-80GB":   {memoryTemp, gpuUtil, sbe, remapped, nvlink, graphics},
		"NVIDIA L40S":             {gpuUtil, sbe, remapped, graphics},
		"NVIDIA GeForce RTX 4090": {fan, gpuUtil},
	}
	got := map[string][]gpu.FieldID{}
	for row, d := range r.s.Topology().Devices {
		for _, f := range plan.Fields {
			if _, ok := v.get(row, f.ID); ok {
				got[d.Model] = append(got[d.Model], f.ID)
			}
		}
	}
	for _, list := range [](map[string][]gpu.FieldID){want, got} {
		for _, l := range list {
			slices.Sort(l)
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
	many := len(r.b.Trails)
	r.Pass(time.Second)
	if r.read(); len(r.b.Trails) > 2 || many < 4 {
		t.Errorf("%d samples in half an hour and %d in the next second, want at least 4 and at most 2",
			many, len(r.b.Trails))
	}
}
