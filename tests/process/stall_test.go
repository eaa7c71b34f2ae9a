package process

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// endLimit is the time in which the program must exit after SIGTERM, even if something blocks: five seconds, and one
// more for a busy machine.
const endLimit = 6 * time.Second

// freeAddress returns a loopback address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// fill writes to a pipe until it is full.
func fill(t *testing.T, w *os.File) {
	t.Helper()
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for err := error(nil); err == nil; {
			_, err = syscall.Write(fd, make([]byte, size))
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}

// endsSoon sends SIGTERM, checks that the program exits in time, and returns the exit code.
func (r *running) endsSoon() int {
	r.t.Helper()
	begin := time.Now()
	r.signal(syscall.SIGTERM)
	code := r.ends()
	if took := time.Since(begin); took > endLimit {
		r.t.Errorf("exit after SIGTERM took %v, want at most %v", took, endLimit)
	}
	return code
}

// withholds waits until the page has only health series, with the given reason, and /health returns the status health.
// It fails if the data is still served after 7 s.
func (r *running) withholds(reason string, health int) {
	r.t.Helper()
	begin := time.Now()
	r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_unavailable{reason="`+reason+`"} 1`)
	r.wait(fmt.Sprintf("GET /health: status %d", health), func() bool {
		code, _ := r.get("/health")
		return code == health
	})
	if took := time.Since(begin); took > 7*time.Second { // a limit of 5 s, and 2 s for a busy machine
		r.t.Errorf("data was served for %v after the fault, want at most 7s", took)
	}
	page := r.scrape()
	gpus := strings.Contains(page, "\nDCGM_FI_")
	if health := strings.Contains(page, "dcgm_exporter_source_info"); gpus || !health {
		r.t.Errorf("page has GPU series: %t, health series: %t; want false and true", gpus, health)
	}
}

// Standard error is a full pipe without a reader, so the collection blocks when it logs. The last page before that must
// not be served as fresh. The pipe is full from the start, or becomes full later.
func TestStalledStandardError(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read, stderr, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			defer stderr.Close()
			address := freeAddress(t)
			scenario := write(t, "scenario.yaml", "faults: [{fault: engine-down, at: 5s, for: 1s}]\n")
			cmd := exec.Command(program, "--address="+address, "--source=sim", "-c", interval, "--sim-scenario="+scenario)
			cmd.Stderr = stderr
			if !later {
				fill(t, stderr)
			}
			r := launch(t, cmd)
			r.url = "http://" + address
			r.wait("an answer over HTTP", func() bool {
				resp, err := http.Get(r.url + "/-/healthy")
				if err == nil {
					_ = resp.Body.Close()
				}
				return err == nil
			})
			if later {
				r.collected()
				fill(t, stderr)
				r.until("dcgm_exporter_collect_success 0") // the collection logs a line
			} else { // the collection blocks at its first log line, or at the line about the fault
				r.until(`dcgm_exporter_collect_unavailable{reason="stalled"} 1`)
			}
			r.withholds("stalled", http.StatusServiceUnavailable)
			if code := r.endsSoon(); code != 4 {
				t.Errorf("exit code = %d on SIGTERM, want 4", code)
			}
		})
	}
}

// A driver call hangs, either in a read or in a reload. During a hanging read, data is withheld from the page. In both
// cases, SIGTERM ends the program with exit code 0, and the log says that a driver call was still blocked.
func TestStalledDriver(t *testing.T) {
	timed(t)
	t.Parallel()
	for name, call := range map[string]string{"read": "dcgmEntitiesGetLatestValues", "watch": "dcgmWatchFields"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, env := fakedcgm.NewFor(t, node()...)
			file, request := changingFile(t)
			r := start(t, env, "-f", file)
			r.collected()
			engine.Add("block "+call, "block dcgmGetLatestValues_v2")
			if name == "read" {
				r.withholds("timeout", http.StatusOK) // the status changes only at the hang limit
			} else {
				request("DCGM_FI_DEV_POWER_USAGE")
				r.signal(syscall.SIGHUP)
				r.wait("a call that hangs", func() bool { return engine.Blocked() > 0 })
				if code, _ := r.get("/-/healthy"); code != http.StatusOK {
					t.Errorf("/-/healthy: status %d, want 200", code)
				}
			}
			const blocked = "Driver call still blocked at shutdown"
			if code := r.endsSoon(); code != 0 || !r.logged(blocked) {
				t.Errorf("exit code = %d on SIGTERM, want 0 and the log line %q", code, blocked)
			}
		})
	}
}

// If one GPU is slow, the values of all GPUs are served until they are older than three intervals.
func TestSlowGPU(t *testing.T) {
	timed(t)
	t.Parallel()
	const healthy, slow, tooSlow = "index=3 minor=3", "index=3 minor=3 slow=1.3", "index=3 minor=3 slow=5"
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "-c", "1000")
	r.collected()
	engine.Replace(healthy, slow)
	reads := map[float64]bool{}
	r.wait("three slow reads", func() bool {
		page := r.scrape()
		if n := strings.Count(page, "\nDCGM_FI_DEV_GPU_TEMP{"); n != 8 {
			t.Fatalf("temperatures of %d GPUs, want 8", n)
		}
		if engine.Held() > 0 {
			reads[prom.Parse(t, page).Value("dcgm_exporter_collect_last_success_timestamp_seconds")] = true
		}
		return len(reads) >= 4
	})
	r.logs("Driver read timed out", 1)
	engine.Replace(slow, tooSlow)
	r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_unavailable{reason="timeout"} 1`)
	engine.Replace(tooSlow, healthy)
	r.until("dcgm_exporter_collect_success 1", `DCGM_FI_DEV_GPU_TEMP{gpu="3"`)
}

// SIGTERM ends the program while DCGM tries for five seconds to connect to an engine that is down.
func TestStopWhileAConnectBlocks(t *testing.T) {
	timed(t)
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, append(node(), "down", "connects 5")...)
	r := start(t, env, remote)
	r.wait("a connect that blocks", func() bool { return engine.Held() > 0 })
	if code := r.endsSoon(); code != 0 {
		t.Errorf("exit code = %d on SIGTERM, want 0", code)
	}
}

func TestFrozenEngineEndsTheProcess(t *testing.T) {
	t.Parallel()
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env, "--collect-hang-limit=3s")
	r.collected()
	engine.Add("block dcgmGetLatestValues_v2", "block dcgmEntitiesGetLatestValues", "block dcgmGetGpuStatus")
	r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_failures_total{reason="timeout",stage="read"}`)
	if code := r.ends(); code != 3 || !r.logged("driver call does not return") {
		t.Errorf("exit code = %d, want 3 and a log line that contains \"driver call does not return\"", code)
	}
}

// If reading a settings file or a ConfigMap hangs, SIGTERM still ends the program in time.
func TestEndWhileSettingsHang(t *testing.T) {
	t.Parallel()
	var called atomic.Bool
	silent := &apiserver.Server{Before: func(_ http.ResponseWriter, r *http.Request) bool {
		called.Store(true)
		<-r.Context().Done()
		return true
	}}
	config := silent.Start(t).Kubeconfig(t)
	for _, c := range []struct {
		name string
		args []string
		pipe string // flag that names the pipe
		code int
	}{
		{name: "counters file", args: []string{"--source=sim"}, pipe: "-f", code: 4},
		{name: "configuration file", args: []string{"--source=sim"}, pipe: "--config-file", code: 4},
		{name: "ConfigMap", args: []string{"--source=sim", "-m", "monitoring:counters"}},
		{name: "once", args: []string{"once", "--source=sim"}, pipe: "-f", code: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hangs := called.Load
			if c.pipe != "" {
				path := filepath.Join(t.TempDir(), "fifo")
				if err := syscall.Mkfifo(path, 0o600); err != nil {
					t.Fatal(err)
				}
				c.args = append(c.args, c.pipe, path)
				hangs = func() bool { // reports whether the program has opened the pipe; nothing is written to it
					w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
					if err == nil {
						t.Cleanup(func() { _ = w.Close() })
					}
					return err == nil
				}
			}
			r := begin(t, []string{"KUBECONFIG=" + config}, c.args...)
			r.wait("a blocked read", hangs)
			if code := r.endsSoon(); code != c.code {
				t.Errorf("exit code = %d on SIGTERM, want %d", code, c.code)
			}
		})
	}
}

// A request to stop can arrive as two signals. For example, timeout(1) signals the process and then its group. The exit
// code is that of a single signal.
func TestStopWithTwoSignals(t *testing.T) {
	for range 3 {
		engine, env := fakedcgm.NewFor(t, node()...)
		r := start(t, env)
		r.collected()
		r.signal(syscall.SIGINT)
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		if code := r.ends(); code != 0 {
			t.Errorf("exit code = %d, want 0", code)
		}
		nothingOpen(t, engine)
	}
}
