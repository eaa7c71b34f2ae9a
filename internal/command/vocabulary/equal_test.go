package vocabulary_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// shapes are expressions of one metric, METRIC.
func shapes() []string {
	return []string{
		`METRIC`, `METRIC * 1e6`, `METRIC / 1000`, `1e6 * METRIC`, `METRIC > 40`, `40 < bool METRIC`, `-METRIC`, `METRIC ^ 2`, `2 ^ (METRIC / 1000)`,
		`1000 / METRIC`, `METRIC / METRIC`, `7 % METRIC`, `METRIC{gpu="1"} offset 1m`, `sum(METRIC)`, `avg by (gpu) (METRIC) + 1`,
		`rate(METRIC[5m])`, `rate(METRIC[5m]) / 1000`, `sum(increase(METRIC[5m])) * 2`, `max_over_time(METRIC[5m])`, `min_over_time(METRIC[10m:1m])`,
		`stdvar_over_time(METRIC[5m])`, `stddev_over_time(METRIC[5m])`, `quantile_over_time(0.5, METRIC[5m])`,
		`count_over_time(METRIC[5m])`, `changes(METRIC[5m])`, `predict_linear(METRIC[5m], 60)`, `deriv(METRIC[5m])`,
		`count(METRIC)`, `stdvar(METRIC)`, `quantile(0.9, METRIC)`, `topk(1, METRIC)`, `timestamp(METRIC)`, `absent(METRIC{gpu="9"})`,
		`absent(METRIC)`, `scalar(METRIC{gpu="1"}) + 3`, `clamp_max(METRIC, 50)`, `METRIC or vector(0)`, `METRIC unless METRIC > 60`,
		`label_replace(METRIC, "host", "$1", "hostname", "(.*)")`, `sort_desc(METRIC)`, `(METRIC) * 1048576`, `METRIC * on (gpu) group_left () (METRIC > bool 50)`,
	}
}

// TestRewrittenMeansTheSame holds, with Prometheus' own engine, for every number that was renamed
// and every shape: the old expression over a page of the old vocabulary, and the rewritten one over
// a page of the new vocabulary, give the same values and labels, in both directions.
func TestRewrittenMeansTheSame(t *testing.T) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, LookbackDelta: 5 * time.Minute})
	defer engine.Close()
	pairs, rescaled := 0, 0
	seen := map[float64]bool{}
	for e := range catalog.All() {
		if !e.Exportable() || e.BaseOf != 0 || e.Type == catalog.Text || e.Classic == e.Current {
			continue
		}
		pairs++
		classic, _ := catalog.Lookup(e.Classic)
		current, _ := catalog.Lookup(e.Current)
		factor := current.Scale / classic.Scale
		some := shapes()
		if factor != 1 {
			rescaled++
		}
		if seen[factor] {
			// The first field of each factor goes through every shape, the others through three of them in
			// turn.
			at := pairs % (len(some) - 2)
			some = some[at : at+3]
		}
		seen[factor] = true
		for _, direction := range []struct {
			old, renamed catalog.Named
			to           string
		}{{classic, current, "current"}, {current, classic, "classic"}} {
			checkSame(t, engine, direction.old, direction.renamed, direction.to, some)
		}
	}
	if pairs < 100 || rescaled < 20 || len(seen) < 5 {
		t.Errorf("%d pairs, %d of them with another unit, %d factors: the test sees too few", pairs, rescaled, len(seen))
	}
}

func checkSame(t *testing.T, engine *promql.Engine, old, renamed catalog.Named, to string, shapes []string) {
	t.Helper()
	file := `{"groups": [{"name": "g", "rules": [`
	var exprs []string
	for i, shape := range shapes {
		expr := strings.ReplaceAll(shape, "METRIC", old.Name)
		exprs = append(exprs, expr)
		if i > 0 {
			file += ","
		}
		file += fmt.Sprintf(`{"record": "r%d", "expr": %q}`, i, expr)
	}
	list := findings(t, "rules.json", file+`]}]}`, "--to", to)
	if len(list) != len(exprs) {
		t.Fatalf("%s: %d of %d expressions are rewritten", old.Name, len(list), len(exprs))
	}
	for i, expr := range exprs {
		if list[i].New == "" || len(list[i].ByHand) > 0 {
			t.Errorf("%s: not rewritten: %v", expr, list[i].ByHand)
			continue
		}
		want := answer(t, engine, expr, old)
		got := answer(t, engine, list[i].New, renamed)
		close := cmpopts.EquateApprox(1e-9, 1e-9)
		if d := cmp.Diff(want, got, close, cmpopts.EquateNaNs()); d != "" {
			t.Errorf("%s\nbecomes %s\n(-want +got)\n%s", expr, list[i].New, d)
		}
	}
}

// answer evaluates an expression over two GPUs' samples of one field under a name, and returns the
// values by labels without the name.
func answer(t *testing.T, engine *promql.Engine, expr string, named catalog.Named) map[string]float64 {
	t.Helper()
	db := &storage.MockQueryable{MockQuerier: page{named}}
	q, err := engine.NewInstantQuery(context.Background(), db, nil, expr, time.Unix(1200, 0))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(context.Background())
	if result.Err != nil {
		t.Fatalf("%s: %v", expr, result.Err)
	}
	values := map[string]float64{}
	switch v := result.Value.(type) {
	case promql.Vector:
		for _, s := range v {
			values[s.Metric.DropReserved(func(n string) bool { return n == model.MetricNameLabel }).String()] = s.F
		}
	case promql.Scalar:
		values["scalar"] = v.V
	default:
		t.Fatalf("%s: a %T", expr, v)
	}
	return values
}

// A page has a field's samples of 20 minutes under one of its names.
type page struct{ named catalog.Named }

type sample struct {
	t int64
	v float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

func (p page) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for gpu := range 2 {
		set := labels.FromStrings(model.MetricNameLabel, p.named.Name, "gpu", fmt.Sprint(gpu), "hostname", "node")
		matches := true
		for _, m := range matchers {
			matches = matches && m.Matches(set.Get(m.Name))
		}
		if !matches {
			continue
		}
		var samples []chunks.Sample
		for second := int64(0); second <= 1200; second += 30 {
			// It grows, with a wave, and passes the thresholds of the shapes.
			read := 20 + float64(second)/15 + 5*math.Sin(float64(second)/97) + float64(gpu)*7
			samples = append(samples, sample{second * 1000, read * p.named.Scale})
		}
		found = append(found, storage.NewListSeries(set, samples))
	}
	return &set{series: found, at: -1}
}

func (page) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (page) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (page) Close() error { return nil }

type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
