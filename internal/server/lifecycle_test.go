package server_test

import (
	"context"
	"errors"
	"fmt"
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
	off := newServer(t, ordered(server.Options{Address: "127.0.0.1:9400"}, r)).Handler()
	on := newServer(t, ordered(server.Options{Lifecycle: true, Address: "127.0.0.1:9400"}, r)).Handler()
	open := ordered(server.Options{Lifecycle: true, Address: ":9400", ConfigFile: file}, r)
	everywhere := newServer(t, open).Handler()

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
