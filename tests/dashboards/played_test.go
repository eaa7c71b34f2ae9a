package dashboards

import (
	"cmp"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

const scrapeInterval = time.Minute

// machine is a simulated node to scrape. By default, it is healthy and has the metric names of dcgm-exporter 4.8.
type machine struct {
	host, node string
	vocabulary catalog.Vocabulary
	scenario   string
	file       []byte // content of the counters file
	trailer    string // appended to each page
	// reports owners that replace those of the node; nil keeps those of the node
	tenants func(*gpu.Topology) *gpu.Owners
	apart   bool // serves owners in series of their own (--owner-labels=info)
	// pod of the exporter if the scrape does not honor labels; otherwise empty
	pod string
}

// Name and Attribute make a machine an attributor that reports its tenants.
func (m *machine) Name() string { return "tenants" }

func (m *machine) Attribute(_ context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	return m.tenants(t), nil
}

// world holds what Prometheus has scraped from machines. It answers queries.
type world struct {
	*prom.Storage
	begin, end time.Time
}

// play scrapes machines for the given time, with a fake clock.
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
	source, err := sim.New(sim.Options{Node: m.node, Seed: 7, Scenario: simulated.Scenario(t, m.scenario)})
	if err != nil {
		t.Fatal(err)
	}
	run := pages.Run{Source: source, Host: m.host, Counters: m.file, Interval: scrapeInterval, Trailer: m.trailer}
	// leave out links, switches and CPUs, which no panel shows individually; they take a quarter of the time
	vocabulary := string(cmp.Or(m.vocabulary, catalog.Classic))
	run.Args = []string{"--vocabulary=" + vocabulary, "--switch-devices=g:99", "--cpu-devices=g:99"}
	if m.host == "" {
		run.Args = append(run.Args, "--no-hostname")
	}
	if m.apart {
		run.Args = append(run.Args, "--owner-labels=info")
	}
	if m.tenants != nil {
		run.Owners = &m
	}
	w.begin = time.Now()
	run.Each(t, func(s *gpu.Snapshot, page []byte) bool {
		if s.Topology != nil || m.host != "" {
			w.take(t, m.host, m.pod, page, time.Now())
		}
		return time.Since(w.begin) < length
	})
	w.end = time.Now()
}

// take appends a page with target labels, as Prometheus does. If pod is not empty, the target has the labels of a pod,
// and the series' own labels are renamed to exported_*. A series that disappears ends with a stale marker.
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

// query returns the values of the results of a query, keyed by the given labels.
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
			t.Errorf("%s: two results for %q", query, k)
		}
		found[k] = x.F
	}
	return found
}

// over returns the result of a range query over the whole simulation.
func (w *world) over(t *testing.T, query string, step time.Duration) promql.Matrix {
	t.Helper()
	return w.Matrix(t, query, w.begin, w.end, step)
}
