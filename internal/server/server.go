package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// Limits without a setting.
const (
	headerTimeout = 5 * time.Second // for a client to send its request header
	// idleTimeout outlasts the usual scrape intervals, so that a scraper keeps its connection.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 64 << 10
	// maxConnections is the maximum number of open connections. Another one replaces the one that has
	// been idle longest. A connection costs some 20 KB.
	maxConnections = 512
	// shutdownGrace is how long a response that is being written may take once the process is to end;
	// then its connection is closed.
	shutdownGrace = 2 * time.Second
	// firstPageLimit is how long a socket of systemd waits for the first cycle; then the health series are served.
	firstPageLimit = 5 * time.Second
	// reloadLimit bounds a reload: it opens a session, which can take seconds.
	reloadLimit = time.Minute
)

// Options wire a Server. Every function is required.
type Options struct {
	// Current returns the page to serve, or nil before there is one.
	Current func() *exposition.Page
	// Healthy returns nil while the collection loop runs.
	Healthy func() error
	// Ready reports whether a first snapshot was published.
	Ready func() bool
	// Reloading reports whether a reload is under way.
	Reloading func() bool
	// Reload applies the configuration again; its error means that nothing changed.
	Reload func(context.Context) error
	// Serving is called with each address once requests to it are answered.
	Serving func(net.Addr)

	// LandingPage serves the page at /, which requests /metrics once per Interval, the collection
	// interval.
	LandingPage bool
	Interval    time.Duration

	// Registerer gets the series about requests.
	Registerer prometheus.Registerer
	// Log gets the messages of the HTTP server.
	Log *slog.Logger
	// Version is shown on the page at /.
	Version string

	// Address is the host:port to listen on. Port 0 takes a free one.
	Address string
	// SystemdSocket takes the listeners from systemd instead.
	SystemdSocket bool
	// ConfigFile is exporter-toolkit's file for TLS and authentication, "" for neither.
	ConfigFile string
	// ReadTimeout and WriteTimeout bound a request and its response. Zero: they may take forever.
	ReadTimeout, WriteTimeout time.Duration
	// MaxRequests is how many scrapes are answered at once; more are refused. A scrape has its answer before it is written:
	// a client that reads slowly takes no place from others. Zero: no limit.
	MaxRequests int
	// Lifecycle serves POST /-/reload.
	Lifecycle bool
	// Pprof serves /debug/pprof/.
	Pprof bool
}

// A Server serves pages. Make it with New and run it once.
type Server struct {
	opt  Options
	http *http.Server

	scrapes scrapeMetrics
	lengths [2]lengthHeader // plain and compressed

	answering atomic.Int64 // scrapes that have no page to write yet
	web       webConfig
	local     atomic.Bool // every listener is reached from this machine alone
}

// New returns a Server for opts. The error is about the web configuration.
func New(opts Options) (*Server, error) {
	s := &Server{opt: opts, scrapes: newScrapeMetrics(opts.Registerer), web: webConfig{path: opts.ConfigFile, copy: newMemoryFile()}}
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
		ErrorLog:          slog.NewLogLogger(opts.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Handler returns the routes, without TLS and passwords.
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

// Run listens and serves until ctx is done, and then returns nil after at most a short grace for
// responses that are being written. It returns an error if it cannot listen, or the web
// configuration is wrong.
func (s *Server) Run(ctx context.Context) error {
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	s.local.Store(allLoopback(listeners))
	if (s.opt.Pprof || s.opt.Lifecycle) && !s.local.Load() && !s.web.facts().authenticates {
		s.opt.Log.Warn("/-/reload and /debug/pprof/ are refused to every caller: each " + unprotected)
	}
	limit := newConnections(maxConnections)
	for i, l := range listeners {
		defer func() { _ = l.Close() }() // closed by the HTTP server, unless it never got that far
		listeners[i] = limit.listener(l)
	}
	served := make(chan error, 1)
	if s.opt.SystemdSocket {
		s.awaitReady(ctx)
	}
	config := s.web.servedPath()
	go func() {
		// Its log says the addresses once more.
		served <- web.ServeMultiple(listeners, s.http, &web.FlagConfig{WebConfigFile: &config}, slog.New(slog.DiscardHandler))
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
		// A client reads too slowly to wait for.
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
			return nil, errors.New("--web-systemd-socket: systemd passed no socket; start the service through its .socket unit")
		}
		return listeners, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.opt.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("--address %s: %w; stop what listens there, or choose another address", s.opt.Address, err)
	} else if err != nil {
		return nil, fmt.Errorf("--address %s: %w", s.opt.Address, err)
	}
	return []net.Listener{l}, nil
}

// awaitReady waits for the first cycle to end. A socket of systemd takes connections before the process runs: the scrape
// that starts it waits for its page in the queue of the socket.
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
	return s.opt.Current() != nil
}
