package process

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// node returns a script of eight GPUs. The last one has a MIG instance.
func node() []string {
	lines := []string{
		"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06",
		"value any:* 100-999 int 40", "value any:* 1000-1100 double 0.5", "value any:* 1 text 570.124.06",
	}
	for g := range 8 {
		const form = "gpu %d uuid=GPU-%08d name=NVIDIA_H100 bus=00000000:%02X:00.0 index=%d minor=%d prof=%s"
		lines = append(lines, fmt.Sprintf(form, g, g, 0x1b+g, g, g, "1001,1004,1005,1009,1010"))
	}
	return append(lines, "instance 50 gpu=7 nvml=9 profile=1g.10gb")
}

const remote = "--remote-hostengine-info=10.0.0.9:5555"

// nothingOpen checks that the exporter has left no handle of the engine open.
func nothingOpen(t *testing.T, engine *fakedcgm.Engine) {
	t.Helper()
	for kind, n := range engine.Open() {
		if n != 0 {
			t.Errorf("handles of kind %s open after exit = %d, want 0", kind, n)
		}
	}
}

// One GPU is lost when the program starts, when it reloads, and later while it runs. Each time, it is reported as lost
// and the other seven are served. After its return it is served again, including its profiling fields. After a restart
// of the engine, all GPUs are served again. The program leaves no handle open when it exits.
func TestOverDCGM(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"embedded": nil, "remote": {remote}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, env := fakedcgm.NewFor(t, node()...)
			const healthy, lost = "index=3 minor=3", "index=3 minor=3 status=lost"
			engine.Replace(healthy, lost)
			r := start(t, env, append(args, "--web-enable-lifecycle")...)
			seven := func() {
				t.Helper()
				page := r.until(`dcgm_exporter_entity_up{gpu="3",UUID="GPU-00000003",reason="lost"} 0`,
					`DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="5"`)
				three := strings.Contains(page, `DCGM_FI_DEV_GPU_TEMP{gpu="3"`)
				if n := strings.Count(page, "\nDCGM_FI_DEV_GPU_TEMP{"); three || n != 7 {
					t.Errorf("temperatures = %d, one of them of GPU 3: %t; want 7 and false:\n%s", n, three, page)
				}
			}
			seven()
			r.reloads()
			seven()
			engine.Replace(lost, healthy)
			r.until(`DCGM_FI_DEV_GPU_TEMP{gpu="3"`, `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="3"`,
				`GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"`,
				`dcgm_exporter_source_info{driver="570.124.06",library="4.6.1",source="dcgm"} 1`)
			engine.Replace(healthy, lost)
			seven()

			engine.Restart()
			r.until(`dcgm_exporter_sessions_total{cause="lost"} 1`, `DCGM_FI_DEV_GPU_TEMP{gpu="7"`)
			r.stops()
			nothingOpen(t, engine)
		})
	}
}

// Every command that opens the engine on a healthy machine succeeds and closes it cleanly.
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
			r := begin(t, env, args...)
			if code := r.ends(); code != 0 {
				t.Errorf("exit code = %d, want 0", code)
			}
			nothingOpen(t, engine)
		})
	}
}

// If the engine restarts in another version, which reports the utilization in another unit, the page keeps its unit.
// The log has one warning for each change of the version.
func TestEngineOfAnotherVersion(t *testing.T) {
	t.Parallel()
	const inPercent, asRatio = "value gpu:* 203 int 40", "value gpu:* 203 double 0.4"
	engine, env := fakedcgm.NewFor(t, append(node(), inPercent)...)
	r := start(t, env, remote)
	r.matching(`DCGM_FI_DEV_GPU_UTIL\{gpu="7".*\} 40`)
	for i, change := range [][4]string{
		{"engine 4.6.1", "engine 4.7.0", inPercent, asRatio},
		{"engine 4.7.0", "engine 4.5.2", asRatio, inPercent},
	} {
		engine.Replace(change[0], change[1])
		engine.Replace(change[2], change[3])
		engine.Restart()
		sessions := fmt.Sprintf(`dcgm_exporter_sessions_total{cause="lost"} %d`, i+1)
		page := r.until(sessions, `DCGM_FI_DEV_GPU_UTIL{gpu="7"`)
		for key, v := range prom.Parse(t, page).By("DCGM_FI_DEV_GPU_UTIL", "gpu") {
			if v != 40 {
				t.Errorf("%s: GPU %s: utilization = %v, want 40", change[1], key, v)
			}
		}
	}
	r.logs("have different versions", 2)
}

// Each XID is counted once, even in a storm of XIDs and reloads. The engine repeats its history to each session, and
// also reports XIDs that are in the kernel log. While that is read, XIDs come only from it. XID_STORM=1 runs a
// full-size storm.
func TestXIDsInAStormOverReloads(t *testing.T) {
	t.Parallel()
	const gpus, apart = 4, 10 * time.Millisecond
	xids, betweenReloads := 240, 48
	if os.Getenv("XID_STORM") != "" {
		xids, betweenReloads = 2500, 125
	}
	counted := func(p page) (sum float64) {
		for key, n := range p.By("DCGM_EXP_XID_ERRORS_TOTAL", "xid", "gpu") {
			if strings.HasPrefix(key, "62/") {
				sum += n
			}
		}
		return sum
	}
	for name, begin := range map[string]func(t *testing.T, file string) (r *running, happens func(n int)){
		"engine": func(t *testing.T, file string) (*running, func(int)) {
			engine, env := fakedcgm.NewFor(t, node()...)
			r := start(t, env, "-f", file)
			r.until("\nDCGM_EXP_XID_ERRORS_TOTAL{")
			return r, func(n int) { engine.Add(fmt.Sprintf("event %d gpu:%d 230 62", n+1, n%gpus)) }
		},
		"kernel's log": func(t *testing.T, file string) (*running, func(int)) {
			each := strings.TrimSuffix(strings.Repeat("62, ", xids/gpus), ", ")
			// late enough that even a slow process reads the log by then: earlier XIDs are not counted
			const form = `fault: xid, at: 6s, devices: ["0", "1", "2", "3"], apart: %v, xids: [%s]`
			r := simulate(t, "h100x8", []string{
				fmt.Sprintf(form, gpus*apart, each), `fault: gpu-lost, at: 5s, devices: ["5"]`,
				`fault: xid, at: 6s, devices: ["4"], xids: [62], reported-by: [engine]`,
				`fault: xid, at: 6s, devices: ["5"], xids: [79], reported-by: [kernel]`,
			}, "-f", file, "--xid-kernel-log=/dev/kmsg")
			r.sees("the XID of the lost GPU", func(p page) bool {
				lost := p.By("DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "xid")["5/79"] == 1
				return lost && p.Value("dcgm_exporter_kernel_log_up") == 1
			})
			return r, func(int) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, request := changingFile(t)
			change := func(n int) {
				fields := []string{"DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"}
				request(fields[:2+n%2]...)
			}
			change(0)
			r, happens := begin(t, file)
			reloads := 0
			reload := func() {
				reloads++
				change(reloads)
				r.signal(syscall.SIGHUP)
			}
			// at least: the file watcher may trigger reloads in addition to the signals
			reloaded := func(p page) bool {
				return p.By("dcgm_exporter_sessions_total", "cause")["reload"] >= float64(reloads)
			}
			tick := time.NewTicker(apart)
			defer tick.Stop()
			for n := range xids {
				<-tick.C
				happens(n)
				if n%betweenReloads == 0 {
					r.sees("the previous reload", reloaded) // signals that arrive during a reload may be merged
					reload()
				}
			}
			p := r.sees("every XID and reload", func(p page) bool { return counted(p) >= float64(xids) && reloaded(p) })
			if n := counted(prom.Parse(t, r.scrape())); n != float64(xids) {
				t.Errorf("XIDs counted = %v, want %d", n, xids)
			}
			t.Logf("%v XIDs counted of %d, over %d reloads", counted(p), xids, reloads)
		})
	}
}

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
