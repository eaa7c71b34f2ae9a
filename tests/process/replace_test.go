package process

import (
	"path/filepath"
	"testing"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// If the driver is upgraded while the program runs, the program exits with code 5. A new process would load the new
// library.
func TestDriverUpgradeExits(t *testing.T) {
	t.Parallel()
	loaded, next := libNVML(t, "nvmlDeviceGetEnforcedPowerLimit"), libNVML(t)
	world := fakenvml.NewFor(t, "gpus 1")
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+loaded))
	r.until(`source="nvml"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
	copyLibraries(t, next, loaded)
	world.Play(t, "gpus 1", "driver 18") // the loaded library no longer matches the driver
	r.wasReplaced()
	if n := world.OpenHandles(t); n != 0 {
		t.Errorf("handles open after exit = %d, want 0", n)
	}
}

// copyLibraries copies the libraries of the folder from to the folder to, where it replaces files of the same name.
func copyLibraries(t *testing.T, from, to string) {
	t.Helper()
	for _, library := range folder.Files(t, from, "lib*") {
		replace(t, filepath.Join(to, filepath.Base(library)), folder.Read(t, library))
	}
}

// wasReplaced waits until the program exits because a library was replaced.
func (r *running) wasReplaced() {
	r.t.Helper()
	if code := r.ends(); code != 5 || !r.logged("was replaced") {
		r.t.Errorf("exit code = %d, want 5 and a log line that contains \"was replaced\"", code)
	}
}

// If packages of DCGM or the driver are upgraded while the program runs, and the loaded libraries no longer match, the
// program exits.
func TestDCGMUpgradeExits(t *testing.T) {
	t.Parallel()
	built, err := fakedcgm.Build()
	fakedcgm.Need(t, err)
	for name, c := range map[string]struct {
		args []string
		fail string // how the loaded libraries fail after the upgrade
	}{
		"embedded": {nil, "fail dcgmStartEmbedded -7"},
		"remote":   {[]string{remote}, "fail dcgmConnect_v2 -12"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			loaded := t.TempDir()
			copyLibraries(t, built, loaded)
			engine, env := fakedcgm.NewFor(t, node()...)
			r := start(t, append(env, "LD_LIBRARY_PATH="+loaded), c.args...)
			r.until(`source="dcgm"} 1`, everyGPU)

			// a failure alone, or a new file alone, is no reason to exit
			engine.Add(c.fail)
			engine.Restart()
			r.until("dcgm_exporter_collect_success 0", `stage="open"`)
			engine.Remove(c.fail)
			r.until("dcgm_exporter_collect_success 1")
			copyLibraries(t, built, loaded)
			engine.Restart()
			r.until(`dcgm_exporter_sessions_total{cause="lost"} 2`, "dcgm_exporter_collect_success 1")

			engine.Add(c.fail)
			engine.Restart()
			r.wasReplaced()
		})
	}
}

// If a library never matched the driver, the program does not exit, because the next process would load the same
// library.
func TestLibraryMismatchFromStart(t *testing.T) {
	t.Parallel()
	world := fakenvml.NewFor(t, "gpus 1", "driver 18")
	r, _ := overNVML(t, world, libNVML(t))
	r.until(`dcgm_exporter_collect_failures_total{reason="version",stage="open"} 3`)
	if r.logged("was replaced") {
		t.Error("log contains \"was replaced\", but the driver and the library did not match from the start")
	}
	world.Play(t, "gpus 1")
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
}
