package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// Fixed limits.
const (
	headerTimeout = 5 * time.Second // for the request header
	// idleTimeout exceeds the usual scrape intervals, so that a scraper keeps its connection.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 64 << 10
	// maxConnections is the maximum number of open connections. A further connection replaces the one that has been
	// idle longest. A connection takes about 20 KB.
	maxConnections = 512
	// shutdownGrace is how long pending responses may take after shutdown begins. Then their connections are closed.
	shutdownGrace = 2 * time.Second
	// firstPageLimit is how long a systemd socket waits for the first cycle. Then the health series are served.
	firstPageLimit = 5 * time.Second
	// reloadLimit bounds a reload. Opening a session can take seconds.
	reloadLimit = time.Minute
)

// Options configure a Server. All functions are required.
type Options struct {
	// Current returns the page to serve, which the server releases, or nil before there is one.
	Current func() *exposition.Page
	// Healthy returns nil while the collection loop runs.
	Healthy func() error
	// Ready reports whether a first snapshot was published.
	Ready func() bool
	// Reloading reports whether a reload is in progress.
	Reloading func() bool
	// Reload reloads the configuration. An error means that nothing changed.
	Reload func(context.Context) error
	// Serving is called with each address once the server accepts requests there.
	Serving func(net.Addr)

	// LandingPage serves the page at /. It requests /metrics once per Interval, the collection interval.
	LandingPage bool
	Interval    time.Duration

	// Registerer is for the metrics about requests.
	Registerer prometheus.Registerer
	// Log is for messages of the HTTP server.
	Log *slog.Logger
	// Version is shown on the page at /.
	Version string

	// Address is the host:port to listen on. Port 0 means any free port.
	Address string
	// SystemdSocket uses the listeners that systemd passes instead of Address.
	SystemdSocket bool
	// ConfigFile is exporter-toolkit's file for TLS and authentication; "" means neither.
	ConfigFile string
	// ReadTimeout and WriteTimeout bound a request and its response. Zero means no limit.
	ReadTimeout, WriteTimeout time.Duration
	// MaxRequests is the maximum number of scrapes that wait for a page at once; more are rejected. It does not count
	// responses being written, so slow readers do not block other clients. Zero means no limit.
	MaxRequests int
	// Lifecycle enables POST /-/reload.
	Lifecycle bool
	// Pprof enables /debug/pprof/.
	Pprof bool
}

// Server serves pages. Create one with New and call Run once.
type Server struct {
	opt  Options
	http *http.Server

	scrapes scrapeMetrics
	lengths [2]lengthHeader // of the plain and the compressed page

	answering atomic.Int64 // number of scrapes that have no page yet
	web       webConfig
	local     atomic.Bool // all listeners are on loopback
}

// New returns a Server. An error is about the web configuration.
func New(opts Options) (*Server, error) {
	s := &Server{
		opt: opts, scrapes: newScrapeMetrics(opts.Registerer),
		web: webConfig{path: opts.ConfigFile, copy: newMemoryFile()},
	}
	s.local.Store(!opts.SystemdSocket && isLoopback(opts.Address))
	apply, err := s.web.load()
	if err == nil {
		err = apply()
	}
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:           s.guard(s.routes()),
		ReadTimeout:       opts.ReadTimeout,
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      opts.WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(errorLog{opts.Log}, "", 0),
	}
	return s, nil
}

// errorLog logs the errors of http.Server as warnings. A TLS connection that is closed before its handshake is logged
// at level debug, because TCP probes close every connection like that.
type errorLog struct{ log *slog.Logger }

func (l errorLog) Write(p []byte) (int, error) {
	line, level := strings.TrimSpace(string(p)), slog.LevelWarn
	if strings.HasPrefix(line, "http: TLS handshake error from ") && strings.HasSuffix(line, ": EOF") {
		level = slog.LevelDebug
	}
	l.log.Log(context.Background(), level, line)
	return len(p), nil
}

// Handler returns the routes without TLS and authentication.
func (s *Server) Handler() http.Handler { return s.http.Handler }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	if s.opt.LandingPage {
		s.handleLanding(mux)
	}
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.HandleFunc("GET /health", s.serveHealth)
	mux.HandleFunc("GET /-/healthy", s.serveHealthy)
	mux.HandleFunc("GET /-/ready", s.serveReady)
	s.handleReload(mux)
	if s.opt.Pprof {
		mux.Handle("/debug/pprof/", s.protected(pprof.Index))
		mux.Handle("/debug/pprof/cmdline", s.protected(pprof.Cmdline))
		mux.Handle("/debug/pprof/profile", s.protected(pprof.Profile))
		mux.Handle("/debug/pprof/symbol", s.protected(pprof.Symbol))
		mux.Handle("/debug/pprof/trace", s.protected(pprof.Trace))
	}
	return mux
}

// Run listens and serves until ctx is done. It then waits briefly for pending responses and returns nil. It returns an
// error if it cannot listen or the web configuration is invalid.
func (s *Server) Run(ctx context.Context) error {
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.local.Store(allLoopback(listeners))
	if !s.local.Load() && !s.web.facts().authenticates {
		const why = " rejects every request: the endpoint " + unprotected
		if s.opt.Lifecycle {
			s.opt.Log.Warn("/-/reload" + why)
		}
		if s.opt.Pprof {
			s.opt.Log.Warn("/debug/pprof/" + why)
		}
	}
	limit := newConnections(maxConnections)
	for i, l := range listeners {
		defer func() { _ = l.Close() }() // the HTTP server closes it, except after an early error
		listeners[i] = limit.listener(l)
	}
	served := make(chan error, 1)
	if s.opt.SystemdSocket {
		s.awaitReady(ctx)
	}
	config, discard := s.web.servedPath(), slog.New(slog.DiscardHandler) // its log would repeat the addresses
	go func() {
		served <- web.ServeMultiple(listeners, s.http, &web.FlagConfig{WebConfigFile: &config}, discard)
	}()
	for _, l := range listeners {
		s.opt.Serving(l.Addr())
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		// a client reads too slowly to wait for
		_ = s.http.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	if s.opt.SystemdSocket {
		listeners, err := activation.Listeners()
		if err != nil {
			return nil, fmt.Errorf("--web-systemd-socket: %w", err)
		}
		if len(listeners) == 0 {
			return nil, errors.New("--web-systemd-socket: systemd passed no socket; " +
				"start the service through its .socket unit")
		}
		return listeners, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.opt.Address)
	advice := ""
	switch {
	case err == nil:
		return []net.Listener{l}, nil
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "; stop what listens there, or choose another address"
	case errors.Is(err, syscall.EACCES):
		advice = "; a port below 1024 needs CAP_NET_BIND_SERVICE, or choose another port"
	}
	return nil, fmt.Errorf("--address %s: %w%s", s.opt.Address, err, advice)
}

// awaitReady waits for the first cycle. A systemd socket accepts connections before the process runs, so the scrape
// that starts the process waits in the socket's queue.
func (s *Server) awaitReady(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstPageLimit)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !s.opt.Ready() {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *Server) hasPage() bool {
	p := s.opt.Current()
	if p != nil {
		p.Release()
	}
	return p != nil
}
