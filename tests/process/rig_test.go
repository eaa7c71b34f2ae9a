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
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
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

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "dcgm-exporter")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "dcgm-exporter")
	build := exec.Command("go", "build", "-o", program, fmt.Sprint("-race=", raced()), root+"/cmd/dcgm-exporter")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
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

// running is a started program. log is what it has written to standard error.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	ended chan struct{} // closed when the program exits

	mu   sync.Mutex
	log  strings.Builder
	last string // last page scraped
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *running) logged() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// begin starts the program without KUBERNETES_SERVICE_HOST, as outside a pod. If the program still runs at the end of
// the test, it is killed.
func begin(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = slices.Concat(os.Environ(), []string{"KUBERNETES_SERVICE_HOST="}, env)
	r := &running{t: t, cmd: cmd}
	cmd.Stderr = r
	r.start()
	return r
}

func (r *running) start() {
	r.t.Helper()
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.ended = make(chan struct{})
	go func() {
		defer close(r.ended)
		_ = r.cmd.Wait() // ProcessState has the details
	}()
	r.t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		<-r.ended
		if strings.Contains(r.logged(), "WARNING: DATA RACE") {
			r.t.Error("data race reported")
		}
		if r.t.Failed() {
			r.t.Logf("log:\n%s\nlast page:\n%s", r.logged(), r.last)
		}
	})
}

var listening = regexp.MustCompile(`msg=Listening address=(\S+)`)

// serve runs the program and waits until it listens.
func serve(t *testing.T, env []string, args ...string) *running {
	t.Helper()
	r := begin(t, env, append([]string{"--address=127.0.0.1:0"}, args...)...)
	r.listens()
	return r
}

// listens waits until the program listens, and sets the URL.
func (r *running) listens() {
	r.t.Helper()
	r.wait("a log line with the address", func() bool {
		m := listening.FindStringSubmatch(r.logged())
		if m != nil {
			r.url = "http://" + strings.Replace(m[1], "[::]", "127.0.0.1", 1)
		}
		return m != nil
	})
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
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
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

// get returns the status, headers and body of a path.
func (r *running) get(path string) (int, http.Header, string) {
	r.t.Helper()
	return r.do(http.MethodGet, path)
}

func (r *running) do(method, path string) (int, http.Header, string) {
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
	return resp.StatusCode, resp.Header, string(body)
}

func (r *running) scrape() string {
	r.t.Helper()
	code, _, text := r.get("/metrics")
	if r.last = text; code != http.StatusOK {
		r.t.Fatalf("GET /metrics: status %d, want 200", code)
	}
	return text
}

// until scrapes until the page contains all of the texts, and returns the page.
func (r *running) until(wanted ...string) string {
	r.t.Helper()
	r.wait(strings.Join(wanted, " and "), func() bool {
		page := r.scrape()
		return !slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(page, w) })
	})
	return r.last
}

// matching scrapes until each pattern matches a line of the page, and returns the page.
func (r *running) matching(patterns ...string) string {
	r.t.Helper()
	r.wait(strings.Join(patterns, " and "), func() bool {
		page := r.scrape()
		return !slices.ContainsFunc(patterns, func(p string) bool {
			return !regexp.MustCompile("(?m)^" + p + "$").MatchString(page)
		})
	})
	return r.last
}

// sees scrapes until the function wanted returns true for the page, and returns the page.
func (r *running) sees(what string, wanted func(page) bool) page {
	r.t.Helper()
	var p page
	r.wait(what, func() bool {
		p = parse(r.t, r.scrape())
		return wanted(p)
	})
	return p
}

// collected waits for the first page with data.
func (r *running) collected() page {
	r.t.Helper()
	return r.sees("a first cycle", func(p page) bool { return p.value("dcgm_exporter_collect_success") == 1 })
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
	if code, _, body := r.do(http.MethodPost, "/-/reload"); code != http.StatusOK {
		r.t.Errorf("POST /-/reload: status %d, want 200; body: %s", code, body)
	}
}

// logsOnce waits for a log line with a text, and checks that there is only one.
func (r *running) logsOnce(text string) {
	r.t.Helper()
	r.wait("a log line with "+text, func() bool { return strings.Contains(r.logged(), text) })
	if n := strings.Count(r.logged(), text); n != 1 {
		r.t.Errorf("log lines with %q = %d, want 1", text, n)
	}
}

// A page is a parsed scrape.
type page map[string]*dto.MetricFamily

func parse(t *testing.T, text string) page {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("cannot parse the page: %v\n%s", err, text)
	}
	return families
}

// series returns the values of a family. The keys are the values of the labels, joined with slashes.
func (p page) series(family string, labels ...string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range p[family].GetMetric() {
		key := make([]string, len(labels))
		for i, name := range labels {
			for _, l := range m.Label {
				if l.GetName() == name {
					key[i] = l.GetValue()
				}
			}
		}
		out[strings.Join(key, "/")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
	}
	return out
}

// value returns the value of a family that has one series, or -1 if it has none.
func (p page) value(family string) float64 {
	for _, v := range p.series(family) {
		return v
	}
	return -1
}
