package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

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
