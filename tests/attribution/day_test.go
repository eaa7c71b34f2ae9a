package attribution

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// A day is what Prometheus scraped of a simulated node.
type day struct {
	series map[string]*promql.Series
	begin  time.Time
	end    time.Time
	engine *promql.Engine
}

const scrapeInterval = time.Minute

// play scrapes a node for a day and an hour, on the clock of a bubble.
func play(t *testing.T, node, scenario string) *day {
	d := &day{series: map[string]*promql.Series{}}
	synctest.Test(t, func(t *testing.T) {
		faults, err := sim.ParseScenario(strings.NewReader(scenario), "faults.yaml")
		if err != nil {
			t.Fatal(err)
		}
		source, err := sim.New(sim.Options{Node: node, Seed: 7, Scenario: faults})
		if err != nil {
			t.Fatal(err)
		}
		file := append(bytes.Clone(etc.Default()), "\nDCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs of the last minutes.\n"...)
		requests, _, err := counters.Parse(bytes.NewReader(file), "default")
		if err != nil {
			t.Fatal(err)
		}
		encoder := exposition.NewEncoder(exposition.Options{})
		l := loop.New(loop.Options{PodOf: source.PodOf, Options: collector.Options{
			Source:      collector.SourceOf(source.Open),
			Plan:        counters.NewPlan(requests, counters.PlanOptions{Interval: scrapeInterval, Devices: gpu.Selector{Flex: true}}),
			Attributors: []collector.Attributor{source},
			Registerer:  prometheus.NewRegistry(),
			Publish: func(s *gpu.Snapshot) {
				if s.Topology == nil {
					return
				}
				page := encoder.Encode(s)
				d.scrape(t, page.Bytes(), s.Time)
				page.Release()
			},
		}})
		d.begin = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Hour+time.Second)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
		d.end = time.Now()
	})
	d.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 50e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute})
	return d
}

// scrape appends a page.
func (d *day) scrape(t *testing.T, page []byte, at time.Time) {
	for sample := range prom.Samples(t, page) {
		s, ok := d.series[string(sample.Series)]
		if !ok {
			s = &promql.Series{Metric: sample.Labels}
			d.series[string(sample.Series)] = s
		}
		s.Floats = append(s.Floats, promql.FPoint{T: at.UnixMilli(), F: sample.Value})
	}
}

// query returns the answer to a query, by the given label of the result's series; or by all of them
// where there are none.
func (d *day) query(t *testing.T, query string, at time.Time, by ...string) map[string]float64 {
	t.Helper()
	q, err := d.engine.NewInstantQuery(t.Context(), d, nil, query, at)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer q.Close()
	vector, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	found := map[string]float64{}
	for _, x := range vector {
		var key []string
		for _, name := range by {
			key = append(key, x.Metric.Get(name))
		}
		k := strings.Join(key, " ")
		if _, twice := found[k]; twice {
			t.Errorf("%s: two answers for %q", query, k)
		}
		found[k] = x.F
	}
	return found
}

func (d *day) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{at: -1}
		for _, s := range d.series {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
				set.series = append(set.series, s)
			}
		}
		slices.SortFunc(set.series, func(a, b *promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
		return set
	}}, nil
}

type seriesSet struct {
	series []*promql.Series
	at     int
}

func (s *seriesSet) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series              { return promql.NewStorageSeries(*s.series[s.at]) }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
