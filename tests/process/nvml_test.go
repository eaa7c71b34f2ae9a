package process

import (
	"fmt"
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
// reason, and everything else is served. The driver is installed after the start. The program leaves no handle open
// when it exits.
func TestNVMLFaults(t *testing.T) {
	t.Parallel()
	world := fakenvml.NewFor(t, "gpus 2")
	folder := t.TempDir()
	r, file := overNVML(t, world, folder)
	r.matching(`dcgm_exporter_collect_success 0`, failures("unavailable", "open"))
	_, err := fakenvml.Build(folder) // a driver installed after the start is used
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
