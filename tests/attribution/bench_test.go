package attribution

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/sim"
)

// dense is a node of eight GPUs in seven instances each, every one of them in
// two replicas, with 110 pods: as many as a kubelet takes.
func dense(tb testing.TB) *sim.Source {
	var b strings.Builder
	b.WriteString("name: dense\nabout: 110 pods on 56 time-sliced instances\ndriver: 570.124.06\ncuda: 12080\ngpus:\n" +
		"  - {board: H100-SXM5-80GB, count: 8, sharing: time-slicing, replicas: 2, mig: [" +
		strings.TrimSuffix(strings.Repeat("1g.10gb, ", 7), ", ") + "]}\npods:\n")
	for i := range 110 {
		fmt.Fprintf(&b, "  - {namespace: team-%d, pod: job-%d, container: main, workload: batch, devices: [\"%d/%d\"]}\n",
			i%9, i, i/2/7, 7+i/2%7)
	}
	node, err := sim.ParseNode(strings.NewReader(b.String()), "dense.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	source, err := sim.New(sim.Options{Model: node})
	if err != nil {
		tb.Fatal(err)
	}
	return source
}

// asked is a plan of 76 numeric fields: those that attribution needs, as they
// are, and others of every instance, whatever they mean.
func asked() *gpu.Plan {
	// Cycles follow one another without a pause; samples stay fresh for long.
	p := &gpu.Plan{Interval: time.Microsecond, Devices: gpu.Selector{Flex: true}}
	add := func(e counters.Entry, levels gpu.Kinds) {
		f := e.Field()
		f.Levels |= levels
		f.Interval = time.Hour
		p.Counters = append(p.Counters, gpu.Counter{Name: f.Name, Type: gpu.MetricGauge, Help: e.Help, Field: len(p.Fields), Scale: 1})
		p.Fields = append(p.Fields, f)
	}
	needed := []gpu.FieldID{69, 156, 203, 252, 1001}
	for _, id := range needed {
		e, _ := counters.ByID(id)
		add(e, 0)
	}
	for e := range counters.All() {
		f := e.Field()
		if len(p.Fields) == 76 {
			break
		}
		if f.Text || f.Events || !e.Exportable() || !f.Levels.Has(gpu.KindGPU) || f.ID >= 1600 || slices.Contains(needed, f.ID) {
			continue
		}
		add(e, gpu.KindsOf(gpu.KindGPUInstance))
	}
	return p
}

// labelsOnly tells owners as the labels of device series alone.
type labelsOnly struct{ *sim.Source }

func (l labelsOnly) Attribute(ctx context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	owners, err := l.Source.Attribute(ctx, t)
	if err != nil {
		return nil, err
	}
	return &gpu.Owners{Generation: owners.Generation, Labels: owners.Labels}, nil
}

// BenchmarkCycle is a cycle of the densest node, from Read to page: without
// anybody who tells owners, with their labels, and with every pod's part.
func BenchmarkCycle(b *testing.B) {
	for _, c := range []struct {
		name        string
		attributors func(*sim.Source) []collector.Attributor
	}{
		{"bare", func(*sim.Source) []collector.Attributor { return nil }},
		{"labels", func(s *sim.Source) []collector.Attributor { return []collector.Attributor{labelsOnly{s}} }},
		{"shares", func(s *sim.Source) []collector.Attributor { return []collector.Attributor{s} }},
	} {
		b.Run(c.name, func(b *testing.B) {
			source := dense(b)
			encoder := exposition.NewEncoder(exposition.Options{Hostname: "node-17"})
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			const warm = 20
			done, lines, attributed := 0, 0, 0
			loop := collector.New(collector.Options{
				Source: collector.SourceOf(source.Open), Plan: asked(), Attributors: c.attributors(source), PodOf: source.PodOf,
				Registerer: prometheus.NewRegistry(),
				Publish: func(s *gpu.Snapshot) {
					if s.Topology == nil || done == b.N+warm {
						return
					}
					page := encoder.Encode(s)
					if done++; done == warm {
						b.ResetTimer()
					}
					if done == b.N+warm {
						b.StopTimer()
						lines = strings.Count(string(page.Bytes()), "\n")
						attributed = strings.Count(string(page.Bytes()), "\ndcgm_pod_gpu_")
						cancel()
					}
					page.Release()
				},
			})
			b.ReportAllocs()
			if err := loop.Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(lines), "lines")
			b.ReportMetric(float64(attributed), "pod-series")
		})
	}
}
