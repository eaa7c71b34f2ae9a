package process

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// both returns an engine, and the environment of a program that finds DCGM and NVML, with more of its script.
func both(t *testing.T, more ...string) (*fakedcgm.Engine, []string) {
	t.Helper()
	engine, env := fakedcgm.NewFor(t, node()...)
	dcgm, err := fakedcgm.Build()
	fakedcgm.Need(t, err)
	return engine, append(append(env, fakenvml.NewFor(t, append([]string{"gpus 8"}, more...)...).Env()...), "LD_LIBRARY_PATH="+dcgm+":"+libNVML(t))
}

const (
	everyGPU   = `DCGM_FI_DEV_GPU_TEMP{gpu="7"`
	fallenBack = "dcgm_exporter_source_fallback 1"
)

// NVML is read within three intervals after the engine dies, until the engine is
// back, without a page without data in between.
func TestDCGMIsTakenBack(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		engine, env := both(t)
		takenBack(t, engine, env, nil, func() {}, func() {})
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
		takenBack(t, engine, env, []string{"-r", "unix://" + socket}, func() { _ = l.Close() }, listen)
	})
}

func takenBack(t *testing.T, engine *fakedcgm.Engine, env, args []string, dies, revives func()) {
	die := func() {
		dies()
		engine.Add("down", "connects 5") // as long as DCGM takes to notice it
		engine.Restart()
	}
	r := start(t, env, append(args, "-c", "1000")...)
	r.until(`source="dcgm"} 1`, "dcgm_exporter_source_fallback 0", everyGPU)
	died := time.Now()
	die()
	r.until(`source="nvml"} 1`, fallenBack, everyGPU)
	if took := time.Since(died); took > 3*time.Second {
		t.Errorf("NVML serves after %v, want three intervals at most", took)
	}
	if n := strings.Count(r.said(), "DCGM unavailable; using NVML"); n != 1 {
		t.Errorf("%d lines say that NVML is used, want 1", n)
	}
	revived := time.Now()
	engine.Remove("down")
	engine.Remove("connects")
	revives()
	lost := func(p page) float64 { return p.series("dcgm_exporter_sessions_total", "cause")["lost"] }
	before := lost(r.collected())
	r.wait("DCGM again", func() bool {
		text := r.scrape()
		if !strings.Contains(text, "dcgm_exporter_collect_success 1") || !strings.Contains(text, everyGPU) {
			t.Fatal("a page without data")
		}
		return strings.Contains(text, `source="dcgm"} 1`) && strings.Contains(text, "dcgm_exporter_source_fallback 0")
	})
	if took := time.Since(revived); took > 30*time.Second {
		t.Errorf("DCGM is read again after %v", took)
	}
	if n := lost(parse(t, r.last)); n != before {
		t.Errorf("%v sessions were lost on the way back", n-before)
	}
	if n := strings.Count(r.said(), "DCGM is available again\""); n != 1 {
		t.Errorf("%d lines say that DCGM is available again, want 1", n)
	}
	// It goes on as before: the next death is survived too.
	die()
	r.until(`source="nvml"} 1`, fallenBack)
}

// A host engine elsewhere is not replaced by this machine's GPUs, unless that is configured; the
// log says once what to do.
func TestFallbackOfARemoteEngine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		nvml bool
	}{
		{"elsewhere", []string{"-r", "engine.invalid:5555"}, false},
		{"elsewhere, configured", []string{"-r", "engine.invalid:5555", "--fallback=nvml"}, true},
		{"this machine", []string{"-r", "localhost:5555"}, true},
		{"this machine, refused", []string{"-r", "localhost:5555", "--fallback=none"}, false},
		{"DCGM and nothing else", []string{"-r", "localhost:5555", "--source=dcgm"}, false},
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
			page := r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_failures_total{reason="unavailable",stage="open"} 3`)
			if strings.Contains(page, "\nDCGM_FI_") || strings.Contains(page, fallenBack) {
				t.Errorf("GPUs of another machine:\n%s", page)
			}
			if n := strings.Count(r.said(), "--fallback=nvml"); n != 1 {
				t.Errorf("%d lines say what to do:\n%s", n, r.said())
			}
		})
	}
}
