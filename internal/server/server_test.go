package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// serving returns pages with the given body.
func serving(body []byte) *exposition.Pages {
	pages := new(exposition.Pages)
	pages.Publish(exposition.NewPage(body), 0)
	return pages
}

// newServer returns the server of a healthy exporter. opts overrides its defaults.
func newServer(t testing.TB, opts server.Options) *server.Server {
	t.Helper()
	if opts.Current == nil {
		opts.Current = serving([]byte("up 1\n")).Current
	}
	if opts.Healthy == nil {
		opts.Healthy = func() error { return nil }
	}
	if opts.Ready == nil {
		opts.Ready = func() bool { return true }
	}
	if opts.Reloading == nil {
		opts.Reloading = func() bool { return false }
	}
	if opts.Listening == nil {
		opts.Listening = func(net.Addr) {}
	}
	if opts.Registerer == nil {
		opts.Registerer = prometheus.NewRegistry()
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s, err := server.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A running server has a free loopback port. It stops when the test ends, and must return nil.
type running struct {
	*server.Server
	address string
	stop    func()
}

func serve(t testing.TB, opts server.Options) running {
	t.Helper()
	addresses := make(chan net.Addr, 1)
	opts.Address = "127.0.0.1:0"
	opts.Listening = func(a net.Addr) { addresses <- a }
	s := newServer(t, opts)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	select {
	case a := <-addresses:
		return running{s, a.String(), stop}
	case err := <-done:
		done <- err
		t.Fatal(err)
		return running{}
	}
}

// start is like serve, and returns the address.
func start(t testing.TB, opts server.Options) string {
	t.Helper()
	return serve(t, opts).address
}

// do sends a request to a handler. The header Host sets the host of the request. Every response must forbid content
// sniffing.
func do(t testing.TB, h http.Handler, method, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost:9400"
	for pair := range slices.Chunk(header, 2) {
		if r.Header.Add(pair[0], pair[1]); pair[0] == "Host" {
			r.Host = pair[1]
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("%s %s: X-Content-Type-Options = %q, want nosniff", method, path, got)
	}
	return w.Result()
}

// get requests a URL over the network, and reads the response. The header Host sets the host of the request.
func get(t testing.TB, client *http.Client, url string, header ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(header, 2) {
		if req.Header.Add(pair[0], pair[1]); pair[0] == "Host" {
			req.Host = pair[1]
		}
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, read(t, res.Body)
}

func read(t testing.TB, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestRoutes(t *testing.T) {
	hung := errors.New("driver call does not return")
	tests := []struct {
		name         string
		opts         server.Options
		method, path string
		status       int
		body         string            // substring of the response body
		header       map[string]string // some of the response headers
	}{
		{name: "landing", method: "GET", path: "/", opts: server.Options{LandingPage: true}, status: 200, body: `href="metrics"`, header: map[string]string{"Content-Type": "text/html; charset=utf-8"}},
		{name: "version", opts: server.Options{Version: "<1>", LandingPage: true}, method: "GET", path: "/", status: 200, body: `Version &lt;1&gt;`},
		{name: "interval", opts: server.Options{LandingPage: true, Interval: 1500 * time.Millisecond}, method: "GET", path: "/", status: 200, body: `data-interval="1500"`},
		{name: "elsewhere", method: "GET", path: "/other", status: 404},
		{name: "no landing page", method: "GET", path: "/", status: 404},
		{name: "the page's script", opts: server.Options{LandingPage: true}, method: "GET", path: "/landing/page.js", status: 200, body: `fetch("metrics"`, header: map[string]string{"Content-Type": "text/javascript; charset=utf-8"}},
		{name: "the page's style", opts: server.Options{LandingPage: true}, method: "GET", path: "/landing/style.css", status: 200, header: map[string]string{"Content-Type": "text/css; charset=utf-8"}},
		{name: "the page's codes", opts: server.Options{LandingPage: true}, method: "GET", path: "/landing/codes.json", status: 200, body: `"79":{"text":"GPU has fallen off the bus","severity":"critical"}`, header: map[string]string{"Content-Type": "application/json"}},
		{
			name: "explanations of missing values on the page", opts: server.Options{LandingPage: true},
			method: "GET", path: "/landing/codes.json", status: 200, body: `"wedged":"a driver call does not return"`,
		},
		{name: "no index of the page's files", opts: server.Options{LandingPage: true}, method: "GET", path: "/landing/", status: 404},
		{name: "the page loads only its own files", opts: server.Options{LandingPage: true}, method: "GET", path: "/", status: 200, header: map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		}},
		{name: "metrics", method: "GET", path: "/metrics", status: 200, body: "up 1\n", header: map[string]string{
			"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Content-Length": "5", "Vary": "Accept-Encoding", "Content-Encoding": "",
		}},
		{name: "head", method: "HEAD", path: "/metrics", status: 200, header: map[string]string{"Content-Length": "5"}},
		{name: "query is ignored", method: "GET", path: "/metrics?x=1", status: 200, body: "up 1\n"},
		{name: "post metrics", method: "POST", path: "/metrics", status: 405, header: map[string]string{"Allow": "GET, HEAD"}},
		{name: "health", method: "GET", path: "/health", status: 200, body: "OK", header: map[string]string{"X-Registry-Available": "true", "X-Reload-In-Progress": "false"}},
		{
			name: "health of a hung loop", opts: server.Options{Healthy: func() error { return hung }, Reloading: func() bool { return true }},
			method: "GET", path: "/health", status: 503, body: hung.Error(), header: map[string]string{"X-Registry-Available": "true", "X-Reload-In-Progress": "true"},
		},
		{
			name: "health before the first page", opts: server.Options{Current: new(exposition.Pages).Current},
			method: "GET", path: "/health", status: 200, body: "OK", header: map[string]string{"X-Registry-Available": "false"},
		},
		{name: "healthy", method: "GET", path: "/-/healthy", status: 200, body: "healthy"},
		{name: "hung", opts: server.Options{Healthy: func() error { return hung }}, method: "GET", path: "/-/healthy", status: 503, body: hung.Error()},
		{name: "metrics while hung", opts: server.Options{Healthy: func() error { return hung }}, method: "GET", path: "/metrics", status: 200, body: "up 1\n"},
		{name: "ready", method: "GET", path: "/-/ready", status: 200, body: "ready"},
		{name: "not ready", opts: server.Options{Ready: func() bool { return false }}, method: "GET", path: "/-/ready", status: 503, header: map[string]string{"Retry-After": "1"}},
		{
			name: "before the first page", opts: server.Options{Current: new(exposition.Pages).Current},
			method: "GET", path: "/metrics", status: 503, header: map[string]string{"Retry-After": "1"},
		},
		{name: "POST routes on the landing page", opts: ordered(server.Options{Lifecycle: true, Address: "localhost:9400", LandingPage: true}, new(recorder)), method: "GET", path: "/", status: 200, body: "/-/reload"},
		{name: "pprof is off", method: "GET", path: "/debug/pprof/", status: 404},
		{name: "pprof", opts: server.Options{Pprof: true, Address: "[::1]:9400"}, method: "GET", path: "/debug/pprof/", status: 200, body: "goroutine"},
		{name: "pprof on the landing page", opts: server.Options{Pprof: true, Address: "localhost:9400", LandingPage: true}, method: "GET", path: "/", status: 200, body: `href="debug/pprof/"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := do(t, newServer(t, tt.opts).Handler(), tt.method, tt.path)
			if res.StatusCode != tt.status {
				t.Errorf("status %d, want %d", res.StatusCode, tt.status)
			}
			if body := read(t, res.Body); !strings.Contains(body, tt.body) {
				t.Errorf("body %q, want %q in it", body, tt.body)
			}
			for name, want := range tt.header {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		})
	}
}

func TestHead(t *testing.T) {
	address := start(t, server.Options{Current: serving(bytes.Repeat([]byte("x"), 5000)).Current})
	res, err := http.Head("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body := read(t, res.Body); res.StatusCode != 200 || res.ContentLength != 5000 || body != "" {
		t.Errorf("status %d, length %d, body of %d bytes; want 200, 5000 and no body", res.StatusCode, res.ContentLength, len(body))
	}
}

func TestGzip(t *testing.T) {
	page := strings.Repeat(`up{instance="a"} 1`+"\n", 1000)
	h := newServer(t, server.Options{Current: serving([]byte(page)).Current}).Handler()
	res := do(t, h, "GET", "/metrics", "Accept-Encoding", "gzip")
	if got := res.Header.Get("Content-Encoding"); got != "gzip" {
		t.Fatalf("Content-Encoding %q, want gzip", got)
	}
	if res.ContentLength >= int64(len(page)) {
		t.Errorf("compressed page has %d bytes, want fewer than %d", res.ContentLength, len(page))
	}
	z, err := gzip.NewReader(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page, read(t, z)); diff != "" {
		t.Errorf("page (-plain +gzip):\n%s", diff)
	}

	// A client that accepts neither gzip nor the plain page gets the plain page.
	for encoding, accepted := range map[string][]string{
		"": {
			"", "br, zstd", "identity", "gzip;q=0", "gzip;q=0.000", "gzip ; Q=0 ", "identity;q=0", "*;q=0",
			"gzip;q=0, *", "gzipped",
		},
		"gzip": {
			"GZip", "deflate, gzip;q=1.0, *;q=0.5", "gzip;q=0.001", "gzip ; q=0.5", "gzip;q=1.0", "*", "*;q=0, gzip",
			", ,gzip,,",
		},
	} {
		for _, accept := range accepted {
			res := do(t, h, "GET", "/metrics", "Accept-Encoding", accept)
			if got := res.Header.Get("Content-Encoding"); got != encoding {
				t.Errorf("Accept-Encoding %q: Content-Encoding %q, want %q", accept, got, encoding)
			}
		}
	}
	res = do(t, h, "GET", "/metrics", "Accept-Encoding", "deflate", "Accept-Encoding", "br", "Accept-Encoding", "gzip")
	if got := res.Header.Get("Content-Encoding"); got != "gzip" {
		t.Errorf("three headers: Content-Encoding %q, want gzip", got)
	}
}

// A scrape above the limit is rejected at once. The others are still served.
func TestMaxRequests(t *testing.T) {
	pages := serving([]byte("up 1\n"))
	inside, release := make(chan struct{}), make(chan struct{})
	var blocking atomic.Bool
	blocking.Store(true)
	registry := prometheus.NewPedanticRegistry()
	h := newServer(t, server.Options{MaxRequests: 2, Registerer: registry, Current: func() *exposition.Page {
		if blocking.Load() {
			inside <- struct{}{}
			<-release
		}
		return pages.Current()
	}}).Handler()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if res := do(t, h, "GET", "/metrics"); res.StatusCode != 200 {
				t.Errorf("accepted scrape: status %d, want 200", res.StatusCode)
			}
		})
		<-inside
	}
	blocking.Store(false)
	if res := do(t, h, "GET", "/metrics"); res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, want 503 with Retry-After", res.StatusCode)
	}
	if res := do(t, h, "GET", "/health"); res.StatusCode != 200 {
		t.Errorf("/health says %d while scrapes wait, want 200", res.StatusCode)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP promhttp_metric_handler_requests_in_flight Current number of scrapes being served.
# TYPE promhttp_metric_handler_requests_in_flight gauge
promhttp_metric_handler_requests_in_flight 2
`), "promhttp_metric_handler_requests_in_flight"); err != nil {
		t.Error(err)
	}
	close(release)
	wg.Wait()
	if res := do(t, h, "GET", "/metrics"); res.StatusCode != 200 {
		t.Errorf("status %d after the others left, want 200", res.StatusCode)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP promhttp_metric_handler_requests_total Total number of scrapes by HTTP status code.
# TYPE promhttp_metric_handler_requests_total counter
promhttp_metric_handler_requests_total{code="200"} 3
promhttp_metric_handler_requests_total{code="503"} 1
`), "promhttp_metric_handler_requests_total"); err != nil {
		t.Error(err)
	}
}

// Clients that do not read their responses do not block other clients.
func TestSlowScrapersBlockNoOthers(t *testing.T) {
	pages, held := serving(make([]byte, 24<<20)), make(chan struct{}, 1) // more than the sockets buffer
	address := start(t, server.Options{MaxRequests: 3, Current: func() *exposition.Page { held <- struct{}{}; return pages.Current() }})
	for range 10 {
		dial(t, address, "/metrics")
		<-held
	}
	go func() { <-held }()
	// the page is compressed, so that it is short
	if status, _ := get(t, http.DefaultClient, "http://"+address+"/metrics"); status != 200 {
		t.Errorf("with slow scrapers: status %d, want 200", status)
	}
}

// Clients that hold connections open block neither scrapes nor probes. The connection with the oldest request is
// closed.
func TestIdleConnectionsBlockNoOthers(t *testing.T) {
	address := start(t, server.Options{})
	var open []net.Conn
	for range 512 {
		c := dial(t, address, "/health")
		if answer(c) == "" {
			t.Fatalf("connection %d got no response", len(open)+1)
		}
		open = append(open, c)
	}
	ask(t, open[0], "/health") // now open[1] has the oldest request
	if answer(open[0]) == "" {
		t.Fatal("first connection got no response after others were closed")
	}
	for i, path := range []string{"/health", "/-/healthy", "/metrics"} {
		if answer(dial(t, address, path)) == "" {
			t.Errorf("GET %s got no response with 512 idle connections", path)
		}
		if answer(open[1+i]) != "" {
			t.Errorf("connection %d, which has the oldest request, is open, want it closed", 1+i)
		}
	}
	for _, i := range []int{0, 4, 511} {
		ask(t, open[i], "/health")
		if answer(open[i]) == "" {
			t.Errorf("connection %d is closed, want it open: others have older requests", i)
		}
	}
}

// ask sends a GET request for path on an open connection.
func ask(t *testing.T, c net.Conn, path string) {
	t.Helper()
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

// answer returns the first bytes of a response, or nothing if the connection is closed.
func answer(c net.Conn) string {
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b := make([]byte, 64<<10)
	n, _ := c.Read(b)
	return string(b[:n])
}

// dial opens a connection and sends a GET request for path.
func dial(t *testing.T, address, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	ask(t, c, path)
	return c
}

// Shutdown does not wait for a client that does not read its response, and Run returns no error.
func TestShutdownWithSlowScraper(t *testing.T) {
	pages, held := serving(make([]byte, 32<<20)), make(chan struct{}, 1)
	s := serve(t, server.Options{Current: func() *exposition.Page { held <- struct{}{}; return pages.Current() }})
	dial(t, s.address, "/metrics")
	<-held
	s.stop()
	if c, err := net.Dial("tcp", s.address); err == nil {
		_ = c.Close()
		t.Error("listener is open after Run returned, want it closed")
	}
}

// An address on which the server cannot listen ends Run. The error names the setting and what to do.
func TestBadAddress(t *testing.T) {
	for _, address := range []string{start(t, server.Options{}), "256.0.0.1:x"} {
		err := newServer(t, server.Options{Address: address}).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "--address "+address) || !strings.Contains(err.Error(), "another address") {
			t.Errorf("Run = %v, want an error that names the setting and what to do", err)
		}
	}
}

// sink is a response writer that discards the response.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }

// A scrape allocates no more than a handler that does nothing.
func TestScrapeDoesNotAllocate(t *testing.T) {
	pages := serving(bytes.Repeat([]byte("up{instance=\"a\"} 1\n"), 2000))
	scrape := newServer(t, server.Options{Current: pages.Current, MaxRequests: 40}).Handler()
	nothing := http.NewServeMux()
	nothing.HandleFunc("GET /metrics", func(http.ResponseWriter, *http.Request) {})
	for _, encoding := range []string{"identity", "gzip;q=0.9, *;q=0.1"} {
		allocs := func(h http.Handler) float64 {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Header.Set("Accept-Encoding", encoding)
			w := &sink{http.Header{}}
			return testing.AllocsPerRun(100, func() { h.ServeHTTP(w, r) })
		}
		if n := allocs(scrape) - allocs(nothing); n != 0 {
			t.Errorf("Accept-Encoding %q: allocations per scrape = %v, want 0", encoding, n)
		}
	}
}
