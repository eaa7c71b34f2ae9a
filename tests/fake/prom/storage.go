package prom

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// A Storage holds samples in time order. Prometheus' engine queries it. It must be used by only one goroutine.
type Storage struct {
	Series map[string]*promql.Series // by the key given to Append
	engine *promql.Engine
	named  map[string][]*promql.Series // by metric name, sorted; "" has all
}

// NewStorage returns an empty Storage.
func NewStorage() *Storage {
	return &Storage{
		Series: map[string]*promql.Series{},
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 50e6, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
			NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		}),
	}
}

// Append adds a sample to the series with the key. The labels of a series are those of its first sample.
func (s *Storage) Append(key string, metric func() labels.Labels, at time.Time, v float64) {
	series, ok := s.Series[key]
	if !ok {
		series = &promql.Series{Metric: metric()}
		s.Series[key] = series
	}
	series.Floats = append(series.Floats, promql.FPoint{T: at.UnixMilli(), F: v})
}

// Stale appends a stale marker to each series for which of returns true. It skips series that have a sample at or after
// the given time, or are stale already. A scrape does the same to series that are missing from its page.
func (s *Storage) Stale(at time.Time, of func(labels.Labels) bool) {
	for _, series := range s.Series {
		last := series.Floats[len(series.Floats)-1]
		if of(series.Metric) && last.T < at.UnixMilli() && !value.IsStaleNaN(last.F) {
			series.Floats = append(series.Floats,
				promql.FPoint{T: at.UnixMilli(), F: math.Float64frombits(value.StaleNaN)})
		}
	}
}

// Vector returns the result of an instant query. If the query fails, the test ends.
func (s *Storage) Vector(t testing.TB, query string, at time.Time) promql.Vector {
	t.Helper()
	q, err := s.engine.NewInstantQuery(t.Context(), s, nil, query, at)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer q.Close()
	vector, err := q.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return slices.Clone(vector)
}

// Matrix returns the result of a range query. The test fails if the query fails.
func (s *Storage) Matrix(t testing.TB, query string, begin, end time.Time, step time.Duration) promql.Matrix {
	t.Helper()
	q, err := s.engine.NewRangeQuery(t.Context(), s, nil, query, begin, end, step)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer q.Close()
	matrix, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	matrix = slices.Clone(matrix)
	for i := range matrix { // copy, because the engine reuses its memory
		matrix[i].Metric, matrix[i].Floats = matrix[i].Metric.Copy(), slices.Clone(matrix[i].Floats)
	}
	return matrix
}

// Querier implements storage.Queryable. It ignores the time range, and selects series with all of their samples.
func (s *Storage) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints,
		matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{at: -1}
		for _, series := range s.candidates(matchers) {
			if !slices.ContainsFunc(matchers,
				func(m *labels.Matcher) bool { return !m.Matches(series.Metric.Get(m.Name)) }) {
				set.series = append(set.series, series)
			}
		}
		return set
	}}, nil
}

// candidates returns the series with the metric name in matchers, or all series if matchers require no exact name.
func (s *Storage) candidates(matchers []*labels.Matcher) []*promql.Series {
	if len(s.named[""]) != len(s.Series) {
		s.named = map[string][]*promql.Series{}
		for _, series := range s.Series {
			for _, name := range []string{"", series.Metric.Get(model.MetricNameLabel)} {
				s.named[name] = append(s.named[name], series)
			}
		}
		for _, list := range s.named {
			slices.SortFunc(list, func(a, b *promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
		}
	}
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return s.named[m.Value]
		}
	}
	return s.named[""]
}

type seriesSet struct {
	series []*promql.Series
	at     int
}

func (s *seriesSet) Next() bool                      { s.at++; return s.at < len(s.series) }
func (s *seriesSet) At() storage.Series              { return promql.NewStorageSeries(*s.series[s.at]) }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
