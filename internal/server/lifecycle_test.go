package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// recorder records the calls of a server's functions and returns err.
type recorder struct {
	calls []string
	err   error
}

func (r *recorder) note(ctx context.Context, what ...any) error {
	r.calls = append(r.calls, strings.TrimSpace(fmt.Sprintln(what...)))
	return errors.Join(r.err, ctx.Err())
}

// ordered returns o with the functions of r.
func ordered(o server.Options, r *recorder) server.Options {
	o.Reload = func(ctx context.Context) error { return r.note(ctx, "reload") }
	return o
}

func TestLifecycle(t *testing.T) {
	broken := errors.New("what is wrong")
	for _, c := range []struct {
		name, method, path string
		err                error
		status             int
		body, call         string
	}{
		{"reload", "POST", "/-/reload", nil, 200, "reloaded", "reload"},
		{"rejected reload", "POST", "/-/reload", broken, 500, "nothing changed: what is wrong", "reload"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{err: c.err}
			h := newServer(t, ordered(server.Options{Lifecycle: true, Address: "127.0.0.1:9400"}, r)).Handler()
			res := do(t, h, c.method, c.path)
			if body := read(t, res.Body); res.StatusCode != c.status || !strings.Contains(body, c.body) {
				t.Errorf("status %d and %q, want %d and %q", res.StatusCode, body, c.status, c.body)
			}
			if diff := cmp.Diff(c.call, strings.Join(r.calls, ", ")); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// POST /-/reload is rejected in each of these cases.
func TestReloadIsGuarded(t *testing.T) {
	const path = "/-/reload"
	file := write(t, filepath.Join(t.TempDir(), "web.yml"), users(t))
	r := new(recorder)
	off := newServer(t, ordered(server.Options{Address: "127.0.0.1:9400"}, r)).Handler()
	on := newServer(t, ordered(server.Options{Lifecycle: true, Address: "127.0.0.1:9400"}, r)).Handler()
	everywhere := newServer(t, ordered(server.Options{Lifecycle: true, Address: ":9400", ConfigFile: file}, r)).Handler()

	res := do(t, off, "POST", path)
	if body := read(t, res.Body); res.StatusCode != 403 || !strings.Contains(body, "--web-enable-lifecycle") {
		t.Errorf("disabled: status %d and %q, want 403 and the flag", res.StatusCode, body)
	}
	if res := do(t, off, "GET", path); res.StatusCode != 405 {
		t.Errorf("disabled, GET: status %d, want 405", res.StatusCode)
	}
	if res := do(t, on, "GET", path); res.StatusCode != 405 {
		t.Errorf("GET: status %d, want 405", res.StatusCode)
	}
	if res := do(t, on, "POST", path, "Sec-Fetch-Site", "cross-site"); res.StatusCode != 403 {
		t.Errorf("page of another site: status %d, want 403", res.StatusCode)
	}
	if res := do(t, everywhere, "POST", path); res.StatusCode != 403 {
		t.Errorf("without protection: status %d, want 403", res.StatusCode)
	}
	if len(r.calls) > 0 {
		t.Errorf("calls of rejected requests = %q, want none", r.calls)
	}

	// A client that disconnects does not interrupt a reload.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(gone, "POST", path, nil)
	req.Host = "localhost"
	on.ServeHTTP(w, req)
	if w.Code != 200 || len(r.calls) != 1 {
		t.Errorf("disconnected client: status %d after %d reloads, want 200 after one", w.Code, len(r.calls))
	}
}
