package server

import (
	"context"
	"net/http"
	"time"
)

// handleReload adds POST /-/reload.
func (s *Server) handleReload(mux *http.ServeMux) {
	const route = "POST /-/reload"
	if s.opt.Lifecycle {
		// A page of another site in an operator's browser must not control the exporter.
		mux.Handle(route, http.NewCrossOriginProtection().Handler(s.protected(http.HandlerFunc(s.serveReload))))
		return
	}
	mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "/-/reload is off; see --web-enable-lifecycle", http.StatusForbidden)
	})
}

// serveReload applies the configuration again. It goes on when its client goes away: half of a
// reload is of no use. The answer may come later than that of a scrape; where the deadline cannot
// be moved it happens all the same.
func (s *Server) serveReload(w http.ResponseWriter, r *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadLimit + shutdownGrace))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), reloadLimit)
	defer cancel()
	if err := s.opt.Reload(ctx); err != nil {
		http.Error(w, "nothing changed: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, nil, "reloaded\n")
}
