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
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// still is a source and a session whose reads return nothing.
type still struct{}

func (still) Open(context.Context, *gpu.Plan) (collector.Session, error) { return still{}, nil }
func (still) Topology() *gpu.Topology                                    { return &gpu.Topology{} }
func (still) Read(context.Context, gpu.ReadRequest, *gpu.Batch) error    { return nil }
func (still) Done() <-chan struct{}                                      { return nil }
func (still) Err() error                                                 { return nil }
func (still) Close() error                                               { return nil }

// When the collection is stuck and the page expires, only the exporter's own metrics are served, and the exporter is
// not healthy. It recovers when the collection continues.
func TestStalledCollection(t *testing.T) {
	for _, own := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const interval, limit = time.Second, 5 * time.Second
			reg := prometheus.NewRegistry()
			self := &selfMetrics{own: reg, runtime: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}
			e := &exporter{config: &config.Config{}, pipeline: &pipeline{self: self}}
			e.config.Web.ExporterMetrics = own
			encoder := exposition.NewEncoder(exposition.Options{Trailer: self.append})
			stuck := make(chan struct{})
			var block atomic.Bool
			e.loop = collector.New(collector.Options{
				Settings:   collector.Settings{Source: still{}, Plan: &gpu.Plan{Interval: interval}},
				Registerer: reg,
				Publish: func(s *gpu.Snapshot) {
					if block.Load() {
						<-stuck
					}
					e.pages.Publish(encoder.Encode(s), s.ValidFor)
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.loop.Run(ctx) }()
			has := func(want ...string) {
				t.Helper()
				p := e.currentPage()
				if p == nil {
					t.Fatal("page = nil, want a published page")
				}
				for _, w := range want {
					if !strings.Contains(string(p.Bytes()), w) {
						t.Errorf("page does not contain %q:\n%s", w, p.Bytes())
					}
				}
			}
			time.Sleep(10*interval + interval/2)
			has("dcgm_exporter_collect_success 1", "dcgm_exporter_source_info")
			block.Store(true)
			time.Sleep(limit - interval)
			has("dcgm_exporter_collect_success 1")
			if err := e.healthy(); err != nil {
				t.Errorf("health before the page expires = %v, want nil", err)
			}
			time.Sleep(interval/2 + 1) // the page is half an interval old
			if own {
				has("\ndcgm_exporter_collect_success 0", `dcgm_exporter_collect_unavailable{reason="stalled"} 1`)
				has("dcgm_exporter_source_info")
			} else {
				has("# the collection is stalled")
			}
			if err := e.healthy(); gpu.Reason(err) != "stalled" {
				t.Errorf("health after the page expired = %v, want stalled", err)
			}
			block.Store(false)
			close(stuck)
			time.Sleep(2 * interval)
			has("dcgm_exporter_collect_success 1")
			has(`dcgm_exporter_collect_failures_total{reason="stalled",stage="publish"} 1`)
			if err := e.healthy(); err != nil {
				t.Errorf("health after the collection continues = %v, want nil", err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
	}
}
