package process

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// both returns an engine, and the environment of a program that finds DCGM and NVML.
func both(t *testing.T) (*fakedcgm.Engine, []string) {
	t.Helper()
	engine, env := fakedcgm.NewFor(t, node()...)
	dcgm, err := fakedcgm.Build()
	fakedcgm.Need(t, err)
	nvml := t.TempDir()
	_, err = fakenvml.Build(nvml)
	fakenvml.Need(t, err)
	return engine, append(append(env, fakenvml.NewFor(t, "gpus 8").Env()...), "LD_LIBRARY_PATH="+dcgm+":"+nvml)
}

// NVML stands in for an engine that dies, within three intervals, and gives way when the engine is
// back, without a page without data in between.
func TestDCGMIsTakenBack(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		engine, env := both(t)
		takenBack(t, env, nil, func() {
			engine.Add("down")
			engine.Restart()
		}, func() { engine.Remove("down") })
	})
	t.Run("host engine", func(t *testing.T) {
		t.Parallel()
		engine, env := both(t)
		socket := filepath.Join(t.TempDir(), "engine.sock")
		listen := func() net.Listener {
			l, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return l
		}
		l := listen()
		takenBack(t, env, []string{"-r", "unix://" + socket}, func() {
			_ = l.Close()
			engine.Add("down")
			engine.Restart()
		}, func() {
			engine.Remove("down")
			l = listen()
		})
	})
}

func takenBack(t *testing.T, env, args []string, die, revive func()) {
	r := start(t, env, append(args, "-c", "1000")...)
	r.until(`source="dcgm"} 1`, "dcgm_exporter_source_fallback 0", `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	die()
	died := time.Now()
	r.until(`source="nvml"} 1`, "dcgm_exporter_source_fallback 1", `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
	if took := time.Since(died); took > 3*time.Second {
		t.Errorf("NVML serves after %v, want three intervals at most", took)
	}
	if n := strings.Count(r.said(), "NVML stands in for DCGM"); n != 1 {
		t.Errorf("%d lines say that NVML stands in", n)
	}
	revive()
	revived := time.Now()
	failures := value(t, r.until("dcgm_exporter_collect_success 1"), `dcgm_exporter_sessions_total{cause="lost"}`)
	page := ""
	until(t, "DCGM again", func() bool {
		_, page = r.get("/metrics")
		if !strings.Contains(page, "dcgm_exporter_collect_success 1") || !strings.Contains(page, `DCGM_FI_DEV_GPU_TEMP{gpu="7"`) {
			t.Errorf("a page without data:\n%s", page)
			return true
		}
		return strings.Contains(page, `source="dcgm"} 1`) && strings.Contains(page, "dcgm_exporter_source_fallback 0")
	})
	if took := time.Since(revived); took > 30*time.Second {
		t.Errorf("DCGM serves again after %v", took)
	}
	if n := value(t, page, `dcgm_exporter_sessions_total{cause="lost"}`); n != failures {
		t.Errorf("%v sessions were lost on the way back", n-failures)
	}
	if n := strings.Count(r.said(), "DCGM serves again\""); n != 1 {
		t.Errorf("%d lines say that DCGM serves again", n)
	}
	// It goes on as before: the next death is survived too.
	die()
	r.until(`source="nvml"} 1`, "dcgm_exporter_source_fallback 1")
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
				r.until(`source="nvml"} 1`, "dcgm_exporter_source_fallback 1", `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
				return
			}
			page := r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_failures_total{reason="unavailable",stage="open"} 3`)
			if strings.Contains(page, "\nDCGM_FI_") || strings.Contains(page, "dcgm_exporter_source_fallback 1") {
				t.Errorf("GPUs of another machine:\n%s", page)
			}
			if n := strings.Count(r.said(), "--fallback=nvml"); n != 1 {
				t.Errorf("%d lines say what to do:\n%s", n, r.said())
			}
		})
	}
}

// value returns the value of the first series that begins with a text.
func value(t *testing.T, page, series string) float64 {
	t.Helper()
	_, rest, found := strings.Cut("\n"+page, "\n"+series)
	line, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
	if !found || err != nil {
		t.Fatalf("no value of %s: %v\n%s", series, err, page)
	}
	return v
}
