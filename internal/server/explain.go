package server

import (
	"fmt"
	"net/http"
)

// serveExplain says what is known of a device id: nothing that the page does not show, and without
// a request to any other, so that it is as open as the page.
func (s *Server) serveExplain(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("id")
	if id == "" {
		http.Error(w, "/debug/explain-device: expected ?id= and what the kubelet calls a device, such as GPU-UUID or nvidia0/gi3", http.StatusBadRequest)
		return
	}
	steps, found := s.opt.Explain(id)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if !found {
		w.WriteHeader(http.StatusNotFound)
	}
	for i, step := range steps {
		_, _ = fmt.Fprintf(w, "%2d. %s\n", i+1, step) // the client may be gone
	}
}
