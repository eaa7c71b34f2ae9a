package process

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// endLimit is what the documentation promises: SIGTERM ends the process within five seconds. The
// rest is for a busy machine.
const endLimit = 5*time.Second + 2*time.Second

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

// fullPipe returns the writing end of a pipe that has no room left, and that is never drained.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Close()
		_ = w.Close()
	})
	fd := int(w.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = syscall.Write(fd, make([]byte, size))
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return w
}

// startDetached starts the program with its output where the test wants it, and does not wait for
// it.
func startDetached(t *testing.T, stderr *os.File, args ...string) *running {
	t.Helper()
	address := freeAddress(t)
	r := &running{t: t, exit: make(chan error, 1), url: "http://" + address}
	r.cmd = exec.Command(program, append([]string{"--address=" + address}, args...)...)
	r.cmd.Env = os.Environ()
	r.cmd.Stderr = stderr
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.exit <- r.cmd.Wait() }()
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

// answers waits until the program serves HTTP.
func (r *running) answers() {
	r.t.Helper()
	until(r.t, "an answer over HTTP", func() bool {
		resp, err := http.Get(r.url + "/-/healthy")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return true
	})
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

// Standard error is a pipe that is never drained: the page goes on, the lines that were dropped are
// counted, and SIGTERM ends the process.
func TestStalledStandardError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "counters.csv")
	lines := strings.Repeat("NO_SUCH_FIELD, gauge, a line that is warned of\n", 150)
	if err := os.WriteFile(file, []byte(lines+"DCGM_FI_DEV_GPU_TEMP, gauge, T\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startDetached(t, fullPipe(t), "--source=sim", "-c", "200", "-f", file)
	r.answers()
	const cycle = "dcgm_exporter_collect_last_success_timestamp_seconds "
	page := r.until("dcgm_exporter_collect_success 1")
	first := value(t, page, cycle)
	until(t, "further cycles", func() bool {
		_, page := r.get("/metrics")
		return value(t, page, cycle) > first+1
	})
	until(t, "lines that are dropped", func() bool {
		r.signal(syscall.SIGHUP) // warns of the same lines
		_, page := r.get("/metrics")
		return value(t, page, "dcgm_exporter_log_lines_dropped_total ") > 100
	})
	if code, body := r.get("/health"); code != http.StatusOK {
		t.Errorf("/health: %d %s", code, body)
	}
	if code := r.endsSoon(); code != 0 {
		t.Errorf("exit code %d on SIGTERM", code)
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
		{name: "counters file", args: []string{"--source=sim"}, pipe: "-f"},
		{name: "configuration file", args: []string{"--source=sim"}, pipe: "--config-file"},
		{name: "web configuration", args: []string{"--source=sim"}, pipe: "--web-config-file"},
		{name: "ConfigMap", args: []string{"--source=sim", "-m", "monitoring:counters"}},
		{name: "once", args: []string{"once", "--source=sim"}, pipe: "-f", code: 2},
		{name: "check", args: []string{"check"}, pipe: "--config-file", code: 2},
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

// A file that becomes one that hangs is a reload that fails, with a word why; the page goes on.
func TestReloadOfAFileThatHangs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "counters.csv")
	if err := os.WriteFile(file, []byte("DCGM_FI_DEV_GPU_TEMP, gauge, T\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := start(t, nil, "--source=sim", "-f", file)
	r.until("\nDCGM_FI_DEV_GPU_TEMP{")
	if err := os.Rename(fifo(t), file); err != nil {
		t.Fatal(err)
	}
	r.until("dcgm_exporter_config_last_reload_successful 0", "dcgm_exporter_collect_success 1", "\nDCGM_FI_DEV_GPU_TEMP{")
	if !strings.Contains(r.said(), "a pipe without a writer, or a file system that hangs") {
		t.Errorf("the log does not say why:\n%s", r.said())
	}
	if code := r.endsSoon(); code != 0 {
		t.Errorf("exit code %d on SIGTERM", code)
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

// A second SIGTERM ends what the first one waits for.
func TestSecondSIGTERM(t *testing.T) {
	engine, env := fakedcgm.NewFor(t, node()...)
	r := start(t, env)
	r.until("dcgm_exporter_collect_success 1")
	engine.Add("block dcgmUnwatchFields")
	r.signal(syscall.SIGTERM)
	until(t, "a close that hangs", func() bool { return engine.Blocked() > 0 })
	begin := time.Now()
	r.signal(syscall.SIGTERM)
	if code := r.ends(); code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
	if took := time.Since(begin); took > 3*time.Second { // the driver is given four
		t.Errorf("it took %v", took)
	}
}
