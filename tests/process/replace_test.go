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
	folder, next := libNVML(t, "nvmlDeviceGetEnforcedPowerLimit"), libNVML(t)
	world := fakenvml.NewFor(t, "gpus 1")
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+folder))
	r.until(`source="nvml"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
	copyLibraries(t, next, folder)
	world.Play(t, "gpus 1", "driver 18") // the library in memory no longer fits
	r.wasReplaced()
	if n := world.OpenHandles(t); n != 0 {
		t.Errorf("%d handles open after the end", n)
	}
}

// copyLibraries puts the libraries of one folder into the place of those of another.
func copyLibraries(t *testing.T, from, to string) {
	t.Helper()
	libraries, err := filepath.Glob(filepath.Join(from, "lib*"))
	if err != nil || len(libraries) == 0 {
		t.Fatal(from, err)
	}
	for _, library := range libraries {
		content, err := os.ReadFile(library)
		if err != nil {
			t.Fatal(err)
		}
		replace(t, filepath.Join(to, filepath.Base(library)), string(content))
	}
}

// wasReplaced waits for the end because of a library that was replaced.
func (r *running) wasReplaced() {
	r.t.Helper()
	if code := r.ends(); code != 5 || !strings.Contains(r.said(), "was replaced") {
		r.t.Errorf("exit code %d, want 5, and a word why", code)
	}
}

// Packages of DCGM or of the driver are upgraded beneath the program, and the libraries that it has
// loaded no longer fit: it ends.
func TestDCGMUpgradedBeneath(t *testing.T) {
	t.Parallel()
	built, err := fakedcgm.Build()
	fakedcgm.Need(t, err)
	for name, c := range map[string]struct {
		args []string
		fail string // how the libraries that are loaded fail now
	}{
		"embedded": {nil, "fail dcgmStartEmbedded -7"},
		"remote":   {[]string{remote}, "fail dcgmConnect_v2 -12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			copyLibraries(t, built, folder)
			engine, env := fakedcgm.NewFor(t, node()...)
			r := start(t, append(env, "LD_LIBRARY_PATH="+folder), c.args...)
			r.until(`source="dcgm"} 1`, everyGPU)

			// A failure alone is none of the library's, and neither is a new file alone.
			engine.Add(c.fail)
			engine.Restart()
			r.until("dcgm_exporter_collect_success 0", `stage="open"`)
			engine.Remove(c.fail)
			r.until("dcgm_exporter_collect_success 1")
			copyLibraries(t, built, folder)
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
	world := fakenvml.NewFor(t, "gpus 1", "driver 18")
	r, _ := overNVML(t, world, libNVML(t))
	r.until(`dcgm_exporter_collect_failures_total{reason="version",stage="open"} 3`)
	if strings.Contains(r.said(), "was replaced") {
		t.Error("the log says that the driver was replaced")
	}
	world.Play(t, "gpus 1")
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
}
