package process

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fakedcgm"
)

// Profiling is left to another tool and taken back while the rest goes on.
func TestPauseOfProfiling(t *testing.T) {
	fakedcgm.Require(t)
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "--web-enable-lifecycle")
	r.until(`DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="7"`)
	for range 2 {
		if code, body := r.post("/-/profiling/pause"); code != http.StatusOK {
			t.Fatalf("POST /-/profiling/pause: %d %s", code, body)
		}
		page := r.until(`dcgm_exporter_field_unavailable{field="DCGM_FI_PROF_GR_ENGINE_ACTIVE",reason="unavailable"}`, `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
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
