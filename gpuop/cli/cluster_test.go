package cli

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

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
