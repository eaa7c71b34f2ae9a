package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// dense returns a node with eight GPUs. Each GPU has seven instances, and each instance has two replicas. The node has
// 110 pods, the kubelet's default limit.
func dense(tb testing.TB) *sim.Source {
	var b strings.Builder
	b.WriteString("name: dense\nabout: 110 pods on 56 time-sliced instances\ndriver: 570.124.06\ncuda: 12080\ngpus:\n" +
		"  - {board: H100-SXM5-80GB, count: 8, sharing: time-slicing, replicas: 2, mig: [" +
		strings.TrimSuffix(strings.Repeat("1g.10gb, ", 7), ", ") + "]}\npods:\n")
	for i := range 110 {
		fmt.Fprintf(&b, "  - {namespace: team-%d, pod: job-%d, container: main, workload: batch, devices: "+
			"[\"%d/%d\"]}\n",
			i%9, i, i/2/7, 7+i/2%7)
	}
	node, err := sim.ParseNode([]byte(b.String()), "dense.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	source, err := sim.New(sim.Options{Model: node})
	if err != nil {
		tb.Fatal(err)
	}
	return source
}

// requested returns a plan with 76 numeric fields: those that attribution needs, and other fields of GPUs and
// instances. The meaning of the other fields does not affect the cost.
func requested() *gpu.Plan {
	// cycles follow each other without a pause, and samples never become stale
	p := &gpu.Plan{Interval: time.Microsecond, Devices: gpu.Selector{Flex: true}}
	add := func(e catalog.Entry, levels gpu.Kinds) {
		f := e.Field()
		f.Levels |= levels
		f.Interval = time.Hour
		p.Counters = append(p.Counters,
			gpu.Counter{Name: f.Name, Type: gpu.MetricGauge, Help: e.Help, Field: len(p.Fields), Scale: 1})
		p.Fields = append(p.Fields, f)
	}
	needed := []gpu.FieldID{69, 156, 203, 252, 1001}
	for _, id := range needed {
		e, _ := catalog.ByID(id)
		add(e, 0)
	}
	for e := range catalog.All() {
		f := e.Field()
		if len(p.Fields) == 76 {
			break
		}
		if f.Text || e.Events || !e.Exportable() || !f.Levels.Has(gpu.KindGPU) || f.ID >= 1600 ||
			slices.Contains(needed, f.ID) {
			continue
		}
		add(e, gpu.KindsOf(gpu.KindGPUInstance))
	}
	return p
}

// stepped runs a Loop that starts a cycle only when it receives from turn.
type stepped struct {
	turn   chan struct{} // starts a cycle
	done   chan struct{} // receives a value after a page is encoded
	ended  chan error
	lines  int // number of lines on the last page, set when the Loop ends
	shares int // number of dcgm_pod_gpu_* series on the last page
}

// newStepped starts a Loop on the dense node. The Loop waits for turn after every page.
func newStepped(ctx context.Context, tb testing.TB, attributed bool) *stepped {
	source := dense(tb)
	encoder := exposition.NewEncoder(exposition.Options{Hostname: "node-17"})
	s := &stepped{turn: make(chan struct{}), done: make(chan struct{}), ended: make(chan error, 1)}
	options := loop.Options{Options: collector.Options{
		Settings:   collector.Settings{Source: collector.SourceOf(source.Open), Plan: requested()},
		Registerer: prometheus.NewRegistry(),
		Publish: func(snap *gpu.Snapshot) {
			if snap.Topology == nil {
				return
			}
			page := encoder.Encode(snap)
			select {
			case s.done <- struct{}{}:
			case <-ctx.Done():
			}
			select {
			case <-s.turn:
				page.Release()
			case <-ctx.Done():
				s.lines = strings.Count(string(page.Bytes()), "\n")
				s.shares = strings.Count(string(page.Bytes()), "\ndcgm_pod_gpu_")
			}
		},
	}}
	if attributed {
		options.Attributors, options.PodOf = []collector.Attributor{source}, source.PodOf
	}
	l := loop.New(options)
	go func() { s.ended <- l.Run(ctx) }()
	<-s.done
	return s
}

func (s *stepped) cycle() time.Duration {
	begin := time.Now()
	s.turn <- struct{}{}
	<-s.done
	return time.Since(begin)
}

// BenchmarkOwners measures a cycle of the dense node from Read to page, with and without attribution. The two
// alternate, so that other load on the machine affects both. It reports both medians and their ratio.
func BenchmarkOwners(b *testing.B) {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	loops := []*stepped{newStepped(ctx, b, false), newStepped(ctx, b, true)}
	var times [2][]time.Duration
	for range 50 { // warm up
		loops[0].cycle()
		loops[1].cycle()
	}
	for b.Loop() {
		for i, l := range loops {
			times[i] = append(times[i], l.cycle())
		}
	}
	cancel()
	for _, l := range loops {
		if err := <-l.ended; err != nil {
			b.Fatal(err)
		}
	}
	var medians [2]float64
	for i := range times {
		slices.Sort(times[i])
		medians[i] = float64(times[i][len(times[i])/2])
	}
	b.ReportMetric(medians[0], "bare-ns")
	b.ReportMetric(medians[1], "shares-ns")
	b.ReportMetric(medians[1]/medians[0], "ratio")
	b.ReportMetric(float64(loops[0].lines), "bare-lines")
	b.ReportMetric(float64(loops[1].lines), "shares-lines")
	b.ReportMetric(float64(loops[1].shares), "pod-series")
}
