package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/server"
)

// A recorder notes what it is ordered, and answers with err.
type recorder struct {
	calls []string
	err   error
}

func (r *recorder) note(ctx context.Context, what ...any) error {
	r.calls = append(r.calls, strings.TrimSpace(fmt.Sprintln(what...)))
	return errors.Join(r.err, ctx.Err())
}

// ordered lets r carry out the commands of a server.
func ordered(o server.Options, r *recorder) server.Options {
	o.Reload = func(ctx context.Context) error { return r.note(ctx, "reload") }
	o.Release = func(ctx context.Context, d time.Duration) error { return r.note(ctx, "release", d) }
	o.TakeBack = func(ctx context.Context) error { return r.note(ctx, "acquire") }
	o.PauseProfiling = func(ctx context.Context) error { return r.note(ctx, "pause") }
	o.ResumeProfiling = func(ctx context.Context) error { return r.note(ctx, "resume") }
	return o
}

func TestLifecycle(t *testing.T) {
	broken := errors.New("what is wrong")
	unable := fmt.Errorf("%w: NVML has no such thing", gpu.ErrNotSupported)
	for _, c := range []struct {
		name, method, path string
		err                error
		status             int
		body, call         string
	}{
		{"reload", "POST", "/-/reload", nil, 200, "reloaded", "reload"},
		{"reload refused", "POST", "/-/reload", broken, 500, "nothing changed: what is wrong", "reload"},
		{"release", "POST", "/-/release", nil, 200, "released", "release 0s"},
		{"release for a time", "POST", "/-/release?timeout=10m", nil, 200, "released", "release 10m0s"},
		{"release for nonsense", "POST", "/-/release?timeout=10", nil, 400, "timeout=10: expected a duration such as 10m", ""},
		{"release for less than nothing", "POST", "/-/release?timeout=-1s", nil, 400, "above zero", ""},
		{"release of a driver that hangs", "POST", "/-/release", broken, 503, "what is wrong", "release 0s"},
		{"acquire", "POST", "/-/acquire", nil, 200, "acquired", "acquire"},
		{"acquire without a driver", "POST", "/-/acquire", broken, 503, "no longer released; the attempts to open the driver go on: what is wrong", "acquire"},
		{"pause", "POST", "/-/profiling/pause", nil, 200, "paused", "pause"},
		{"pause of a source that cannot", "POST", "/-/profiling/pause", unable, 501, "NVML has no such thing", "pause"},
		{"pause of a driver that is busy", "POST", "/-/profiling/pause", broken, 503, "what is wrong", "pause"},
		{"resume", "POST", "/-/profiling/resume", nil, 200, "resumed", "resume"},
		{"resume of a source that cannot", "POST", "/-/profiling/resume", unable, 501, "NVML has no such thing", "resume"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{err: c.err}
			h := newServer(t, ordered(server.Options{Lifecycle: true, Address: "127.0.0.1:9400"}, r)).Handler()
			res := do(t, h, c.method, c.path)
			if body := read(t, res.Body); res.StatusCode != c.status || !strings.Contains(body, c.body) {
				t.Errorf("status %d and %q, want %d and %q", res.StatusCode, body, c.status, c.body)
			}
			if diff := cmp.Diff(c.call, strings.Join(r.calls, ", ")); diff != "" {
				t.Errorf("orders (-want +got):\n%s", diff)
			}
		})
	}
}

// Every route that changes something is closed in the same ways.
func TestLifecycleIsGuarded(t *testing.T) {
	dir := t.TempDir()
	file := write(t, filepath.Join(dir, "web.yml"), users(t))
	for _, path := range []string{"/-/reload", "/-/release", "/-/acquire", "/-/profiling/pause", "/-/profiling/resume"} {
		t.Run(path, func(t *testing.T) {
			r := new(recorder)
			off := newServer(t, ordered(server.Options{Address: "127.0.0.1:9400"}, r)).Handler()
			on := newServer(t, ordered(server.Options{Lifecycle: true, Address: "127.0.0.1:9400"}, r)).Handler()
			everywhere := newServer(t, ordered(server.Options{Lifecycle: true, Address: ":9400", ConfigFile: file}, r)).Handler()
			write(t, file, "") // no password is needed any more
			defer write(t, file, users(t))

			res := do(t, off, "POST", path)
			if body := read(t, res.Body); res.StatusCode != 403 || !strings.Contains(body, "--web-enable-lifecycle") {
				t.Errorf("off: status %d and %q, want 403 and the flag", res.StatusCode, body)
			}
			if res := do(t, off, "GET", path); res.StatusCode != 405 {
				t.Errorf("off, by GET: status %d, want 405", res.StatusCode)
			}
			if res := do(t, on, "GET", path); res.StatusCode != 405 {
				t.Errorf("by GET: status %d, want 405", res.StatusCode)
			}
			if res := do(t, on, "POST", path, "Sec-Fetch-Site", "cross-site"); res.StatusCode != 403 {
				t.Errorf("another site's page: status %d, want 403", res.StatusCode)
			}
			if res := do(t, everywhere, "POST", path); res.StatusCode != 403 {
				t.Errorf("without protection: status %d, want 403", res.StatusCode)
			}
			if len(r.calls) > 0 {
				t.Errorf("carried out all the same: %q", r.calls)
			}

			// A client that is gone leaves nothing half done.
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			w := httptest.NewRecorder()
			req := httptest.NewRequestWithContext(gone, "POST", path, nil)
			req.Host = "localhost"
			on.ServeHTTP(w, req)
			if w.Code != 200 || len(r.calls) != 1 {
				t.Errorf("a client that is gone: status %d after %d orders, want 200 after one", w.Code, len(r.calls))
			}
		})
	}
}
