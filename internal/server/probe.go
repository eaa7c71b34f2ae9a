package server

import (
	"net/http"
	"strconv"
)

// serveHealth serves probes that were written for NVIDIA's exporter: status 200, the body OK and the same two headers.
// Unlike that exporter, it returns 503 while the loop hangs.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("X-Registry-Available", strconv.FormatBool(s.hasPage()))
	h.Set("X-Reload-In-Progress", strconv.FormatBool(s.opt.Reloading()))
	answer(w, s.opt.Healthy(), "OK")
}

// serveHealthy answers a liveness probe. A hanging driver call fails it, a lost GPU does not.
func (s *Server) serveHealthy(w http.ResponseWriter, _ *http.Request) {
	answer(w, s.opt.Healthy(), "healthy\n")
}

// serveReady answers a readiness probe: whether the first cycle has ended and the driver is available.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !s.opt.Ready() {
		tryLater(w, "not ready: the first cycle has not ended, or the host engine is unavailable; see the log")
		return
	}
	answer(w, nil, "ready\n")
}

// answer writes fine with status 200, or err with status 503.
func answer(w http.ResponseWriter, err error, fine string) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(fine)) // the client may have disconnected
}
