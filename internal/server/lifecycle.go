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
		// Pages of other sites, open in an operator's browser, must not control the exporter.
		mux.Handle(route, http.NewCrossOriginProtection().Handler(s.protected(s.serveReload)))
		return
	}
	mux.HandleFunc(route, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "/-/reload is off; see --web-enable-lifecycle", http.StatusForbidden)
	})
}

// serveReload reloads the configuration. A client that disconnects does not cancel the reload. The write deadline is
// extended if possible, because a reload can take longer than a scrape.
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
