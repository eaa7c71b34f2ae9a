package server

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// serveMetrics writes the current page.
func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	s.scrapes.inFlight.Inc()
	defer s.scrapes.inFlight.Dec()
	p, why := s.currentPage()
	if p == nil {
		s.scrapes.refused.Inc()
		tryLater(w, why)
		return
	}
	defer p.Release()

	body, length := p.Bytes(), &s.lengths[0]
	h := w.Header()
	// Share header values between responses: assigning a slice does not allocate, and net/http only reads it.
	h["Content-Type"] = contentType
	h["Vary"] = vary
	if acceptsGzip(r.Header["Accept-Encoding"]) {
		body, length = p.Gzip(), &s.lengths[1]
		h["Content-Encoding"] = contentEncoding
	}
	h["Content-Length"] = length.of(len(body))
	s.scrapes.served.Inc()
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may have disconnected
	}
}

// currentPage returns the current page, or why there is none.
func (s *Server) currentPage() (*exposition.Page, string) {
	defer s.answering.Add(-1)
	if s.answering.Add(1) > int64(s.opt.MaxRequests) && s.opt.MaxRequests > 0 {
		return nil, "too many scrapes at once; see --web-max-requests"
	}
	return s.opt.Current(), "the first page is not ready yet"
}

// Constant header values.
var (
	contentType     = []string{exposition.ContentType}
	contentEncoding = []string{"gzip"}
	vary            = []string{"Accept-Encoding"}
)

func tryLater(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// lengthHeader caches the latest Content-Length value. All scrapes of one page share it.
type lengthHeader struct {
	last atomic.Pointer[contentLength]
}

type contentLength struct {
	n     int
	value []string
}

func (lh *lengthHeader) of(n int) []string {
	if l := lh.last.Load(); l != nil && l.n == n {
		return l.value
	}
	l := &contentLength{n: n, value: []string{strconv.Itoa(n)}}
	lh.last.Store(l)
	return l.value
}

// scrapeMetrics counts scrapes, with the metric names of promhttp.
type scrapeMetrics struct {
	inFlight        prometheus.Gauge
	served, refused prometheus.Counter
}

func newScrapeMetrics(reg prometheus.Registerer) scrapeMetrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "promhttp_metric_handler_requests_total",
		Help: "Total number of scrapes by HTTP status code.",
	}, []string{"code"})
	inFlight := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "promhttp_metric_handler_requests_in_flight",
		Help: "Current number of scrapes being served.",
	})
	reg.MustRegister(requests, inFlight)
	return scrapeMetrics{inFlight, requests.WithLabelValues("200"), requests.WithLabelValues("503")}
}
