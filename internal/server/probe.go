package server

import (
	"net/http"
	"strconv"
)

// serveHealth answers as the reference does, for the probes that exist: 200 and OK, and the two
// headers. Unlike the reference it says 503 when the loop hangs.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("X-Registry-Available", strconv.FormatBool(s.hasPage()))
	h.Set("X-Reload-In-Progress", strconv.FormatBool(s.opt.Reloading()))
	answer(w, s.opt.Healthy(), "OK")
}

// serveHealthy says whether the process should live on. A lost GPU is no reason to restart it; a
// driver call that does not return is.
func (s *Server) serveHealthy(w http.ResponseWriter, _ *http.Request) {
	answer(w, s.opt.Healthy(), "healthy\n")
}

// serveReady says whether there is something to scrape.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	if !s.opt.Ready() {
		tryLater(w, "not ready: no cycle has ended yet, or the host engine is away; see the log")
		return
	}
	answer(w, nil, "ready\n")
}

// answer says fine, or 503 with the error.
func answer(w http.ResponseWriter, err error, fine string) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(fine)) // the client may be gone
}
