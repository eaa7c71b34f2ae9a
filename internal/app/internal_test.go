package app

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// still is a source of a GPU that says the same forever.
type still struct{}

func (still) Open(context.Context, *gpu.Plan) (collector.Session, error) { return still{}, nil }
func (still) Topology() *gpu.Topology                                    { return &gpu.Topology{} }
func (still) Read(context.Context, *gpu.Batch) error                     { return nil }
func (still) Done() <-chan struct{}                                      { return nil }
func (still) Err() error                                                 { return nil }
func (still) Close() error                                               { return nil }

// A page past its limit is not served, whatever the collection is stuck in: the exporter's own series
// are, and it is not healthy. It recovers by itself, and counts that.
func TestAStalledCollectionIsNotServed(t *testing.T) {
	for _, own := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const interval, limit = time.Second, 5 * time.Second
			reg := prometheus.NewRegistry()
			self := &selfMetrics{own: reg, runtime: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}
			var pages exposition.Pages
			encoder := exposition.NewEncoder(exposition.Options{Trailer: self.append})
			stuck := make(chan struct{})
			var block atomic.Bool
			loop := collector.New(collector.Options{
				Source: still{}, Plan: &gpu.Plan{Interval: interval}, Registerer: reg,
				Publish: func(s *gpu.Snapshot) {
					if block.Load() {
						<-stuck
					}
					pages.Publish(encoder.Encode(s), s.ValidFor)
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- loop.Run(ctx) }()
			has := func(want ...string) {
				t.Helper()
				p := fresh(&pages, self, own)
				if p == nil {
					t.Fatal("no page")
				}
				for _, w := range want {
					if !strings.Contains(string(p.Bytes()), w) {
						t.Errorf("no %q on the page:\n%s", w, p.Bytes())
					}
				}
			}
			time.Sleep(10*interval + interval/2)
			has("dcgm_exporter_collect_success 1", "dcgm_exporter_source_info")
			block.Store(true)
			time.Sleep(limit - interval)
			has("dcgm_exporter_collect_success 1")
			if err := freshness(&pages); err != nil {
				t.Errorf("not healthy before the limit: %v", err)
			}
			time.Sleep(interval/2 + 1) // the page is of half an interval ago
			if own {
				has("\ndcgm_exporter_collect_success 0", `dcgm_exporter_collect_unavailable{reason="stalled"} 1`, "dcgm_exporter_source_info")
			} else {
				has("# the collection is stalled")
			}
			if err := freshness(&pages); gpu.Reason(err) != "stalled" {
				t.Errorf("healthy = %v past the limit", err)
			}
			block.Store(false)
			close(stuck)
			time.Sleep(2 * interval)
			has("dcgm_exporter_collect_success 1", `dcgm_exporter_collect_failures_total{reason="stalled",stage="publish"} 1`)
			if err := freshness(&pages); err != nil {
				t.Errorf("not healthy though it goes on: %v", err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
	}
}
