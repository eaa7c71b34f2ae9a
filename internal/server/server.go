// Package server serves pre-rendered pages over HTTP.
//
// A scrape of /metrics writes the bytes of the current page. It calls no driver, takes no lock of the collector and
// allocates nothing beyond net/http. Package app renders the pages and decides what is healthy.
//
// exporter-toolkit provides TLS, passwords and systemd sockets. /-/reload and /debug/pprof/ are off by default. They
// require a password, a client certificate or a loopback address.
package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

const (
	headerTimeout = 5 * time.Second // for the request header
	// idleTimeout exceeds the usual scrape intervals, so that a scraper keeps its connection.
	idleTimeout    = 3 * time.Minute
	maxHeaderBytes = 64 << 10
	// maxConnections is the maximum number of open connections. A connection takes about 20 KB.
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
	Current   func() *exposition.Page     // the page to serve, which the server releases; nil before the first one
	Healthy   func() error                // nil while the collection loop runs
	Ready     func() bool                 // whether a first snapshot was published
	Reloading func() bool                 // whether a reload is in progress
	Reload    func(context.Context) error // reloads the configuration; an error means that nothing changed
	Listening func(net.Addr)              // called with each address once the server accepts requests there

	Registerer prometheus.Registerer // for the metrics about requests
	Log        *slog.Logger          // receives messages of the HTTP server
	Version    string                // shown on the landing page

	// LandingPage serves the page at /. It requests /metrics once per Interval, the collection interval.
	LandingPage bool
	Interval    time.Duration

	Address       string // host:port to listen on; port 0 means any free port
	SystemdSocket bool   // use the listeners that systemd passes instead of Address
	ConfigFile    string // exporter-toolkit's file for TLS and authentication; "" means neither
	// ReadTimeout and WriteTimeout bound a request and its response. Zero means no limit.
	ReadTimeout, WriteTimeout time.Duration
	// MaxRequests is the maximum number of scrapes that wait for a page at once; more are rejected. It does not count
	// responses being written, so slow readers do not block other clients. Zero means no limit.
	MaxRequests int
	Lifecycle   bool // enables POST /-/reload
	Pprof       bool // enables /debug/pprof/
}

// Server serves pages. Create one with New and call Run once.
type Server struct {
	opt       Options
	http      *http.Server
	lengths   [2]atomic.Pointer[[]string] // latest Content-Length of the plain and the compressed page
	answering atomic.Int64                // number of scrapes that have no page yet
	web       atomic.Pointer[webConfig]
	webCopy   *os.File    // what exporter-toolkit reads; nil without a web configuration
	local     atomic.Bool // all listeners are on loopback

	inFlight        prometheus.Gauge
	served, refused prometheus.Counter // scrapes

	mu   sync.Mutex
	open map[net.Conn]time.Time // when the latest request of each open connection began
}

// New returns a Server. It fails only if the web configuration is invalid. The metrics have the same names as those of
// promhttp.
func New(opts Options) (*Server, error) {
	metrics := promauto.With(opts.Registerer)
	requests := metrics.NewCounterVec(prometheus.CounterOpts{
		Name: "promhttp_metric_handler_requests_total",
		Help: "Total number of scrapes by HTTP status code.",
	}, []string{"code"})
	s := &Server{
		opt: opts, open: map[net.Conn]time.Time{},
		served: requests.WithLabelValues("200"), refused: requests.WithLabelValues("503"),
		inFlight: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "promhttp_metric_handler_requests_in_flight",
			Help: "Current number of scrapes being served.",
		}),
	}
	s.web.Store(&webConfig{})
	s.local.Store(!opts.SystemdSocket && isLoopback(opts.Address))
	apply, err := s.LoadWebConfig()
	if err == nil {
		err = apply()
	}
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{
		Handler:     s.guard(s.routes()),
		ReadTimeout: opts.ReadTimeout, ReadHeaderTimeout: headerTimeout, WriteTimeout: opts.WriteTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes, ConnState: s.limitConnections,
		ErrorLog: log.New(errorLog{opts.Log}, "", 0),
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

// limitConnections closes the open connection with the oldest request when there are too many, so that clients that
// only hold connections cannot block scrapes and probes.
func (s *Server) limitConnections(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(s.open, conn)
	case http.StateNew, http.StateActive:
		if state == http.StateNew && len(s.open) >= maxConnections {
			earlier := func(a, b net.Conn) int { return s.open[a].Compare(s.open[b]) }
			oldest := slices.MinFunc(slices.Collect(maps.Keys(s.open)), earlier)
			delete(s.open, oldest)
			go oldest.Close() // over TLS, it may wait for the client
		}
		s.open[conn] = time.Now()
	}
}

// Handler returns the routes without TLS and authentication.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Run listens and serves until ctx is done. It then waits briefly for pending responses and returns nil. It returns an
// error if it cannot listen or the web configuration is invalid.
func (s *Server) Run(ctx context.Context) error {
	listeners, err := s.listen(ctx)
	if err != nil {
		return err
	}
	for _, l := range listeners {
		defer func() { _ = l.Close() }() // the HTTP server closes it, except after an early error
	}
	s.local.Store(!slices.ContainsFunc(listeners, func(l net.Listener) bool { return !isLoopback(l.Addr().String()) }))
	if !s.local.Load() && !s.web.Load().authenticates {
		for path, enabled := range map[string]bool{"/-/reload": s.opt.Lifecycle, "/debug/pprof/": s.opt.Pprof} {
			if enabled {
				s.opt.Log.Warn(path + " rejects every request: the endpoint " + unprotected)
			}
		}
	}
	if s.opt.SystemdSocket { // the scrape that started the process waits in the socket's queue for the first cycle
		for until := time.Now().Add(firstPageLimit); !s.opt.Ready() && ctx.Err() == nil && time.Now().Before(until); {
			time.Sleep(10 * time.Millisecond)
		}
	}
	served := make(chan error, 1)
	config, discard := s.servedConfig(), slog.New(slog.DiscardHandler) // its log would repeat the addresses
	go func() {
		served <- web.ServeMultiple(listeners, s.http, &web.FlagConfig{WebConfigFile: &config}, discard)
	}()
	for _, l := range listeners {
		s.opt.Listening(l.Addr())
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		_ = s.http.Close() // a client reads too slowly to wait for
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	if s.opt.SystemdSocket {
		listeners, err := activation.Listeners()
		if err == nil && len(listeners) == 0 {
			err = errors.New("systemd passed no socket; start the service through its .socket unit")
		}
		if err != nil {
			return nil, fmt.Errorf("--web-systemd-socket: %w", err)
		}
		return listeners, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", s.opt.Address)
	if err != nil {
		const advice = "choose another address, or stop what listens there; ports below 1024 need CAP_NET_BIND_SERVICE"
		return nil, fmt.Errorf("--address %s: %w; %s", s.opt.Address, err, advice)
	}
	return []net.Listener{l}, nil
}
