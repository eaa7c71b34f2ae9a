package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

func TestMain(m *testing.M) { os.Exit(fakedcgm.Main(m)) }

// plan returns a plan with the given number of numeric fields of GPUs and, if instances is true, only of GPU instances.
// The first fields are those in needed. The meaning of the other fields does not affect the cost.
func plan(fields int, instances bool, needed ...gpu.FieldID) *gpu.Plan {
	// cycles follow each other without a pause, and samples never become stale
	p := &gpu.Plan{Interval: time.Microsecond, Devices: gpu.Selector{Flex: !instances, Minor: instances}}
	add := func(e catalog.Entry, levels gpu.Kinds) {
		f := e.Field()
		f.Levels, f.Interval = levels, time.Hour
		if instances {
			f.Range = nil // the test library's values are out of range
		}
		p.Counters = append(p.Counters,
			gpu.Counter{Name: f.Name, Type: gpu.MetricGauge, Help: e.Help, Field: len(p.Fields), Scale: 1})
		p.Fields = append(p.Fields, f)
	}
	for _, id := range needed {
		e, _ := catalog.ByID(id)
		add(e, e.Levels)
	}
	for e := range catalog.All() {
		f := e.Field()
		if len(p.Fields) == fields {
			break
		}
		if f.Text || e.Events || !e.Exportable() || !f.Levels.Has(gpu.KindGPU) || f.ID >= 1600 ||
			slices.Contains(needed, f.ID) {
			continue
		}
		levels := gpu.KindsOf(gpu.KindGPUInstance)
		if !instances {
			levels |= f.Levels
		}
		add(e, levels)
	}
	return p
}

// stepped is a Loop that starts a cycle only when it receives from turn.
type stepped struct {
	turn     chan struct{} // starts a cycle
	done     chan struct{} // receives a value after a page is published
	page     []byte        // last page; valid until the next turn, like snapshot
	snapshot *gpu.Snapshot
	end      func() // ends the Loop; it must not return an error
}

// start starts a Loop, and waits for its first cycles.
func start(tb testing.TB, source collector.Source, owners collector.Attributor, podOf accounting.PodOf,
	p *gpu.Plan) *stepped {
	tb.Helper()
	encoder := exposition.NewEncoder(exposition.Options{Hostname: "node-17", HostLabels: []string{"hostname"}})
	s := &stepped{turn: make(chan struct{}), done: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	options := loop.Options{PodOf: podOf, Options: collector.Options{
		Settings:   collector.Settings{Source: source, Plan: p},
		Registerer: prometheus.NewRegistry(),
		Publish: func(snapshot *gpu.Snapshot) {
			if snapshot.Topology == nil || ctx.Err() != nil {
				return
			}
			page := encoder.Encode(snapshot)
			s.page, s.snapshot = page.Bytes(), snapshot
			s.done <- struct{}{}
			<-s.turn
			page.Release()
		},
	}}
	if owners != nil {
		options.Attributors = []collector.Attributor{owners}
	}
	ended := make(chan error, 1)
	go func() { ended <- loop.New(options).Run(ctx) }()
	s.end = func() {
		cancel()
		close(s.turn)
		if err := <-ended; err != nil {
			tb.Fatal(err)
		}
	}
	<-s.done
	for range 20 { // warm up
		s.cycle()
	}
	return s
}

// cycle runs a cycle from Read to page, and returns how long it took.
func (s *stepped) cycle() time.Duration {
	begin := time.Now()
	s.turn <- struct{}{}
	<-s.done
	return time.Since(begin)
}

// lines returns the number of lines of the last page that begin with prefix.
func (s *stepped) lines(prefix string) float64 {
	return float64(strings.Count("\n"+strings.TrimSuffix(string(s.page), "\n"), "\n"+prefix))
}

type source struct {
	name string
	open func(testing.TB) (collector.Source, collector.Attributor)
}

func sources() []source {
	return []source{
		{"sim", func(tb testing.TB) (collector.Source, collector.Attributor) {
			s, err := sim.New(sim.Options{Node: "mig8x7"})
			if err != nil {
				tb.Fatal(err)
			}
			return collector.SourceOf(s.Open), s
		}},
		{"dcgm", func(tb testing.TB) (collector.Source, collector.Attributor) {
			lines := []string{"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06",
				"value any:* 100-1999 double 12.5"}
			for g := range 8 {
				lines = append(lines,
					fmt.Sprintf("gpu %d uuid=GPU-%08d name=H100 bus=00000000:%02X:00.0 index=%d minor=%d", g, g, 0x1b+g,
						g, g))
			}
			for i := range 56 {
				lines = append(lines, fmt.Sprintf("instance %d gpu=%d nvml=%d profile=1g.10gb", 100+i, i/7, i%7+1))
			}
			fakedcgm.New(tb, lines...)
			return collector.SourceOf(dcgm.New(dcgm.Options{}).Open), nil
		}},
	}
}

// BenchmarkCycle measures one cycle with 56 MIG instances: read, attribute, derive, encode, publish.
func BenchmarkCycle(b *testing.B) {
	for _, s := range sources() {
		for _, fields := range []int{76, 100} {
			b.Run(fmt.Sprintf("%s/56x%d", s.name, fields), func(b *testing.B) {
				src, owners := s.open(b)
				l := start(b, src, owners, nil, plan(fields, true))
				b.ReportAllocs()
				for b.Loop() {
					l.cycle()
				}
				b.ReportMetric(l.lines(""), "lines")
				l.end()
			})
		}
	}
}

// BenchmarkSoak always runs 10,000 cycles with 56 instances and 100 fields, regardless of b.N. It reports the resident
// memory at the end, and how much it grew in the second half.
func BenchmarkSoak(b *testing.B) {
	for _, s := range sources() {
		b.Run(s.name, func(b *testing.B) {
			src, owners := s.open(b)
			l := start(b, src, owners, nil, plan(100, true))
			defer l.end()
			const n = 10_000
			half := 0.0
			for i := range n {
				l.cycle()
				if i == n/2 {
					half = resident(b)
				}
			}
			end := resident(b)
			b.ReportMetric(end, "MiB-RSS")
			b.ReportMetric(end-half, "MiB-growth")
			b.ReportMetric(0, "ns/op") // the benchmark measures no time
		})
	}
}

// resident returns the resident memory of the process in MiB after a garbage collection.
func resident(tb testing.TB) float64 {
	tb.Helper()
	runtime.GC()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				tb.Fatal(err)
			}
			return kib / 1024
		}
	}
	tb.Fatal("no VmRSS in /proc/self/status")
	return 0
}
