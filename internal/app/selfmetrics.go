package app

import (
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// newRegistry returns the registry of the exporter's own series, with what the
// Go runtime and the process tell.
func newRegistry(version string) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "dcgm_exporter_build_info",
		Help:        "The version of this exporter.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	reg.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

// selfMetricsEvery is how often the exporter's own series are gathered anew at
// most. Gathering them costs more than a cycle does, and nobody scrapes faster.
const selfMetricsEvery = 5 * time.Second

// selfMetrics renders the exporter's own series for the end of a page.
type selfMetrics struct {
	gatherer prometheus.Gatherer
	log      *slog.Logger
	text     []byte
	at       time.Time
}

// append appends the series in the text format. It is called once per page, on
// the collector's goroutine.
func (s *selfMetrics) append(dst []byte) []byte {
	if now := time.Now(); s.text == nil || now.Sub(s.at) >= selfMetricsEvery {
		s.render()
		s.at = now
	}
	return append(dst, s.text...)
}

func (s *selfMetrics) render() {
	families, err := s.gatherer.Gather()
	if err != nil { // what could be gathered is still there
		s.log.Warn("Some of the exporter's own series are missing", "error", err)
	}
	s.text = s.text[:0]
	enc := expfmt.NewEncoder(writer{&s.text}, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			s.log.Warn("One of the exporter's own series is missing", "family", f.GetName(), "error", err)
		}
	}
}

// writer appends to a slice.
type writer struct{ dst *[]byte }

var _ io.Writer = writer{}

func (w writer) Write(p []byte) (int, error) {
	*w.dst = append(*w.dst, p...)
	return len(p), nil
}
