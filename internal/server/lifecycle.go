package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// lifecycle are the routes that change something. All are POST, all are there with
// Options.Lifecycle only, and all are protected alike.
func (s *Server) lifecycle() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		"/-/reload":           s.serveReload,
		"/-/release":          s.serveRelease,
		"/-/acquire":          s.serveAcquire,
		"/-/profiling/pause":  s.serveProfiling(s.opt.PauseProfiling, "paused\n"),
		"/-/profiling/resume": s.serveProfiling(s.opt.ResumeProfiling, "resumed\n"),
	}
}

func (s *Server) handleLifecycle(mux *http.ServeMux) {
	for path, serve := range s.lifecycle() {
		if s.opt.Lifecycle {
			// A page of another site in an operator's browser must not control the exporter.
			mux.Handle("POST "+path, http.NewCrossOriginProtection().Handler(s.protected(serve)))
		} else {
			mux.HandleFunc("POST "+path, func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, path+" is off; see --web-enable-lifecycle", http.StatusForbidden)
			})
		}
	}
}

// patient returns a context for a request that goes on when its client goes away: half of a request
// is of no use. The answer may come later than that of a scrape; where the deadline can't be moved
// it happens all the same.
func patient(w http.ResponseWriter, r *http.Request) (context.Context, context.CancelFunc) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(orderLimit + shutdownGrace))
	return context.WithTimeout(context.WithoutCancel(r.Context()), orderLimit)
}

// serveReload applies the configuration again.
func (s *Server) serveReload(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := patient(w, r)
	defer cancel()
	if err := s.opt.Reload(ctx); err != nil {
		http.Error(w, "nothing changed: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, nil, "reloaded\n")
}

// serveRelease releases the driver and answers once every handle is closed.
func (s *Server) serveRelease(w http.ResponseWriter, r *http.Request) {
	timeout, err := timeoutOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := patient(w, r)
	defer cancel()
	answer(w, s.opt.Release(ctx, timeout), "released\n")
}

// timeoutOf returns the timeout of a request, 0 for none.
func timeoutOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("timeout=%s: expected a duration such as 10m, above zero", text)
	}
	return d, nil
}

// serveAcquire acquires the driver again and answers once it is open, or the first attempt has
// failed.
func (s *Server) serveAcquire(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := patient(w, r)
	defer cancel()
	err := s.opt.TakeBack(ctx)
	if err != nil {
		err = fmt.Errorf("no longer released; the attempts to open the driver go on: %w", err)
	}
	answer(w, err, "acquired\n")
}

// serveProfiling returns the handler that pauses or resumes profiling.
func (s *Server) serveProfiling(set func(context.Context) error, fine string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := patient(w, r)
		defer cancel()
		err := set(ctx)
		if errors.Is(err, gpu.ErrNotSupported) {
			http.Error(w, err.Error(), http.StatusNotImplemented)
			return
		}
		answer(w, err, fine)
	}
}
