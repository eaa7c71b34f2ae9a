package process

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/exporter"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const (
	root = "../.."

	// patience bounds every wait. It is generous on purpose: no test measures speed with it.
	patience = 60 * time.Second

	// parallelTests is the number of tests that run at the same time. It does not depend on the number of cores,
	// because tests mostly wait for a program.
	parallelTests = "8"

	// interval is the collection interval in milliseconds. Samples become stale after three intervals.
	interval = "200"
)

var program string

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		panic(err)
	}
	os.Exit(folder.Run(m, "process", func(dir string) error {
		program = filepath.Join(dir, "dcgm-exporter")
		build := exec.Command("go", "build", "-o", program, fmt.Sprint("-race=", raced()), root+"/cmd/dcgm-exporter")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build: %w\n%s", err, out)
		}
		return nil
	}))
}

// raced reports whether the race detector is enabled in this test and the program.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// timed skips tests of response times if the race detector is enabled. The program is then about ten times slower.
func timed(t *testing.T) {
	t.Helper()
	if raced() {
		t.Skip("SKIP race-detector: response times are not tested with the race detector")
	}
}

// running is a started program.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	log   exporter.Log  // output so far
	ended chan struct{} // closed when the program exits
	last  string        // last page scraped
}

// launch starts a program. If it still runs at the end of the test, it is killed. Its output is logged unless cmd has
// another standard error.
func launch(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r := &running{t: t, cmd: cmd, ended: make(chan struct{})}
	if cmd.Stderr == nil {
		cmd.Stdout, cmd.Stderr = &r.log, &r.log
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		_ = cmd.Wait() // ProcessState has the details
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-r.ended
		if r.logged("WARNING: DATA RACE") {
			t.Error("data race reported")
		}
		if t.Failed() {
			t.Logf("log:\n%s\nlast page:\n%s", &r.log, r.last)
		}
	})
	return r
}

// logged reports whether the program has logged a text.
func (r *running) logged(text string) bool { return strings.Contains(r.log.String(), text) }

// begin launches the exporter without KUBERNETES_SERVICE_HOST, as outside a pod.
func begin(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = slices.Concat(os.Environ(), []string{"KUBERNETES_SERVICE_HOST="}, env)
	return launch(t, cmd)
}

var listening = regexp.MustCompile(`msg=Listening address=(\S+)`)

// listens waits until the program listens, sets the URL and returns r.
func (r *running) listens() *running {
	r.t.Helper()
	r.wait("a log line with the address", func() bool {
		m := listening.FindStringSubmatch(r.log.String())
		if m != nil {
			r.url = "http://" + strings.Replace(m[1], "[::]", "127.0.0.1", 1)
		}
		return m != nil
	})
	return r
}

// serve runs the exporter and waits until it listens.
func serve(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	return begin(t, env, append([]string{"--address=127.0.0.1:0"}, args...)...).listens()
}

// start is like serve, with the default counters file and a short interval.
func start(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	return serve(t, env, append([]string{"-c", interval, "-f", root + "/etc/default-counters.csv"}, args...)...)
}

// simulate is like start, with a simulated node and its faults.
func simulate(t *testing.T, node string, faults []string, args ...string) *running {
	t.Helper()
	all := []string{"--source=sim", "--sim-node=" + node}
	if len(faults) > 0 {
		scenario := "faults:\n  - {" + strings.Join(faults, "}\n  - {") + "}\n"
		all = append(all, "--sim-scenario="+write(t, "scenario.yaml", scenario))
	}
	return start(t, nil, append(all, args...)...)
}

// write creates a file in a temporary folder and returns its path.
func write(t *testing.T, name, content string) string {
	t.Helper()
	return filepath.Join(folder.Of(t, map[string]string{name: content}), name)
}

// replace replaces the content of a file atomically.
func replace(t *testing.T, path, content string) {
	t.Helper()
	if err := os.Rename(write(t, "next", content), path); err != nil {
		t.Fatal(err)
	}
}

// changingFile creates a counters file. The function request changes the fields in it.
func changingFile(t *testing.T) (path string, request func(fields ...string)) {
	t.Helper()
	lines := func(fields []string) string { return strings.Join(fields, ", gauge, H\n") + ", gauge, H\n" }
	path = write(t, "counters.csv", lines([]string{"DCGM_FI_DEV_GPU_TEMP"}))
	return path, func(fields ...string) { replace(t, path, lines(fields)) }
}

// libNVML builds the NVML test library without some functions, in a new folder.
func libNVML(t *testing.T, without ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	_, err := fakenvml.Build(folder, without...)
	fakenvml.Need(t, err)
	return folder
}

// wait calls the function is until it returns true, for at most patience. The test fails if the program exits first.
func (r *running) wait(what string, is func() bool) {
	r.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-r.ended:
			r.t.Fatalf("program exited while waiting for %s", what)
		case <-deadline:
			r.t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// get returns the status and the body of a path.
func (r *running) get(path string) (int, string) {
	r.t.Helper()
	return r.do(http.MethodGet, path)
}

func (r *running) do(method, path string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	client := http.Client{Timeout: patience}
	resp, err := client.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	return resp.StatusCode, string(body)
}

func (r *running) scrape() string {
	r.t.Helper()
	code, text := r.get("/metrics")
	if r.last = text; code != http.StatusOK {
		r.t.Fatalf("GET /metrics: status %d, want 200", code)
	}
	return text
}

// until scrapes until the page contains all of the texts, and returns the page.
func (r *running) until(wanted ...string) string {
	r.t.Helper()
	return r.shows(wanted, strings.Contains)
}

// matching scrapes until each pattern matches a line of the page, and returns the page.
func (r *running) matching(patterns ...string) string {
	r.t.Helper()
	return r.shows(patterns, func(page, pattern string) bool {
		return regexp.MustCompile("(?m)^" + pattern + "$").MatchString(page)
	})
}

// shows scrapes until has returns true for the page and each of the wanted texts, and returns the page.
func (r *running) shows(wanted []string, has func(page, text string) bool) string {
	r.t.Helper()
	r.wait(strings.Join(wanted, " and "), func() bool {
		page := r.scrape()
		return !slices.ContainsFunc(wanted, func(text string) bool { return !has(page, text) })
	})
	return r.last
}

// sees scrapes until the function wanted returns true for the page, and returns the page.
func (r *running) sees(what string, wanted func(page) bool) page {
	r.t.Helper()
	var p page
	r.wait(what, func() bool {
		p = prom.Parse(r.t, r.scrape())
		return wanted(p)
	})
	return p
}

// collected waits for the first page with data.
func (r *running) collected() page {
	r.t.Helper()
	return r.sees("a first cycle", func(p page) bool { return p.Value("dcgm_exporter_collect_success") == 1 })
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// ends waits until the program exits and returns its exit code.
func (r *running) ends() int {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		r.t.Fatalf("program has not exited after %v", patience)
		return -1
	}
}

// stops sends SIGTERM and waits until the program exits with code 0.
func (r *running) stops() {
	r.t.Helper()
	r.signal(syscall.SIGTERM)
	if code := r.ends(); code != 0 {
		r.t.Errorf("exit code = %d on SIGTERM, want 0", code)
	}
}

// reloads requests a reload over HTTP, which must succeed.
func (r *running) reloads() {
	r.t.Helper()
	if code, body := r.do(http.MethodPost, "/-/reload"); code != http.StatusOK {
		r.t.Errorf("POST /-/reload: status %d, want 200; body: %s", code, body)
	}
}

// logs waits until a text is logged n times, and checks that it is not logged more often.
func (r *running) logs(text string, n int) {
	r.t.Helper()
	count := func() int { return strings.Count(r.log.String(), text) }
	r.wait(fmt.Sprintf("%d log lines with %s", n, text), func() bool { return count() >= n })
	if got := count(); got != n {
		r.t.Errorf("log lines with %q = %d, want %d", text, got, n)
	}
}

type page = prom.Page
