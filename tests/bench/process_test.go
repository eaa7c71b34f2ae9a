package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

// The node has eight time-sliced GPUs and 110 pods. Each pod has three replicas, with one process on each.
const (
	crowdGPUs     = 8
	crowdPods     = 110
	crowdReplicas = 3
)

func gpuOf(share int) int { return share % crowdGPUs }

// shuffled returns a reply that lists the pods in a new random order each time, as a kubelet may.
func shuffled(pods []*v1.PodResources) kubelet.Reply {
	return func(context.Context, *kubelet.Server) (*v1.ListPodResourcesResponse, error) {
		next := make([]*v1.PodResources, len(pods))
		for i, k := range rand.Perm(len(pods)) {
			next[i] = pods[k]
		}
		return &v1.ListPodResourcesResponse{PodResources: next}, nil
	}
}

// BenchmarkAttributionOfAProcess measures how much CPU time attribution costs in a cycle of the whole program. The
// program runs twice at the same time, with and without --kubernetes, with the NVML test library and a kubelet with 110
// pods. If the environment variable EXPORTERS is set, it lists the programs to measure instead, separated by commas.
func BenchmarkAttributionOfAProcess(b *testing.B) {
	dir := b.TempDir()
	_, err := nvml.Build(dir)
	nvml.Need(b, err)
	programs := strings.Split(os.Getenv("EXPORTERS"), ",")
	if programs[0] == "" {
		programs[0] = filepath.Join(dir, "dcgm-exporter")
		if out, err := exec.Command("go", "build", "-o", programs[0],
			"../../cmd/dcgm-exporter").CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
	}
	script := []string{fmt.Sprint("gpus ", crowdGPUs)}
	for share := range crowdPods * crowdReplicas {
		c := exec.Command("sleep", "3600")
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
		})
		script = append(script, fmt.Sprintf("process %d pid %d memory 100 busy 1 at 1", gpuOf(share), c.Process.Pid))
	}
	world := nvml.NewWorld(b, append(script, "static")...)
	pods := make([]*v1.PodResources, crowdPods)
	for i := range pods {
		var devices []string
		for r := range crowdReplicas {
			share := i*crowdReplicas + r
			devices = append(devices, fmt.Sprintf("nvidia%d/vgpu%d", gpuOf(share), share/crowdGPUs))
		}
		pods[i] = kubelet.Pod(fmt.Sprint("research/worker-", i),
			kubelet.Container("main", "nvidia.com/gpu", devices...))
	}
	s := kubelet.Start(b, shuffled(pods))

	type running struct {
		name    string
		process *os.Process
	}
	var all []running
	begin := func(name, program string, args ...string) {
		c := exec.Command(program, append([]string{"--source=nvml", "--address=127.0.0.1:0", "-c", "100",
			"--collectors", "../../etc/default-counters.csv"}, args...)...)
		c.Env = append(append(os.Environ(), world.Env()...), "LD_LIBRARY_PATH="+dir, "GOMAXPROCS=2")
		var said bytes.Buffer
		c.Stderr = &said
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			c.Process.Kill()
			c.Wait()
			if b.Failed() {
				b.Logf("%s:\n%s", name, &said)
			}
		})
		all = append(all, running{name, c.Process})
	}
	for _, program := range programs {
		begin(filepath.Base(program)+"-bare", program)
		begin(filepath.Base(program)+"-pods", program, "--kubernetes", "--pod-resources-kubelet-socket", s.Socket())
	}
	const cycles = 300 // number of cycles of each program; each cycle queries the kubelet once
	await := func(lists int) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for until := s.Lists() + lists*len(programs); s.Lists() < until; {
			select {
			case <-tick.C:
			case <-b.Context().Done():
				b.Fatalf("the benchmark ended before the programs queried the kubelet %d times", lists*len(programs))
			}
		}
	}
	for b.Loop() {
		await(30) // until every program has run some cycles
	}
	before := make([]time.Duration, len(all))
	for i := range all {
		before[i] = cpu(b, all[i].process.Pid)
	}
	for i := range all {
		if before[i] == 0 {
			b.Fatalf("%s has used no CPU time, want some: it may not be running", all[i].name)
		}
	}
	lists, at := s.Lists(), time.Now()
	await(cycles)
	took := time.Since(at)
	for i := range all {
		used := cpu(b, all[i].process.Pid) - before[i]
		b.ReportMetric(float64(used.Microseconds())/1000/(float64(took)/float64(100*time.Millisecond)),
			all[i].name+"-cpu-ms/cycle")
	}
	b.ReportMetric(float64(s.Lists()-lists)/float64(len(programs)), "lists")
}

// cpu returns the CPU time that a process has used.
func cpu(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int64
	for _, f := range fields[14-3 : 14-3+2] { // utime and stime in clock ticks (proc_pid_stat(5))
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
