package process

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fakenvml"
)

// A driver that is upgraded beneath the program, library and module, costs a
// new beginning of the same process, once, and no crash.
func TestDriverUpgradedBeneath(t *testing.T) {
	dir := t.TempDir()
	library, err := fakenvml.Build(dir, "nvmlDeviceGetEnforcedPowerLimit")
	fakenvml.Need(t, err)
	next, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	world := fakenvml.NewWorld(t, "gpus 1")
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+dir))
	r.until(`source="nvml"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
	if err := os.Rename(next, filepath.Join(dir, filepath.Base(library))); err != nil {
		t.Fatal(err)
	}
	world.Play(t, "gpus 1", "driver 18") // the library in memory no longer fits
	r.listens()
	world.Play(t, "gpus 1")
	r.until(`source="nvml"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
	if n := strings.Count(r.said(), "begins anew"); n != 1 {
		t.Errorf("it began anew %d times", n)
	}
	r.signal(syscall.SIGTERM)
	if code := r.ends(); code != 0 {
		t.Errorf("exit code %d on SIGTERM", code)
	}
	if n := world.OpenHandles(t); n != 0 {
		t.Errorf("%d handles open after the end", n)
	}
}

// A library that never fitted the driver is no reason to begin anew: the next
// process would load the same.
func TestLibraryThatNeverFitted(t *testing.T) {
	dir := t.TempDir()
	_, err := fakenvml.Build(dir)
	fakenvml.Need(t, err)
	world := fakenvml.NewWorld(t, "gpus 1", "driver 18")
	r := start(t, append(world.Env(), "LD_LIBRARY_PATH="+dir), "--source=nvml")
	r.until(`dcgm_exporter_collect_failures_total{reason="version",stage="open"} 3`)
	world.Play(t, "gpus 1")
	r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="0"`)
	if strings.Contains(r.said(), "begins anew") {
		t.Error("it began anew")
	}
}
