package bench

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// customary is a prometheus.Collector that returns the series of a page as const metrics. Most exporters work like
// this.
type customary struct {
	descs  []*prometheus.Desc
	series []func() prometheus.Metric
}

func newCustomary(tb testing.TB, page []byte) *customary {
	tb.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		tb.Fatal(err)
	}
	c := &customary{}
	for name, f := range families {
		var names []string
		for _, l := range f.Metric[0].Label {
			names = append(names, l.GetName())
		}
		desc := prometheus.NewDesc(name, f.GetHelp(), names, nil)
		c.descs = append(c.descs, desc)
		for _, m := range f.Metric {
			var values []string
			for _, l := range m.Label {
				values = append(values, l.GetValue())
			}
			v := m.GetGauge().GetValue()
			c.series = append(c.series, func() prometheus.Metric {
				return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, values...)
			})
		}
	}
	return c
}

func (c *customary) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

func (c *customary) Collect(ch chan<- prometheus.Metric) {
	for _, metric := range c.series {
		ch <- metric()
	}
}

// BenchmarkEncode measures the encoding of 100 fields of 56 MIG instances. For comparison, it alternates with
// client_golang's const metrics and expfmt, which encode the same series.
func BenchmarkEncode(b *testing.B) {
	src, owners := sources()[0].open(b)
	l := start(b, src, owners, nil, plan(100, true))
	defer l.end()
	s := l.snapshot
	e := exposition.NewEncoder(exposition.Options{Hostname: "node-17", HostLabels: []string{"hostname"}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCustomary(b, e.Encode(s).Bytes()))
	var ours, theirs []time.Duration
	for b.Loop() {
		start := time.Now()
		e.Encode(s).Release()
		ours = append(ours, time.Since(start))
		start = time.Now()
		families, err := registry.Gather()
		if err != nil {
			b.Fatal(err)
		}
		text := expfmt.NewEncoder(io.Discard, expfmt.NewFormat(expfmt.TypeTextPlain))
		for _, f := range families {
			if err := text.Encode(f); err != nil {
				b.Fatal(err)
			}
		}
		theirs = append(theirs, time.Since(start))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	// use medians: other load on the machine distorts means
	b.ReportMetric(float64(ours[len(ours)/2]), "page-ns")
	b.ReportMetric(testing.AllocsPerRun(10, func() { e.Encode(s).Release() }), "page-allocs")
	b.ReportMetric(float64(theirs[len(theirs)/2])/float64(ours[len(ours)/2]), "times-faster")
}
