package process

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// counterFile writes a counters file and returns its path.
func counterFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "counters.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A field that the engine samples every 30 s at most is on every page, however short the interval
// of the collection is. That IMEX is not installed is a value.
func TestPaceOfFields(t *testing.T) {
	t.Parallel()
	_, env := fakedcgm.NewFor(t, append(node(), "value any:* 83-84 int 1", "value any:* 1503 int -1")...)
	file := counterFile(t, "DCGM_FI_DEV_GPU_TEMP, gauge, T", "DCGM_FI_DEV_INFOROM_CONFIG_VALID, gauge, V",
		"DCGM_FI_DEV_INFOROM_CONFIG_CHECK, gauge, C", "DCGM_FI_IMEX_DAEMON_STATUS, gauge, I")
	r := start(t, env, "-f", file, "-c", "100")
	want := []string{`DCGM_FI_DEV_INFOROM_CONFIG_VALID{gpu="6"`, `DCGM_FI_DEV_INFOROM_CONFIG_CHECK{gpu="6"`, "DCGM_FI_IMEX_DAEMON_STATUS{"}
	r.until(want...)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 30 { // 15 intervals
		<-tick.C
		_, page := r.get("/metrics")
		for _, w := range want {
			if !strings.Contains(page, w) {
				t.Fatalf("%s is gone from the page:\n%s", w, page)
			}
		}
		if !strings.Contains(page, "DCGM_FI_IMEX_DAEMON_STATUS{") || !strings.Contains(page, "} -1\n") {
			t.Fatalf("IMEX is not said to be absent:\n%s", page)
		}
	}
}

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

// The host label of a remote engine's GPUs is the engine's host; an engine on this machine, over a
// socket or loopback, has this machine's name. Under Kubernetes it is the node's name: there the
// address is that of a Service, the same on every node.
func TestHostOfTheEngine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ address, kubernetes, want string }{
		{"gpu-node-7", "false", "gpu-node-7"},
		{"10.0.0.9:5556", "false", "10.0.0.9"},
		{"[fe80::1%eth0]:5555", "false", "fe80::1%eth0"},
		{"localhost:5555", "false", "this-node"},
		{"[::1]:5555", "false", "this-node"},
		{"unix:///run/dcgm.sock", "false", "this-node"},
		{"vsock://1:5555", "false", "this-node"},
		{"nvidia-dcgm:5555", "true", "this-node"},
		{"10.0.0.9:5556", "true", "this-node"},
		{"localhost:5555", "true", "this-node"},
	} {
		t.Run(tt.address+" kubernetes="+tt.kubernetes, func(t *testing.T) {
			t.Parallel()
			want := tt.want
			_, env := fakedcgm.NewFor(t, node()...)
			r := start(t, append(env, "NODE_NAME=this-node"), "--remote-hostengine-info="+tt.address, "--kubernetes="+tt.kubernetes, "--fallback=none")
			page := r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="6"`)
			if !strings.Contains(page, `hostname="`+want+`"`) || strings.Count(page, `hostname="`) != strings.Count(page, `hostname="`+want+`"`) {
				t.Errorf("no host label of %s, or another one:\n%s", want, page)
			}
		})
	}
}
