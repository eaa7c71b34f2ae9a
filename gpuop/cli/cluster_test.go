package cli

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

const recorded = "../judge/testdata/healthy"

// Each kind in a large cluster is listed only once, in pages. BenchmarkCluster measures the time and memory.
func TestLargeClusterIsListedOnceInPages(t *testing.T) {
	const nodes = 600
	for _, command := range []string{"preflight", "verify"} {
		t.Run(command, func(t *testing.T) {
			s := (&apiserver.Server{}).Fleet(t, recorded, nodes).Start(t)
			code, out, errOut := call("", command, "--kubeconfig", s.Kubeconfig(t), "--fail-on", "never")
			if code != 0 || !strings.Contains(out, " passed") {
				t.Fatalf("exit %d, want 0 and passed checks\n%s%s", code, out, errOut)
			}
			lists, pages := s.Lists()
			for path, n := range lists {
				if n != 1 {
					t.Errorf("%s was listed %d times, want once", path, n)
				}
			}
			if got := pages["/api/v1/nodes"]; got != 2 {
				t.Errorf("pages of nodes = %d, want 2", got)
			}
			if got, want := pages["/api/v1/pods"], (s.Count["/api/v1/pods"]+499)/500; got != want {
				t.Errorf("pages of pods = %d, want %d", got, want)
			}
			for _, r := range s.Requests() {
				if !strings.HasPrefix(r, "GET ") || r != "GET /version" && !strings.Contains(r, "limit=500") {
					t.Errorf("request = %s, want GET and limit=500", r)
				}
			}
		})
	}
}

// If the API server fails between two pages, the report contains what was read and a finding about the rest.
func TestServerThatDiesBetweenPages(t *testing.T) {
	var dead atomic.Bool
	s := &apiserver.Server{Before: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") != "" {
			dead.Store(true)
		}
		if dead.Load() {
			panic(http.ErrAbortHandler)
		}
		return false
	}}
	s.Fleet(t, recorded, 100).Start(t) // the nodes fit in one page, and their pods in three
	code, out, errOut := call("", "preflight", "--kubeconfig", s.Kubeconfig(t))
	if code != exitFindings || errOut != "" || !strings.Contains(out, "warning: list pods") || !strings.Contains(out, "warning: list resourcequotas") || !strings.Contains(out, " passed") {
		t.Errorf("exit %d, want 1, passed checks and warnings about pods and resourcequotas\n%s%s", code, out, errOut)
	}
}

// BenchmarkCluster measures gpuop from start to exit, with a cluster of 5,000 GPU nodes. The API server runs in this
// process, and sends nodes and pods as protobuf, like kube-apiserver. The wall time includes the server; cpu-s includes
// only the user and system time of gpuop.
func BenchmarkCluster(b *testing.B) {
	const nodes = 5000
	program := filepath.Join(b.TempDir(), "gpuop")
	build := exec.Command("go", "build", "-o", program, "..")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, command := range []string{"preflight", "verify"} {
		b.Run(command, func(b *testing.B) {
			s := (&apiserver.Server{}).Fleet(b, recorded, nodes).Start(b)
			kubeconfig := s.Kubeconfig(b)
			resident, cpu, runs := 0.0, 0.0, 0.0
			for b.Loop() {
				run := exec.Command(program, command, "--kubeconfig", kubeconfig, "--fail-on", "never")
				out, err := run.CombinedOutput()
				if err != nil {
					b.Fatalf("%v\n%.2000s", err, out)
				}
				if n := passed(out); n < nodes {
					b.Fatalf("passed checks = %d, want at least one for each of %d nodes\n%.2000s", n, nodes, out)
				}
				usage, ok := run.ProcessState.SysUsage().(*syscall.Rusage)
				if !ok {
					b.Fatal("no resource usage")
				}
				runs++
				cpu += (run.ProcessState.UserTime() + run.ProcessState.SystemTime()).Seconds()
				resident = max(resident, float64(usage.Maxrss)/1024)
			}
			b.ReportMetric(resident, "MiB-resident")
			b.ReportMetric(cpu/runs, "cpu-s")
			b.ReportMetric(float64(s.Count["/api/v1/pods"]), "pods")
		})
	}
}

// passed returns the number of passed checks in the last line of a report, or 0 if the line has none.
func passed(report []byte) int {
	m := regexp.MustCompile(`(\d+) passed\n$`).FindSubmatch(report)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1])) // the pattern matches only digits
	return n
}
