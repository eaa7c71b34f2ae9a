package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// If the exporter listens only on loopback, DNS rebinding does not help another site: its pages can neither read nor
// control anything.
func TestHostOfALoopbackListener(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	local := newServer(t, ordered(server.Options{Address: "127.0.0.1:9400", Lifecycle: true}, new(recorder))).Handler()
	open := newServer(t, server.Options{Address: ":9400"}).Handler()
	for host, own := range map[string]bool{
		"localhost": true, "localhost:9400": true, "LOCALHOST.:9400": true, "gpu.localhost:80": true,
		"127.0.0.1": true, "127.0.0.1:9400": true, "127.9.9.9:1": true, "[::1]:9400": true, "[::1]": true, "10.1.2.3:9400": true,
		machine + ":9400": true, "": true,
		"evil.example": false, "evil.example:9400": false, "localhost.evil.example": false, "127.0.0.1.evil.example:9400": false,
		"notlocalhost": false, "x" + machine: false,
	} {
		want := 421
		if own {
			want = 200
		}
		for _, route := range [][2]string{{"GET", "/metrics"}, {"GET", "/health"}, {"POST", "/-/reload"}} {
			if res := do(t, local, route[0], route[1], "Host", host); res.StatusCode != want {
				t.Errorf("%s %s with Host %q: status %d, want %d", route[0], route[1], host, res.StatusCode, want)
			}
		}
		if res := do(t, open, "GET", "/metrics", "Host", host); res.StatusCode != 200 {
			t.Errorf("Host %q, listening on all addresses: status %d, want 200", host, res.StatusCode)
		}
	}
}

// Every response forbids content sniffing.
func TestNoResponseIsSniffed(t *testing.T) {
	opts := ordered(server.Options{Address: "127.0.0.1:9400", Lifecycle: true, Pprof: true}, new(recorder))
	h := newServer(t, opts).Handler()
	for _, route := range [][2]string{
		{"GET", "/"}, {"GET", "/metrics"}, {"HEAD", "/metrics"}, {"POST", "/metrics"}, {"GET", "/health"}, {"GET", "/-/healthy"}, {"GET", "/-/ready"},
		{"POST", "/-/reload"}, {"GET", "/debug/pprof/"}, {"GET", "/nowhere"},
	} {
		if got := do(t, h, route[0], route[1]).Header.Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s %s: X-Content-Type-Options = %q, want nosniff", route[0], route[1], got)
		}
	}
}

// Request headers are limited in size.
func TestHeaderLimit(t *testing.T) {
	address := start(t, server.Options{})
	for size, want := range map[int]int{16 << 10: 200, 256 << 10: 431} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Large", strings.Repeat("x", size))
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("header of %d bytes: status %d, want %d", size, res.StatusCode, want)
		}
	}
}

// recorder counts the reloads of a server and returns err.
type recorder struct {
	calls int
	err   error
}

// ordered returns o with the function of r.
func ordered(o server.Options, r *recorder) server.Options {
	o.Reload = func(ctx context.Context) error {
		r.calls++
		return errors.Join(r.err, ctx.Err())
	}
	return o
}

func TestReloadAnswers(t *testing.T) {
	for err, want := range map[error]string{
		nil:                         "200 reloaded\n",
		errors.New("what is wrong"): "500 nothing changed: what is wrong\n",
	} {
		r := &recorder{err: err}
		h := newServer(t, ordered(server.Options{Lifecycle: true, Address: "127.0.0.1:9400"}, r)).Handler()
		res := do(t, h, "POST", "/-/reload")
		if got := fmt.Sprint(res.StatusCode, " ", read(t, res.Body)); got != want || r.calls != 1 {
			t.Errorf("answer %q after %d reloads, want %q after one", got, r.calls, want)
		}
	}
}

// POST /-/reload is rejected in each of these cases.
func TestReloadIsGuarded(t *testing.T) {
	const path = "/-/reload"
	file := write(t, filepath.Join(t.TempDir(), "web.yml"), users(t))
	r := new(recorder)
	const local = "127.0.0.1:9400"
	handler := func(o server.Options) http.Handler { return newServer(t, ordered(o, r)).Handler() }
	on := handler(server.Options{Lifecycle: true, Address: local})
	for _, tt := range []struct {
		name   string
		h      http.Handler
		method string
		site   string
		status int
		says   string
	}{
		{"disabled", handler(server.Options{Address: local}), "POST", "", 403, "--web-enable-lifecycle"},
		{"disabled, GET", handler(server.Options{Address: local}), "GET", "", 405, ""},
		{"GET", on, "GET", "", 405, ""},
		{"page of another site", on, "POST", "cross-site", 403, ""},
		{"without protection", handler(server.Options{Lifecycle: true, Address: ":9400", ConfigFile: file}), "POST", "", 403, ""},
	} {
		res := do(t, tt.h, tt.method, path, "Sec-Fetch-Site", tt.site)
		if body := read(t, res.Body); res.StatusCode != tt.status || !strings.Contains(body, tt.says) {
			t.Errorf("%s: status %d and %q, want %d and %q", tt.name, res.StatusCode, body, tt.status, tt.says)
		}
	}
	if r.calls > 0 {
		t.Errorf("reloads of rejected requests = %d, want none", r.calls)
	}

	// A client that disconnects does not interrupt a reload.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(gone, "POST", path, nil)
	req.Host = "localhost"
	on.ServeHTTP(w, req)
	if w.Code != 200 || r.calls != 1 {
		t.Errorf("disconnected client: status %d after %d reloads, want 200 after one", w.Code, r.calls)
	}
}
