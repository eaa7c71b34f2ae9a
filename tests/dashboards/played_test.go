package dashboards

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	promclient "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const scrapeInterval = time.Minute

// A machine is a simulated node to be scraped. The zero values of its fields are a healthy node with
// the names of 4.8.
type machine struct {
	host, node string
	vocabulary catalog.Vocabulary
	scenario   string
	file       []byte // of counters
	trailer    string // of each page
	// Tenants are the owners in the place of the node's own; nil for those. Apart leaves their labels to the series of owners.
	tenants func(*gpu.Topology) *gpu.Owners
	apart   bool
	// Pod is that of the exporter, of a scrape that does not honor labels; "" for one that does.
	pod string
}

// Name and Attribute have a machine's tenants attribute.
func (m *machine) Name() string { return "tenants" }

func (m *machine) Attribute(_ context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	return m.tenants(t), nil
}

// A world is what Prometheus scraped of machines, and its query engine.
type world struct {
	*prom.Storage
	begin, end time.Time
}

// play scrapes machines for a time, on the clock of a bubble.
func play(t *testing.T, length time.Duration, machines ...machine) *world {
	t.Helper()
	w := &world{Storage: prom.NewStorage()}
	for _, m := range machines {
		synctest.Test(t, func(t *testing.T) { w.scrape(t, m, length) })
	}
	return w
}

func (w *world) scrape(t *testing.T, m machine, length time.Duration) {
	if m.scenario == "" {
		m.scenario = "faults: []\n"
	}
	faults, err := sim.ParseScenario(strings.NewReader(m.scenario), m.host+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	source, err := sim.New(sim.Options{Node: m.node, Seed: 7, Scenario: faults})
	if err != nil {
		t.Fatal(err)
	}
	requests, _, err := counters.Parse(bytes.NewReader(m.file), "counters.csv")
	if err != nil {
		t.Fatal(err)
	}
	requests = counters.Translate(requests, m.vocabulary, true)
	own := promclient.NewRegistry()
	build := promclient.NewGauge(promclient.GaugeOpts{Name: "dcgm_exporter_build_info", ConstLabels: promclient.Labels{"version": "v0.1.0"}, Help: "As app has it."})
	build.Set(1)
	own.MustRegister(build)
	encoder := exposition.NewEncoder(exposition.Options{Hostname: m.host, OwnersApart: m.apart, Trailer: func(dst []byte) []byte {
		return append(loop.AppendGathered(t, dst, own), m.trailer...)
	}})
	w.begin = time.Now()
	attributor := collector.Attributor(source)
	if m.tenants != nil {
		attributor = &m
	}
	l := loop.New(loop.Options{PodOf: source.PodOf, OwnersApart: m.apart, Options: collector.Options{
		Source:      collector.SourceOf(source.Open),
		Plan:        counters.NewPlan(requests, counters.PlanOptions{Interval: scrapeInterval, Devices: gpu.Selector{Flex: true}}),
		Attributors: []collector.Attributor{attributor},
		Registerer:  own,
		Publish: func(s *gpu.Snapshot) {
			if s.Topology == nil && m.host == "" {
				return
			}
			page := encoder.Encode(s)
			w.take(t, m.host, m.pod, page.Bytes(), time.Now())
		},
	}})
	ctx, cancel := context.WithTimeout(t.Context(), length+time.Second)
	defer cancel()
	if err := l.Run(ctx); err != nil {
		t.Errorf("%s: %v", m.host, err)
	}
	w.end = time.Now()
}

// take appends a page as Prometheus does, with the labels of the target: those of its pod push a series' own aside. A
// series ends with a marker.
func (w *world) take(t *testing.T, host, pod string, page []byte, at time.Time) {
	add := func(key string, metric labels.Labels, v float64) {
		w.Append(host+key, func() labels.Labels {
			b := labels.NewBuilder(metric.Copy()).Set("instance", host)
			if host != "" {
				b.Set("job", "gpu")
			}
			for _, name := range []string{"namespace", "pod", "container"} {
				if pod != "" {
					b.Set("exported_"+name, metric.Get(name)).Set(name, pod)
				}
			}
			return b.Labels()
		}, at, v)
	}
	n := 0
	for sample := range prom.Samples(t, page) {
		n++
		add(string(sample.Series), sample.Labels, sample.Value)
	}
	add("up", labels.FromStrings("__name__", "up"), 1)
	add("duration", labels.FromStrings("__name__", "scrape_duration_seconds"), 0.01)
	add("samples", labels.FromStrings("__name__", "scrape_samples_scraped"), float64(n))
	w.Stale(at, func(metric labels.Labels) bool { return metric.Get("instance") == host })
}

// query returns the answer to a query, by the given labels of the result's series.
func (w *world) query(t *testing.T, query string, at time.Time, by ...string) map[string]float64 {
	t.Helper()
	found := map[string]float64{}
	for _, x := range w.Vector(t, query, at) {
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

// over returns the series of the answer to a query over the whole play.
func (w *world) over(t *testing.T, query string, step time.Duration) promql.Matrix {
	t.Helper()
	return w.Matrix(t, query, w.begin, w.end, step)
}
