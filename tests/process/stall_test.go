package process

import (
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

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// endLimit is within how long SIGTERM ends the process, whatever blocks: five seconds, and one for a
// busy machine.
const endLimit = 6 * time.Second

// freeAddress returns an address of loopback that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// fill writes into a pipe until it has no room left.
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

// startDetached starts the program with a pipe as standard error that is never drained, or is full from the start, and
// waits until it answers.
func startDetached(t *testing.T, full bool, args ...string) (r *running, stderr *os.File) {
	t.Helper()
	read, stderr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if full {
		fill(t, stderr)
	}
	address := freeAddress(t)
	r = &running{t: t, exit: make(chan error, 1), url: "http://" + address}
	r.cmd = exec.Command(program, append([]string{"--address=" + address}, args...)...)
	r.cmd.Env = os.Environ()
	r.cmd.Stderr = stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.exit <- r.cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		_ = read.Close()
		_ = stderr.Close()
	})
	until(t, "an answer over HTTP", func() bool {
		resp, err := http.Get(r.url + "/-/healthy")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return true
	})
	return r, stderr
}

// endsSoon waits for the end that SIGTERM requests.
func (r *running) endsSoon() int {
	r.t.Helper()
	begin := time.Now()
	r.signal(syscall.SIGTERM)
	code := r.ends()
	if took := time.Since(begin); took > endLimit {
		r.t.Errorf("SIGTERM took %v, at most %v expected", took, endLimit)
	}
	return code
}

// withholds waits until the page has health series alone and /health says 503, and checks that this
// takes no longer than a page of an interval of 200 ms may be served.
func (r *running) withholds(reason string) {
	r.t.Helper()
	begin := time.Now()
	r.until("dcgm_exporter_collect_success 0", `dcgm_exporter_collect_unavailable{reason="`+reason+`"} 1`)
	until(r.t, "503 of /health", func() bool {
		code, _ := r.get("/health")
		return code == http.StatusServiceUnavailable
	})
	if took := time.Since(begin); took > 7*time.Second { // the limit is 5 s
		r.t.Errorf("data was served for %v", took)
	}
	if _, page := r.get("/metrics"); strings.Contains(page, "\nDCGM_FI_") || !strings.Contains(page, "dcgm_exporter_source_info") {
		r.t.Errorf("not the health series alone:\n%s", page)
	}
}

// Standard error is a pipe that nobody drains any more: the collection stops when it has a word to
// say, and its latest page is not served as a fresh one.
func TestStalledStandardError(t *testing.T) {
	t.Parallel()
	scenario := filepath.Join(t.TempDir(), "scenario.yaml")
	if err := os.WriteFile(scenario, []byte("faults: [{fault: engine-down, at: 5s, for: 1s}]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r, stderr := startDetached(t, false, "--source=sim", "-c", "200", "-f", "../../etc/default-counters.csv", "--sim-scenario="+scenario)
	r.until("dcgm_exporter_collect_success 1")
	fill(t, stderr)
	r.until("dcgm_exporter_collect_success 0") // a line of the log
	r.withholds("stalled")
	if code := r.endsSoon(); code != 4 {
		t.Errorf("exit code %d on SIGTERM, want 4", code)
	}
}

// Standard error is full from the start: the process serves all the same, until the collection has waited for its first
// line for too long.
func TestStandardErrorThatIsFullFromTheStart(t *testing.T) {
	t.Parallel()
	r, _ := startDetached(t, true, "--source=sim", "-c", "200", "-f", "../../etc/default-counters.csv")
	r.withholds("stalled")
	if code := r.endsSoon(); code != 4 {
		t.Errorf("exit code %d on SIGTERM, want 4", code)
	}
}

// A driver call that does not return withholds the page's data, and does not keep the process from
// ending.
func TestStalledDriver(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]string{"read": "dcgmEntitiesGetLatestValues", "watch": "dcgmWatchFields"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, env := fakedcgm.NewFor(t, node()...)
			file, request := changingFile(t)
			r := start(t, env, "-f", file)
			r.until("dcgm_exporter_collect_success 1")
			engine.Add("block "+call, "block dcgmGetLatestValues_v2")
			if name == "read" {
				r.withholds("timeout")
			} else {
				request("DCGM_FI_DEV_POWER_USAGE")
				until(t, "a call that hangs", func() bool { return engine.Blocked() > 0 })
			}
			if code := r.endsSoon(); code != 0 || !strings.Contains(r.said(), "A driver call has not returned") {
				t.Errorf("exit code %d on SIGTERM, want 0 and a word why", code)
			}
		})
	}
}

// fifo returns the path of a pipe that is never written to.
func fifo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// silentServer returns the address of a server that takes connections and never answers, and
// reports whether one came.
func silentServer(t *testing.T) (address string, called func() bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			defer c.Close() // with the test
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String(), func() bool { return calls.Load() > 0 }
}

// awaitReader waits until a pipe has a reader, and keeps it waiting for content.
func awaitReader(t *testing.T, path string) {
	t.Helper()
	until(t, "a reader of the pipe", func() bool {
		w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = w.Close() })
		return true
	})
}

// Settings that cannot be read do not keep the process from ending.
func TestEndWhileSettingsHang(t *testing.T) {
	t.Parallel()
	address, called := silentServer(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"http://%s"}}]}`, address)
	if err := os.WriteFile(kubeconfig, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		pipe string // the flag that names it
		code int
	}{
		{name: "counters file", args: []string{"--source=sim"}, pipe: "-f", code: 4},
		{name: "configuration file", args: []string{"--source=sim"}, pipe: "--config-file", code: 4},
		{name: "ConfigMap", args: []string{"--source=sim", "-m", "monitoring:counters"}},
		{name: "once", args: []string{"once", "--source=sim"}, pipe: "-f", code: 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wait := func() { until(t, "a request", called) }
			if c.pipe != "" {
				path := fifo(t)
				c.args = append(c.args, c.pipe, path)
				wait = func() { awaitReader(t, path) }
			}
			r := &running{t: t, exit: make(chan error, 1), cmd: exec.Command(program, c.args...)}
			r.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
			if err := r.cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.cmd.Process.Kill() })
			go func() { r.exit <- r.cmd.Wait() }()
			wait()
			if code := r.endsSoon(); code != c.code {
				t.Errorf("exit code %d on SIGTERM, want %d", code, c.code)
			}
		})
	}
}

// One stop may come as two signals, as from timeout(1), which signals the process and then its group:
// it ends as with one.
func TestOneStopInTwoSignals(t *testing.T) {
	for range 3 {
		engine, env := fakedcgm.NewFor(t, node()...)
		r := start(t, env)
		r.until("dcgm_exporter_collect_success 1")
		r.signal(syscall.SIGINT)
		r.signal(syscall.SIGTERM)
		if code := r.ends(); code != 0 {
			t.Errorf("exit code %d, want 0", code)
		}
		for what, n := range engine.Open() {
			if n != 0 {
				t.Errorf("open at the end: %d %s", n, what)
			}
		}
	}
}
