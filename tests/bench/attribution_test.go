package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
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

// BenchmarkOwners measures a cycle of the dense node from Read to page, with and without attribution. The plan has 76
// fields: those that attribution needs, and other fields of GPUs and instances. The two alternate, so that other load
// on the machine affects both. It reports both medians and their ratio.
func BenchmarkOwners(b *testing.B) {
	bare, owned := dense(b), dense(b)
	p := plan(76, false, 69, 156, 203, 252, 1001)
	loops := []*stepped{
		start(b, collector.SourceOf(bare.Open), nil, nil, p),
		start(b, collector.SourceOf(owned.Open), owned, owned.PodOf, p),
	}
	var times [2][]time.Duration
	for b.Loop() {
		for i, l := range loops {
			times[i] = append(times[i], l.cycle())
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
	b.ReportMetric(loops[0].lines(""), "bare-lines")
	b.ReportMetric(loops[1].lines(""), "shares-lines")
	b.ReportMetric(loops[1].lines("dcgm_pod_gpu_"), "pod-series")
	for _, l := range loops {
		l.end()
	}
}
