package cli

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

// BenchmarkCluster is what gpuop costs on 5,000 nodes with GPUs: the whole process, from its start
// to its exit, over loopback from a server in this process, which answers nodes and pods in protobuf as
// kube-apiserver does. The server takes a part of the time; cpu-s is gpuop's own, user and system.
func BenchmarkCluster(b *testing.B) {
	program := filepath.Join(b.TempDir(), "gpuop")
	build := exec.Command("go", "build", "-o", program, "..")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, command := range []string{"preflight", "verify"} {
		b.Run(command, func(b *testing.B) {
			s := (&apiserver.Server{}).Fleet(b, recorded, 5000).Start(b)
			kubeconfig := s.Kubeconfig(b)
			resident, cpu, runs := 0.0, 0.0, 0.0
			for b.Loop() {
				run := exec.Command(program, command, "--kubeconfig", kubeconfig, "--fail-on", "never")
				out, err := run.CombinedOutput()
				if err != nil || !bytes.Contains(out, []byte("4998 more nodes")) {
					b.Fatalf("%v\n%.2000s", err, out)
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
