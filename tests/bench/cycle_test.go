package bench

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// plan returns a plan with the given number of numeric fields. They are fields of GPUs, but the plan requests them for
// GPU instances. The meaning of the fields does not affect the cost.
func plan(fields int) *gpu.Plan {
	// cycles follow each other without a pause, and samples never become stale
	p := &gpu.Plan{Interval: time.Microsecond, Devices: gpu.Selector{Minor: true}}
	for e := range catalog.All() {
		if len(p.Fields) == fields {
			break
		}
		f := e.Field()
		if f.Text || e.Events || !e.Exportable() || !f.Levels.Has(gpu.KindGPU) || f.ID >= 1600 {
			continue
		}
		f.Levels = gpu.KindsOf(gpu.KindGPUInstance)
		f.Interval = time.Hour
		f.Range = nil // the test library's values are out of range
		p.Counters = append(p.Counters,
			gpu.Counter{Name: f.Name, Type: gpu.MetricGauge, Help: e.Help, Field: len(p.Fields), Scale: 1})
		p.Fields = append(p.Fields, f)
	}
	return p
}

// cycles runs 20 warm-up cycles and then n cycles of a loop. It calls before once after the warm-up. It calls each, if
// it is not nil, after each of the n cycles. It returns the number of lines on the last page.
func cycles(tb testing.TB, source collector.Source, attributors []collector.Attributor, p *gpu.Plan, n int, before,
	each func()) (series int) {
	tb.Helper()
	const warm = 20
	encoder := exposition.NewEncoder(exposition.Options{Hostname: "node-17", HostLabels: []string{"hostname"}})
	var pages exposition.Pages
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := 0
	l := loop.New(loop.Options{Options: collector.Options{
		Settings:   collector.Settings{Source: source, Plan: p, Attributors: attributors},
		Registerer: prometheus.NewRegistry(),
		Publish: func(s *gpu.Snapshot) {
			if s.Topology == nil {
				return
			}
			if done == n+warm {
				return
			}
			if done == warm {
				before()
			}
			encoded := encoder.Encode(s)
			if done == n+warm-1 {
				series = strings.Count(string(encoded.Bytes()), "\n")
			}
			pages.Publish(encoded, 0)
			if done++; done > warm && each != nil {
				each()
			}
			if done == n+warm {
				cancel()
			}
		},
	}})
	if err := l.Run(ctx); err != nil {
		tb.Fatal(err)
	}
	return series
}

type source struct {
	name string
	open func(testing.TB) (collector.Source, []collector.Attributor)
}

func sources() []source {
	return []source{
		{"sim", func(tb testing.TB) (collector.Source, []collector.Attributor) {
			s, err := sim.New(sim.Options{Node: "mig8x7"})
			if err != nil {
				tb.Fatal(err)
			}
			return collector.SourceOf(s.Open), []collector.Attributor{s}
		}},
		{"dcgm", func(tb testing.TB) (collector.Source, []collector.Attributor) {
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
				src, attributors := s.open(b)
				b.ReportAllocs()
				series := cycles(b, src, attributors, plan(fields), b.N, b.ResetTimer, nil)
				b.StopTimer()
				b.ReportMetric(float64(series), "lines")
			})
		}
	}
}

// BenchmarkSoak always runs 10,000 cycles with 56 instances and 100 fields, regardless of b.N. It reports the resident
// memory at the end, and how much it grew in the second half.
func BenchmarkSoak(b *testing.B) {
	for _, s := range sources() {
		b.Run(s.name, func(b *testing.B) {
			src, attributors := s.open(b)
			const n = 10_000
			done, half := 0, 0.0
			cycles(b, src, attributors, plan(100), n, func() {}, func() {
				if done++; done == n/2 {
					half = resident(b)
				}
			})
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
