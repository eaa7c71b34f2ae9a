package process

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// A healthy machine with a field of the driver in its file: every command that opens the engine
// ends well, and so does what closes it.
func TestCommandsOverDCGM(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"once":  {"once", "--source=dcgm", "-f", "../../etc/default-counters.csv"},
		"topo":  {"topo", "--source=dcgm"},
		"check": {"check", "--source=dcgm", "../../etc/default-counters.csv"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, env := fakedcgm.NewFor(t, node()...)
			cmd := exec.Command(program, args...)
			cmd.Env = append(os.Environ(), env...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			for kind, n := range engine.Open() {
				if n != 0 {
					t.Errorf("%d open after the end: %s", n, kind)
				}
			}
		})
	}
}

// One GPU is lost when the exporter starts: the seven others are served, it is said to be lost, and
// it is served when it is back, profiling included. The same at a reload, and a stop ends
// well.
func TestLostAtTheStart(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	engine.Replace("index=3 minor=3", "index=3 minor=3 status=lost")
	r := start(t, env, "--web-enable-lifecycle")
	seven := func() {
		t.Helper()
		page := r.until(`dcgm_exporter_entity_up{gpu="3",UUID="GPU-00000003",reason="lost"} 0`, `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="5"`)
		if n := strings.Count(page, "\nDCGM_FI_DEV_GPU_TEMP{"); n != 7 {
			t.Errorf("%d temperatures, want 7:\n%s", n, page)
		}
	}
	seven()
	if code, body := r.post("/-/reload"); code != http.StatusOK {
		t.Errorf("POST /-/reload: %d %s", code, body)
	}
	seven()
	engine.Replace(" status=lost", "")
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="3"`, `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3"`)
	r.signal(syscall.SIGTERM)
	if code := r.ends(); code != 0 {
		t.Errorf("exit code %d on SIGTERM", code)
	}
}
