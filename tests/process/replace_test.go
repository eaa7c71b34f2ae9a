package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// A driver that is upgraded beneath the program, library and module, ends it with a code of its own:
// a new process loads the new library.
func TestDriverUpgradedBeneath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	library, err := fakenvml.Build(dir, "nvmlDeviceGetEnforcedPowerLimit")
	fakenvml.Need(t, err)
	next, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	world := fakenvml.NewFor(t, "gpus 1")
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+dir))
	r.until(`source="nvml"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
	if err := os.Rename(next, filepath.Join(dir, filepath.Base(library))); err != nil {
		t.Fatal(err)
	}
	world.Play(t, "gpus 1", "driver 18") // the library in memory no longer fits
	r.wasReplaced()
	if n := world.OpenHandles(t); n != 0 {
		t.Errorf("%d handles open after the end", n)
	}
}

// wasReplaced waits for the end because of a library that was replaced.
func (r *running) wasReplaced() {
	r.t.Helper()
	if code := r.ends(); code != 5 || !strings.Contains(r.said(), "was replaced") {
		r.t.Errorf("exit code %d, want 5, and a word why:\n%s", code, r.said())
	}
}

// Packages of DCGM or of the driver are upgraded beneath the program, and the libraries that it has
// loaded no longer fit: it ends.
func TestDCGMUpgradedBeneath(t *testing.T) {
	t.Parallel()
	built, err := fakedcgm.Build()
	fakedcgm.Need(t, err)
	library := "libdcgm.so.4"
	for name, c := range map[string]struct {
		args []string
		fail string // how the libraries that are loaded fail now
	}{
		"embedded": {nil, "fail dcgmStartEmbedded -7"},
		"remote":   {[]string{"--remote-hostengine-info=10.0.0.9:5555"}, "fail dcgmConnect_v2 -12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			put := func() {
				t.Helper()
				content, err := os.ReadFile(filepath.Join(built, library))
				if err != nil {
					t.Fatal(err)
				}
				next := filepath.Join(dir, "next")
				if err := os.WriteFile(next, content, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(next, filepath.Join(dir, library)); err != nil {
					t.Fatal(err)
				}
			}
			put()
			engine, env := fakedcgm.NewFor(t, node()...)
			r := start(t, append(env, "LD_LIBRARY_PATH="+dir), c.args...)
			r.until(`source="dcgm"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)

			// A failure alone is none of the library's, and neither is a new file alone.
			engine.Add(c.fail)
			engine.Restart()
			r.until("dcgm_exporter_collect_success 0", `stage="open"`)
			engine.Remove(c.fail)
			r.until("dcgm_exporter_collect_success 1")
			put()
			engine.Restart()
			r.until(`dcgm_exporter_sessions_total{cause="lost"} 2`, "dcgm_exporter_collect_success 1")

			engine.Add(c.fail)
			engine.Restart()
			r.wasReplaced()
		})
	}
}

// A library that never fitted the driver is no reason to end: the next process would load the same.
func TestLibraryThatNeverFitted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := fakenvml.Build(dir)
	fakenvml.Need(t, err)
	world := fakenvml.NewFor(t, "gpus 1", "driver 18")
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+dir), "--source=nvml")
	r.until(`dcgm_exporter_collect_failures_total{reason="version",stage="open"} 3`)
	world.Play(t, "gpus 1")
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
}
