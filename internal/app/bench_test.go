package app

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// BenchmarkSelfMetrics is what the exporter's own series add to a cycle: those of the collection,
// and, at most every ten seconds, those of the runtime.
func BenchmarkSelfMetrics(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	own := newRegistry(build{Version: "bench"})
	collector.New(collector.Options{
		Plan: &gpu.Plan{Interval: 1}, Publish: func(*gpu.Snapshot) {}, Registerer: own,
	})
	s := &selfMetrics{own: own, runtime: newRuntimeRegistry(), log: log}
	for name, from := range map[string]prometheus.Gatherer{"collection": s.own, "runtime": s.runtime} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = s.render(dst[:0], from)
			}
		})
	}
}
