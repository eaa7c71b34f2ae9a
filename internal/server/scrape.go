package server

import (
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// Responses share header values: assigning a slice does not allocate, and net/http only reads it.
var (
	contentType     = []string{exposition.ContentType}
	contentEncoding = []string{"gzip"}
	vary            = []string{"Accept-Encoding"}
)

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	s.inFlight.Inc()
	defer s.inFlight.Dec()
	p, why := s.currentPage()
	if p == nil {
		s.refused.Inc()
		tryLater(w, why)
		return
	}
	defer p.Release()

	body, length := p.Bytes(), &s.lengths[0]
	h := w.Header()
	h["Content-Type"] = contentType
	h["Vary"] = vary
	if acceptsGzip(r.Header["Accept-Encoding"]) {
		body, length = p.Gzip(), &s.lengths[1]
		h["Content-Encoding"] = contentEncoding
	}
	h["Content-Length"] = contentLength(len(body), length)
	s.served.Inc()
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

// contentLength returns the value of the Content-Length header. All scrapes of one page share it.
func contentLength(n int, latest *atomic.Pointer[[]string]) []string {
	if header := latest.Load(); header != nil {
		if before, _ := strconv.Atoi((*header)[0]); before == n {
			return *header
		}
	}
	header := []string{strconv.Itoa(n)}
	latest.Store(&header)
	return header
}

// acceptsGzip reports whether the values of an Accept-Encoding header accept gzip, by name or by "*", with a weight
// above zero (RFC 9110, section 12.5.3). It does not allocate.
func acceptsGzip(values []string) bool {
	wildcard := false
	for _, value := range values {
		for element := range strings.SplitSeq(value, ",") {
			coding, weight, _ := strings.Cut(element, ";")
			weight = strings.Trim(weight, " \t")
			refused := len(weight) > 2 && strings.EqualFold(weight[:2], "q=") && strings.Trim(weight[2:], "0.") == ""
			switch coding = strings.Trim(coding, " \t"); {
			case strings.EqualFold(coding, "gzip"):
				return !refused
			case coding == "*":
				wildcard = !refused
			}
		}
	}
	return wildcard
}
