package process

import (
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// both starts a fake engine. It returns the engine, and the environment in which the program finds DCGM and NVML. more
// is appended to the script of NVML.
func both(t *testing.T, more ...string) (*fakedcgm.Engine, []string) {
	t.Helper()
	engine, env := fakedcgm.NewFor(t, node()...)
	dcgm, err := fakedcgm.Build()
	fakedcgm.Need(t, err)
	nvml := fakenvml.NewFor(t, append([]string{"gpus 8"}, more...)...)
	return engine, slices.Concat(env, nvml.Env(), []string{"LD_LIBRARY_PATH=" + dcgm + ":" + libNVML(t)})
}

const (
	everyGPU   = `DCGM_FI_DEV_GPU_TEMP{gpu="7"`
	fallenBack = "dcgm_exporter_source_fallback 1"
)

// If the engine dies, the exporter reads NVML within three intervals. It returns to DCGM when the engine is back. While
// it switches back, every page has data.
func TestFallbackEndsWhenDCGMReturns(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		engine, env := both(t)
		testReturnToDCGM(t, engine, env, nil, func() {}, func() {})
	})
	t.Run("host engine", func(t *testing.T) {
		t.Parallel()
		engine, env := both(t)
		socket := filepath.Join(t.TempDir(), "engine.sock")
		var l net.Listener
		listen := func() {
			var err error
			if l, err = net.Listen("unix", socket); err != nil {
				t.Fatal(err)
			}
		}
		listen()
		defer func() { _ = l.Close() }()
		testReturnToDCGM(t, engine, env, []string{"-r", "unix://" + socket}, func() { _ = l.Close() }, listen)
	})
}

func testReturnToDCGM(t *testing.T, engine *fakedcgm.Engine, env, args []string, dies, revives func()) {
	die := func() {
		dies()
		engine.Add("down", "connects 5") // connecting to the engine takes 5 s
		engine.Restart()
	}
	r := start(t, env, append(args, "-c", "1000")...)
	r.until(`source="dcgm"} 1`, "dcgm_exporter_source_fallback 0", everyGPU)
	died := time.Now()
	die()
	r.until(`source="nvml"} 1`, fallenBack, everyGPU)
	if took := time.Since(died); took > 3*time.Second {
		t.Errorf("fallback to NVML took %v, want at most 3s", took)
	}
	r.logs("DCGM unavailable; using NVML", 1)
	revived := time.Now()
	engine.Remove("down")
	engine.Remove("connects")
	revives()
	lost := func(p page) float64 { return p.By("dcgm_exporter_sessions_total", "cause")["lost"] }
	before := lost(r.collected())
	r.wait("DCGM again", func() bool {
		text := r.scrape()
		if !strings.Contains(text, "dcgm_exporter_collect_success 1") || !strings.Contains(text, everyGPU) {
			t.Fatalf("page lacks GPUs while switching back to DCGM, want all of them:\n%s", text)
		}
		return strings.Contains(text, `source="dcgm"} 1`) && strings.Contains(text, "dcgm_exporter_source_fallback 0")
	})
	if took := time.Since(revived); took > 30*time.Second {
		t.Errorf("switching back to DCGM took %v, want at most 30s", took)
	}
	if n := lost(prom.Parse(t, r.last)); n != before {
		t.Errorf("sessions lost while switching back = %v, want 0", n-before)
	}
	r.logs("DCGM is available again\"", 1)
	// a second fallback works too
	die()
	r.until(`source="nvml"} 1`, fallenBack)
}

// If the host engine of another machine is down, the exporter reads the local GPUs only with --fallback=nvml. If the
// engine of this machine is down, it reads them unless --fallback or --source forbids it. Without a fallback, the log
// suggests the flag once.
func TestFallbackOfARemoteEngine(t *testing.T) {
	t.Parallel()
	engineless := "localhost:" + closedPort(t)
	for _, c := range []struct {
		name string
		args []string
		nvml bool
	}{
		{"remote engine", []string{"-r", "engine.invalid:5555"}, false},
		{"remote engine, with fallback", []string{"-r", "engine.invalid:5555", "--fallback=nvml"}, true},
		{"engine of this machine", []string{"-r", engineless}, true},
		{"engine of this machine, without fallback", []string{"-r", engineless, "--fallback=none"}, false},
		{"engine of this machine, only DCGM", []string{"-r", engineless, "--source=dcgm"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			engine, env := both(t)
			engine.Add("down")
			r := start(t, env, c.args...)
			if c.nvml {
				r.until(`source="nvml"} 1`, fallenBack, everyGPU)
				return
			}
			page := r.until("dcgm_exporter_collect_success 0",
				`dcgm_exporter_collect_failures_total{reason="unavailable",stage="open"} 3`)
			if strings.Contains(page, "\nDCGM_FI_") || strings.Contains(page, fallenBack) {
				t.Errorf("page without the fallback has GPU series or %s, want neither:\n%s", fallenBack, page)
			}
			r.logs("--fallback=nvml", 1)
		})
	}
}

// closedPort returns a TCP port of 127.0.0.1 that refuses connections until the test ends. The port is bound, but
// nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(at.(*syscall.SockaddrInet4).Port)
}
