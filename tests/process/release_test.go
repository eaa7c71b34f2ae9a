package process

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// letsGo waits until the program holds nothing of the driver, which is promised within five
// seconds, and checks what it serves then.
func (r *running) letsGo(open func() map[string]int64) {
	r.t.Helper()
	deadline := time.After(5 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for held := true; held; {
		held = false
		for _, n := range open() {
			held = held || n != 0
		}
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("still held after five seconds: %v", open())
		}
	}
	page := r.until("dcgm_exporter_released 1", "dcgm_exporter_collect_success 0",
		`dcgm_exporter_collect_failures_total{reason="released",stage="open"}`)
	if strings.Contains(page, "\nDCGM_FI_") {
		r.t.Errorf("series of GPUs on the page of a released driver:\n%s", page)
	}
	for _, path := range []string{"/health", "/-/healthy", "/-/ready"} {
		if code, body := r.get(path); code != http.StatusOK {
			r.t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// stays checks that nothing is opened while the program goes on.
func (r *running) stays(open func() map[string]int64) {
	r.t.Helper()
	for range 5 {
		before := r.failures()
		until(r.t, "another cycle", func() bool { return r.failures() != before })
		for kind, n := range open() {
			if n != 0 {
				r.t.Errorf("%d open while released: %s", n, kind)
			}
		}
	}
}

// failures is the line that changes with every cycle of a released driver.
func (r *running) failures() string {
	_, page := r.get("/metrics")
	_, rest, _ := strings.Cut(page, `dcgm_exporter_collect_failures_total{reason="released",stage="open"} `)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not seen: %s", what)
		}
	}
}

func TestReleaseOverDCGM(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"embedded": nil, "remote": {"--remote-hostengine-info=10.0.0.9:5555"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, env := fakedcgm.NewFor(t, node()...)
			r := start(t, env, args...)
			r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`, "dcgm_exporter_released 0")
			held := int64(0)
			for _, n := range engine.Open() {
				held += n
			}
			if held == 0 {
				t.Fatal("the library counts nothing open while it is read")
			}

			r.signal(syscall.SIGUSR1)
			r.letsGo(engine.Open)
			engine.Restart()
			r.stays(engine.Open)
			r.signal(syscall.SIGUSR2)
			r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`, "dcgm_exporter_released 0", `dcgm_exporter_sessions_total{cause="released"} 1`)

			r.signal(syscall.SIGUSR1)
			r.letsGo(engine.Open)
			r.signal(syscall.SIGTERM)
			if code := r.ends(); code != 0 {
				t.Errorf("exit code %d on SIGTERM while released", code)
			}
		})
	}
}

func TestReleaseTimesOut(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "--release-timeout=3s")
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	r.signal(syscall.SIGUSR1)
	r.letsGo(engine.Open)
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`, "dcgm_exporter_released 0", `dcgm_exporter_sessions_total{cause="released"} 1`)
}

// An engine that hangs cannot be released, and says so; it is released when it answers again.
func TestReleaseOfAFrozenEngine(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "--web-enable-lifecycle")
	r.until("dcgm_exporter_collect_success 1")
	frozen := []string{"block dcgmGetLatestValues_v2", "block dcgmEntitiesGetLatestValues", "block dcgmGetGpuStatus"}
	engine.Add(frozen...)
	until(t, "a call that hangs", func() bool { return engine.Blocked() > 0 })
	if code, body := r.post("/-/release"); code != http.StatusServiceUnavailable || !strings.Contains(body, "still in use") {
		t.Errorf("POST /-/release: %d %s", code, body)
	}
	for _, line := range frozen {
		engine.Remove(line)
	}
	r.letsGo(engine.Open)
	if code, body := r.post("/-/release"); code != http.StatusOK {
		t.Errorf("POST /-/release again: %d %s", code, body)
	}
	if code, body := r.post("/-/acquire"); code != http.StatusOK {
		t.Errorf("POST /-/acquire: %d %s", code, body)
	}
	r.until("dcgm_exporter_collect_success 1", "dcgm_exporter_released 0")
}

func (r *running) post(path string) (int, string) {
	r.t.Helper()
	client := http.Client{Timeout: patience}
	resp, err := client.Post(r.url+path, "", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return body(r.t, resp)
}

func TestReleaseOverNVML(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := fakenvml.Build(dir); err != nil {
		fakenvml.Need(t, err)
	}
	world := fakenvml.NewFor(t, "gpus 2")
	open := func() map[string]int64 { return map[string]int64{"handles": int64(world.OpenHandles(t))} }
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+dir), "--web-enable-lifecycle")
	r.until(`source="nvml"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="1"`)
	if open()["handles"] == 0 {
		t.Fatal("the library counts nothing open while it is read")
	}
	if code, body := r.post("/-/profiling/pause"); code != http.StatusNotImplemented {
		t.Errorf("POST /-/profiling/pause: %d %s", code, body)
	}
	r.signal(syscall.SIGUSR1)
	r.letsGo(open)
	r.stays(open)
	r.signal(syscall.SIGUSR2)
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="1"`, `dcgm_exporter_sessions_total{cause="released"} 1`)
}
