package process

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// Profiling is left to another tool and taken back while the rest goes on.
func TestPauseOfProfiling(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "--web-enable-lifecycle")
	r.until(`DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="7"`, "dcgm_exporter_profiling_paused 0")
	for range 2 {
		if code, body := r.post("/-/profiling/pause"); code != http.StatusOK {
			t.Fatalf("POST /-/profiling/pause: %d %s", code, body)
		}
		page := r.until(`dcgm_exporter_field_unavailable{field="DCGM_FI_PROF_GR_ENGINE_ACTIVE",reason="unavailable"}`, `DCGM_FI_DEV_GPU_TEMP{gpu="7"`, "dcgm_exporter_profiling_paused 1")
		if strings.Contains(page, "\nDCGM_FI_PROF_") || engine.Open()["pauses"] != 1 {
			t.Errorf("%d pauses; the page:\n%s", engine.Open()["pauses"], page)
		}
	}
	if code, body := r.post("/-/profiling/resume"); code != http.StatusOK {
		t.Errorf("POST /-/profiling/resume: %d %s", code, body)
	}
	page := r.until(`DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="7"`)
	if strings.Contains(page, `dcgm_exporter_field_unavailable{field="DCGM_FI_PROF_GR_ENGINE_ACTIVE",reason="unavailable"}`) {
		t.Errorf("the field is still unavailable:\n%s", page)
	}
	if n := engine.Open()["pauses"]; n != 0 {
		t.Errorf("%d pauses at the engine", n)
	}
}

// A pause outlasts whatever else happens, and the counters are not touched meanwhile, not even for
// the moment in which a session opens.
func TestPauseOutlastsSessions(t *testing.T) {
	t.Parallel()
	counters := filepath.Join(t.TempDir(), "counters.csv")
	configure := func(lines string) {
		t.Helper()
		if err := os.WriteFile(counters, []byte(lines+"DCGM_FI_DEV_GPU_TEMP, gauge, T\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	configure("")
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "--web-enable-lifecycle", "-f", counters)
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	before := engine.Calls()["dcgmWatchFields"]
	if code, body := r.post("/-/reload"); code != http.StatusOK {
		t.Fatalf("POST /-/reload: %d %s", code, body)
	}
	begun := engine.Calls()["dcgmWatchFields"] - before // by a session without profiling

	if code, body := r.post("/-/profiling/pause"); code != http.StatusOK {
		t.Fatalf("POST /-/profiling/pause: %d %s", code, body)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"reload", func() {
			configure("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, P\n")
			until(t, "the reload", func() bool { return strings.Contains(r.said(), `why="a file changed"`) })
		}},
		{"release", func() {
			r.signal(syscall.SIGUSR1)
			r.letsGo(engine.Open)
			r.signal(syscall.SIGUSR2)
			r.until("dcgm_exporter_released 0", `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
		}},
		{"engine restarted", func() {
			engine.Restart()
			r.until(`dcgm_exporter_sessions_total{cause="lost"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
		}},
	} {
		before := engine.Calls()["dcgmWatchFields"]
		step.do()
		page := r.until("dcgm_exporter_profiling_paused 1", `dcgm_exporter_field_unavailable{field="DCGM_FI_PROF_GR_ENGINE_ACTIVE",reason="unavailable"}`)
		if strings.Contains(page, "\nDCGM_FI_PROF_") || engine.Open()["pauses"] != 1 {
			t.Errorf("%s: %d pauses; the page:\n%s", step.name, engine.Open()["pauses"], page)
		}
		if n := engine.Calls()["dcgmWatchFields"] - before; n != begun {
			t.Errorf("%s: %d watches were begun, want %d", step.name, n, begun)
		}
	}
	if code, body := r.post("/-/profiling/resume"); code != http.StatusOK {
		t.Errorf("POST /-/profiling/resume: %d %s", code, body)
	}
	r.until(`DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="7"`, "dcgm_exporter_profiling_paused 0")
}
