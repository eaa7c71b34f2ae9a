package process

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// counters is the counters file of these tests. It has every field that they break.
const counters = `DCGM_FI_DEV_GPU_TEMP, gauge, T
DCGM_FI_DEV_POWER_USAGE, gauge, P
DCGM_FI_DEV_FB_USED, gauge, M
DCGM_FI_DEV_XID_ERRORS, gauge, X
DCGM_EXP_XID_ERRORS_TOTAL, counter, X
`

// missing returns a pattern of the series about a field without values. The series begins with the given labels.
func missing(labels, field, reason string) string {
	return `dcgm_exporter_field_unavailable\{` + labels + `.*field="` + field + `".*reason="` + reason + `"\} 1`
}

// xids returns a pattern of the number of an XID on GPU 0.
func xids(xid, n int) string {
	return fmt.Sprintf(`DCGM_EXP_XID_ERRORS_TOTAL\{gpu="0",.*xid="%d".*\} %d`, xid, n)
}

// failures returns a pattern of the number of failures.
func failures(reason, stage string) string {
	return fmt.Sprintf(`dcgm_exporter_collect_failures_total\{reason=%q,stage=%q\} .*`, reason, stage)
}

// overNVML runs the program with the test library in folder.
func overNVML(t *testing.T, world *fakenvml.World, folder string) (r *running, file string) {
	t.Helper()
	file = write(t, "counters.csv", counters)
	return start(t, append(world.Env(), "LD_LIBRARY_PATH="+folder), "--source=nvml", "-f", file), file
}

// TestNVMLFaults breaks the driver in different ways and checks the page each time. What is broken is reported with a
// reason, and everything else is served. The driver is installed after the start. The program leaves no handle open when
// it exits.
func TestNVMLFaults(t *testing.T) {
	t.Parallel()
	world := fakenvml.NewFor(t, "gpus 2")
	folder := t.TempDir()
	r, file := overNVML(t, world, folder)
	r.matching(`dcgm_exporter_collect_success 0`, failures("unavailable", "open"))
	_, err := fakenvml.Build(folder) // a driver that is installed later is used
	fakenvml.Need(t, err)
	healthy := []string{
		`dcgm_exporter_collect_success 1`,
		`DCGM_FI_DEV_GPU_TEMP\{gpu="0",.*\} 30`, `DCGM_FI_DEV_GPU_TEMP\{gpu="1",.*\} 31`,
		`dcgm_exporter_entity_up\{gpu="1",.*\} 1`,
	}
	partitioned := []string{"gpus 2", "gpu 1 mig", "gpu 1 instance 9 0 1g.10gb 9984"}
	lost := `dcgm_exporter_entity_up\{gpu="1",UUID=".*",reason="lost"\} 0`
	first := []string{
		`DCGM_FI_DEV_GPU_TEMP\{gpu="0",.*\} 30`, `DCGM_FI_DEV_POWER_USAGE\{gpu="0",.*\} 100.5`,
		`dcgm_exporter_collect_success 1`,
	}
	for _, step := range []struct {
		name   string
		script []string
		want   []string
		absent string // prefix that no line may have
	}{
		{
			"boards that share the machine's memory", []string{"fail nvmlDeviceGetMemoryInfo_v2 3"},
			append([]string{missing("", "DCGM_FI_DEV_FB_USED", "not_supported")}, healthy...), "DCGM_FI_DEV_FB_USED{",
		},
		{"a GPU that is lost", []string{"gpu 1 lost"}, []string{lost}, `DCGM_FI_DEV_GPU_TEMP{gpu="1"`},
		{
			"a GPU that needs a reset", []string{"fail nvmlDeviceGetTemperature 16 1"},
			[]string{lost}, `DCGM_FI_DEV_POWER_USAGE{gpu="1"`,
		},
		{
			"an event set that fails", []string{"fail nvmlEventSetWait_v2 999"},
			append([]string{missing("", "DCGM_FI_DEV_XID_ERRORS", "error")}, healthy...), "",
		},
		{
			"XIDs within one interval", []string{"xid 0 62", "xid 0 45", "xid 0 62"},
			[]string{xids(62, 2), xids(45, 1)}, "",
		},
		{
			"a field without permission on one GPU", []string{"fail nvmlDeviceGetPowerUsage 4 1"},
			[]string{missing(`gpu="1",`, "DCGM_FI_DEV_POWER_USAGE", "permission")}, `DCGM_FI_DEV_POWER_USAGE{gpu="1"`,
		},
		{
			"one GPU less", []string{"gpus 1"},
			[]string{`dcgm_exporter_sessions_total\{cause="topology"\} 1`}, `DCGM_FI_DEV_GPU_TEMP{gpu="1"`,
		},
	} {
		t.Run(step.name, func(t *testing.T) {
			script := step.script
			if !strings.HasPrefix(script[0], "gpus") {
				script = append([]string{"gpus 2"}, script...)
			}
			world.Play(t, script...)
			page := r.matching(append(step.want, first...)...)
			if step.absent != "" && strings.Contains(page, "\n"+step.absent) {
				t.Errorf("page has a series that begins with %s, want none:\n%s", step.absent, page)
			}
			world.Play(t, "gpus 2")
			r.matching(healthy...)
		})
	}
	t.Run("a call that hangs", func(t *testing.T) {
		world.Play(t, "gpus 2", "hang nvmlDeviceGetTemperature")
		page := r.matching(`dcgm_exporter_collect_success 0`, failures("timeout", "read"))
		if strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{") {
			t.Errorf("page has stale temperatures, want none:\n%s", page)
		}
		world.Play(t, "gpus 2")
		r.matching(healthy...)
		if n := world.Ledger(t)["most-at-once"]; n != 1 {
			t.Errorf("concurrent driver calls = %d, want 1", n)
		}
	})
	t.Run("a driver that is gone", func(t *testing.T) {
		world.Play(t, "driver 9")
		page := r.matching(`dcgm_exporter_collect_success 0`, failures("unavailable", "open"))
		if strings.Contains(page, "\nDCGM_FI_") {
			t.Errorf("page has series of GPUs without a driver, want none:\n%s", page)
		}
		world.Play(t, partitioned...)
		r.matching(append(first, `dcgm_exporter_entity_up\{gpu="1",UUID=".*",GPU_I_ID="9"\} 1`)...)
	})
	// XID counts survive lost sessions and a reload
	world.Play(t, append(partitioned, "xid 0 45")...)
	r.matching(xids(45, 2))
	replace(t, file, counters+"DCGM_FI_DEV_SM_CLOCK, gauge, C\n")
	r.signal(syscall.SIGHUP)
	r.until("\nDCGM_FI_DEV_SM_CLOCK{")
	world.Play(t, append(partitioned, "xid 0 62")...)
	r.matching(xids(62, 3), xids(45, 2))
	r.stops()
	if n := world.OpenHandles(t); n != 0 {
		t.Errorf("handles open after exit = %d, want 0", n)
	}
}
