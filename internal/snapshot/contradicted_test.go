package snapshot_test

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// Indexes of the fields of profiledPlan.
const (
	utilization = iota
	engine
	sm
	tensor
)

var profiledNames = []string{"UTIL", "ENGINE", "SM", "TENSOR"}

func profiledPlan(interval time.Duration) *gpu.Plan {
	plan := &gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}}
	for i, id := range []gpu.FieldID{
		catalog.GPUUtil, catalog.ProfGREngineActive, catalog.ProfSMActive, catalog.ProfPipeTensorActive,
	} {
		e, _ := catalog.ByID(id)
		plan.Fields = append(plan.Fields, e.Field())
		plan.Counters = append(plan.Counters, gpu.Counter{Name: profiledNames[i], Field: i, Scale: 1})
	}
	return plan
}

// contradicted returns the counters that are missing because they are contradicted.
func contradicted(s *gpu.Snapshot) (names []string) {
	for _, u := range s.Health.Unavailable {
		if u.Reason == snapshot.DroppedContradicted {
			names = append(names, u.Field)
		}
	}
	return names
}

// line is a Read of one GPU: its values (-1 for none) and the counters that are contradicted after it. Times are in
// seconds.
type line struct {
	utilization, engine, sm, tensor float64
	contradicted                    []string

	pause           float64 // time since the previous Read, in addition to the interval
	used, countedAt float64 // ages of the samples of utilization and of profiling
}

func TestContradictedProfiling(t *testing.T) {
	const none = -1
	all, half := profiledNames[1:], profiledNames[2:3]
	idle, broken, working := line{}, line{utilization: 99}, line{utilization: 99, engine: .9, sm: .9}
	dropped := line{utilization: 99, contradicted: all}
	noSM, droppedSM := line{utilization: 99, engine: .9}, line{utilization: 99, engine: .9, contradicted: half}
	counted := func(age float64) line { return line{utilization: 99, countedAt: age} }
	used := func(age float64) line { return line{utilization: 99, used: age} }
	watched := line{99, none, none, none, all[:2], 0, 0, 0} // no samples after a new watch
	for name, lines := range map[string][]line{
		"three contradicting reads in a row":   {broken, {utilization: 90}, dropped, dropped},
		"an idle GPU":                          {idle, idle, idle, idle},
		"work starts":                          {idle, broken, broken, working},
		"idle in between":                      {broken, broken, {utilization: 89}, broken, broken},
		"tensor pipe idle":                     {working, working, working, working},
		"only one field reads 0":               {noSM, noSM, droppedSM},
		"a read without utilization":           {broken, broken, {utilization: none}, broken, broken},
		"a new watch that helps":               {broken, broken, dropped, watched, working},
		"a new watch that does not help":       {broken, broken, dropped, watched, dropped},
		"profiling sample is not renewed":      {broken, counted(1), counted(2), broken},
		"utilization sample is not renewed":    {broken, used(1), used(2), broken},
		"a longer pause between reads":         {broken, broken, {utilization: 99, pause: 1}, broken},
		"utilization from before the interval": {used(1.5), used(1.5), used(1.5), used(1.5)},
		shortInterval:                          {broken, broken, broken, broken},
	} {
		t.Run(name, func(t *testing.T) { readLines(t, name, lines) })
	}
}

const shortInterval = "interval shorter than the window of utilization"

func readLines(t *testing.T, name string, lines []line) {
	interval := time.Second
	if name == shortInterval {
		interval = 900 * time.Millisecond
	}
	top := gpu.NewTopology(gpus(1, ""))
	b, trusting := snapshot.NewBuilder(top, profiledPlan(interval), nil), profiledPlan(interval)
	trusting.KeepContradicted = true
	keeping := snapshot.NewBuilder(top, trusting, nil)
	now := now
	for i, l := range lines {
		now = now.Add(interval + time.Duration(l.pause*1e9))
		batch := &gpu.Batch{}
		zeros := 0
		for f, v := range []float64{l.utilization, l.engine, l.sm, l.tensor} {
			age := l.countedAt
			if f == utilization {
				age = l.used
			}
			if v >= 0 {
				batch.Add(0, f, gpu.Float(v), now.Add(-time.Duration(age*1e9)))
			}
			if v == 0 && slices.Contains(l.contradicted, profiledNames[f]) {
				zeros++
			}
		}
		r := snapshot.Reading{Batch: batch, Begin: now, Now: now}
		s := b.Build(r)
		if diff := cmp.Diff(l.contradicted, contradicted(s)); diff != "" {
			t.Errorf("read %d (-want +got):\n%s", i, diff)
		}
		dropped := b.Dropped[snapshot.DroppedContradicted]
		if dropped != zeros || (len(b.Contradicted) > 0) != (l.contradicted != nil) {
			t.Errorf("read %d: dropped samples = %d, want %d; contradicted rows = %v, want some: %t",
				i, dropped, zeros, b.Contradicted, l.contradicted != nil)
		}
		for f, c := range s.Columns {
			if v, ok := c.Values[0].Number(); ok && slices.Contains(l.contradicted, profiledNames[f]) {
				t.Errorf("read %d: %s = %v is served, want it dropped", i, c.Counter.Name, v)
			}
		}
		if got := contradicted(keeping.Build(r)); got != nil {
			t.Errorf("read %d: a plan that keeps contradicted samples dropped %v, want none", i, got)
		}
	}
}

// workload defines the maximum run and pause times of kernels in seconds, and the kernels' use of SMs and tensor
// pipes.
type workload struct {
	run, pause, sm, tensor float64
}

var workloads = []workload{
	{run: 0, pause: 1000},                        // idle, or only decoding: no kernel runs
	{run: 1000, pause: 0.01, sm: 1, tensor: 0},   // memory-bound
	{run: 1000, pause: 1, sm: 1.0 / 132},         // one waiting warp
	{run: 0.2, pause: 0.2, sm: 0.3, tensor: 0.1}, // token decoding
	{run: 2, pause: 2, sm: 0.8, tensor: 0.5},
	{run: 20, pause: 20, sm: 0.8, tensor: 0.5},
	{run: 90, pause: 90, sm: 0.8, tensor: 0.5},
}

// A track holds the periods in which kernels ran, as sorted pairs of begin and end in seconds.
type track struct {
	workload
	edges []float64
}

func newTrack(rnd *rand.Rand, length float64) track {
	w := track{workload: workloads[rnd.IntN(len(workloads))]}
	for at := rnd.Float64() * w.pause; at < length && w.run > 0; at += rnd.Float64() * w.pause {
		end := at + rnd.Float64()*w.run
		w.edges = append(w.edges, at, end)
		at = end
	}
	return w
}

// share returns the fraction of a time in which kernels ran.
func (w *track) share(from, to float64) float64 {
	sum := 0.0
	for i := 0; i < len(w.edges); i += 2 {
		sum += max(0, min(to, w.edges[i+1])-max(from, w.edges[i]))
	}
	return sum / (to - from)
}

// No workload is mistaken for a contradiction, however utilization and profiling are sampled and however late the
// Reads are. The nodes include one with MIG, where a partitioned GPU that reports utilization is next to one without
// MIG. Set CONTRADICTED_PAGES=1000000 for a long run.
func TestWorkloadsAreNotContradicted(t *testing.T) {
	pages := 20_000
	if text := os.Getenv("CONTRADICTED_PAGES"); text != "" {
		var err error
		if pages, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	const reads = 100
	busy := 0
	for history := range pages / reads {
		rnd := rand.New(rand.NewPCG(uint64(history), 23))
		interval := []float64{1, 5, 30}[rnd.IntN(3)]
		period := []float64{1.0 / 6, 1}[rnd.IntN(2)] // averaging period of the driver's utilization
		instance := gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7, Parent: 1, ParentKind: gpu.KindGPU}
		top := gpu.NewTopology(append(gpus(2, ""), gpu.Device{Entity: instance, GPU: 1}))
		b := snapshot.NewBuilder(top, profiledPlan(time.Duration(interval*float64(time.Second))), nil)
		work := newTrack(rnd, 4*reads*interval)
		phase, shift := rnd.Float64()*interval, rnd.Float64()*interval
		at := 3 * interval
		for range reads {
			at += interval * (0.9 + 0.2*rnd.Float64())
			if rnd.IntN(50) == 0 {
				at += interval * rnd.Float64() * 2 // a late Read misses windows
			}
			date := func(seconds float64) time.Time { return time.Unix(1_800_000_000, int64(seconds*1e9)) }
			last := func(phase float64) float64 { return phase + math.Floor((at-phase)/interval)*interval }
			used, counted := last(phase), last(shift)
			if rnd.IntN(20) == 0 {
				used -= interval // the newest sample came too late for this Read
			}
			batch := &gpu.Batch{}
			percent := math.Round(100 * work.share(used-period, used))
			if percent >= 90 {
				busy++
			}
			batch.Add(0, utilization, gpu.Float(percent), date(used))
			batch.Add(1, utilization, gpu.Int(100), date(used))
			ran := work.share(counted-interval, counted)
			for f, level := range []float64{engine: 1, sm: work.sm, tensor: work.tensor} {
				if f != utilization {
					batch.Add(0, f, gpu.Float(ran*level), date(counted))
					batch.Add(1, f, gpu.Int(0), date(counted))
					batch.Add(2, f, gpu.Float(ran*level), date(counted))
				}
			}
			b.Build(snapshot.Reading{Batch: batch, Begin: date(at), Now: date(at)})
			if b.Dropped[snapshot.DroppedContradicted] > 0 || b.Contradicted != nil {
				t.Fatalf("history %d at %v: contradicted rows = %v, want none; workload %+v",
					history, at, b.Contradicted, work)
			}
		}
	}
	if busy < pages/10 {
		t.Errorf("pages of a busy GPU = %d, want at least %d", busy, pages/10)
	}
}
