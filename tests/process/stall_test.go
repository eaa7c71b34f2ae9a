package process

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endLimit is what the documentation promises: SIGTERM ends the process within
// five seconds. The rest is for a busy machine.
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

// fullPipe returns the writing end of a pipe that has no room left, and that is
// never drained.
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

// startDetached starts the program with its output where the test wants it, and
// does not wait for it.
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

// endsSoon waits for the end that SIGTERM asks for.
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

// Standard error is a pipe that is never drained: the page goes on, the lines
// that were dropped are counted, and SIGTERM ends the process.
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
