package scenarios

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// interval is the collection interval of a simulated node.
const interval = 10 * time.Second

// A stage is a running collector of a simulated node with a fake clock.
type stage struct {
	t     *testing.T
	pages exposition.Pages
	begin time.Time
}

// perform simulates a node with a scenario, with all counters of the fleet file, and calls look. Afterward it stops the
// collector and checks that nothing is left open.
func perform(t *testing.T, node, faults string, look func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, begin: time.Now()}
		src, err := sim.New(sim.Options{Node: node, Seed: 11, Scenario: simulated.Scenario(t, faults)})
		if err != nil {
			t.Fatal(err)
		}
		file, ok := etc.File(etc.FleetName)
		if !ok {
			t.Fatal("counters file not found: ", etc.FleetName)
		}
		run := pages.Run{
			Source: src, Args: []string{"--no-hostname", "--xid-kernel-log=/dev/kmsg"}, Counters: file,
			Interval: interval, MaxBackoff: interval / 2, HangLimit: time.Hour,
		}.Loop(t, func(_ *gpu.Snapshot, page *exposition.Page) { s.pages.Publish(page, 0) })
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- run(ctx) }()
		defer func() {
			src.Release()
			cancel()
			if err := <-over; err != nil {
				t.Errorf("Run: %v", err)
			}
			synctest.Wait()
			if n := src.Stats(); n.Open != 0 || n.InFlight != 0 {
				t.Errorf("sessions and calls left open after the test = %+v, want none", n)
			}
		}()
		look(s)
	})
}

// at waits until the given time since the start, and returns the current page.
func (s *stage) at(d time.Duration) page {
	s.t.Helper()
	time.Sleep(time.Until(s.begin.Add(d)))
	synctest.Wait()
	p := s.pages.Current()
	if p == nil {
		s.t.Fatalf("no page at %v", d)
	}
	return parse(s.t, p.Bytes())
}

// A page is a parsed scrape.
type page struct {
	text   string
	series map[string][]sample // samples by family
}

type sample struct {
	labels labels.Labels
	value  float64
}

// parse parses a page with Prometheus' parser. A duplicate series fails the test.
func parse(t *testing.T, text []byte) page {
	t.Helper()
	p := page{text: string(text), series: map[string][]sample{}}
	seen := map[string]bool{}
	for s := range prom.Samples(t, text) {
		if seen[string(s.Series)] {
			t.Fatalf("duplicate series: %s", s.Series)
		}
		seen[string(s.Series)] = true
		l := s.Labels
		name := l.Get(model.MetricNameLabel)
		p.series[name] = append(p.series[name], sample{l, s.Value})
	}
	return p
}

// by returns the values of a family, keyed by label values joined with slashes.
func (p page) by(family string, names ...string) map[string]float64 {
	out := map[string]float64{}
	for _, s := range p.series[family] {
		key := make([]string, len(names))
		for i, name := range names {
			key[i] = s.labels.Get(name)
		}
		out[strings.Join(key, "/")] = s.value
	}
	return out
}

// gpus returns the GPUs that have a temperature, sorted.
func (p page) gpus() []string {
	return slices.Sorted(maps.Keys(p.by("DCGM_FI_DEV_GPU_TEMP", "gpu")))
}
