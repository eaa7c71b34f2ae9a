package app

import (
	"bytes"
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

// A collection that is stuck in what is no driver call is not served as a fresh one, and past the
// hang limit it is not healthy. It recovers by itself.
func TestAStalledCollectionIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const interval, limit, hangLimit = time.Second, 5 * time.Second, time.Minute
		var log bytes.Buffer
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
				pages.PublishFor(encoder.Encode(s), s.ValidFor)
			},
		})
		dog := &watchdog{
			pages: &pages, encoder: exposition.NewEncoder(exposition.Options{Trailer: self.append}), stalled: loop.Stalled,
			hangLimit: hangLimit, last: lastPage(true), log: slog.New(slog.NewTextHandler(&log, nil)),
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- loop.Run(ctx) }()
		go dog.run(ctx)
		has := func(want ...string) {
			t.Helper()
			p := pages.Acquire()
			if p == nil {
				t.Fatal("no page")
			}
			defer p.Release()
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
		time.Sleep(interval/2 + 1) // the page is of half an interval ago
		has("dcgm_exporter_collect_success 0")
		time.Sleep(2 * watchEvery)
		has("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_unavailable{reason="stalled"} 1`, "dcgm_exporter_source_info",
			`dcgm_exporter_collect_failures_total{reason="stalled",stage="publish"} 1`)
		if err := dog.healthy(); err != nil {
			t.Errorf("not healthy before the hang limit: %v", err)
		}
		time.Sleep(hangLimit)
		if err := dog.healthy(); gpu.Reason(err) != "stalled" {
			t.Errorf("healthy = %v past the hang limit", err)
		}
		block.Store(false)
		close(stuck)
		time.Sleep(2 * interval)
		has("dcgm_exporter_collect_success 1", `dcgm_exporter_collect_failures_total{reason="stalled",stage="publish"} 1`)
		if err := dog.healthy(); err != nil {
			t.Errorf("not healthy though it goes on: %v", err)
		}
		if n := strings.Count(log.String(), "is stalled"); n != 1 || !strings.Contains(log.String(), "goes on") {
			t.Errorf("the log:\n%s", log.String())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// A part that panics begins again, with one stack in the log, and ends with ctx.
func TestAPartThatPanicsBeginsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		runs := 0
		sustained(ctx, slog.New(slog.NewTextHandler(&log, nil)), "test", func(ctx context.Context) {
			if runs++; runs < 4 {
				panic("a mistake")
			}
			<-ctx.Done()
		})
		text := log.String()
		if runs != 4 || strings.Count(text, "a mistake") < 3 || strings.Count(text, "stack=") != 1 || !strings.Contains(text, "internal_test.go") {
			t.Errorf("%d runs; the log:\n%s", runs, text)
		}
	})
}

// The driver manager appends its pause to that of the MIG manager: the driver stays released.
