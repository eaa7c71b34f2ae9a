package app

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

// A cluster node is GPUs with processes of batch jobs, a /proc that shows them, and the pages of an
// exporter that is configured as cfg says. It runs within a synctest bubble.
type clusterNode struct {
	t         *testing.T
	side      *side
	proc      fstest.MapFS
	on        map[int][]uint32 // row → processes
	fault     map[int]error    // row → why they cannot be read
	shown     int              // rows that the page shows
	page      string           // the latest
	requested []bool           // by the latest Read
	log       testLog

	start  func() // runs the exporter
	pages  chan string
	resume chan struct{} // lets it go on after a page: meanwhile the test may change the node
}

// testLog collects lines.
type testLog struct{ lines []string }

func (l *testLog) Write(p []byte) (int, error) {
	l.lines = append(l.lines, string(p))
	return len(p), nil
}

func gpuAt(id uint32) gpu.Device {
	return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, UUID: fmt.Sprint("GPU-", id)}
}

func startNode(t *testing.T, cfg config.HPC, devices ...gpu.Device) *clusterNode {
	t.Helper()
	n := &clusterNode{
		t: t, side: &side{topology: gpu.NewTopology(devices)}, on: map[int][]uint32{}, fault: map[int]error{}, pages: make(chan string), resume: make(chan struct{}),
		proc: fstest.MapFS{"2/stat": {Data: []byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 2 0 0 20 0 1 0 30 0 0 0 0")}},
	}
	n.side.read = func(b *gpu.Batch) error {
		n.requested = append([]bool(nil), b.RequestProcesses...)
		for row := range devices {
			b.Add(row, 0, gpu.Int(40), time.Now())
			if row >= len(b.RequestProcesses) || !b.RequestProcesses[row] {
				continue
			}
			if err := n.fault[row]; err != nil {
				b.Fail(row, gpu.FieldProcesses, err)
				continue
			}
			for _, pid := range n.on[row] {
				b.Processes = append(b.Processes, gpu.Process{Row: row, PID: pid, Time: time.Now().UnixNano()})
			}
		}
		return nil
	}
	plan := &gpu.Plan{
		Interval: time.Second,
		Fields:   []gpu.Field{{ID: 150, Name: "T", Levels: gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance), Max: 100}},
		Counters: []gpu.Counter{{Name: "T", Scale: 1}},
	}
	registry := prometheus.NewRegistry()
	s := newSources(time.Now(), registry, NewFiles(t.Context()), slog.New(slog.NewTextHandler(&n.log, nil)))
	s.pods = process.NewResolver(n.proc)
	chosen, err := s.backend(t.Context(), &config.Config{Source: config.Source{Kind: config.SourceNVML}, HPC: cfg}, plan, false)
	if err != nil {
		t.Fatal(err)
	}
	chosen.Source = n.side
	change := newDerivers(events.Options{}, true, false, registry, slog.New(slog.DiscardHandler)).change(plan, chosen)
	encoder := exposition.NewEncoder(exposition.Options{JobCopies: cfg.Copies})
	ctx, cancel := context.WithCancel(t.Context())
	loop := collector.New(collector.Options{
		Source: change.Source, Attributors: change.Attributors, Derivers: change.Derivers, Plan: change.Plan,
		Registerer: registry, ReadTimeout: time.Second, HangLimit: time.Minute,
		Publish: func(snap *gpu.Snapshot) {
			if snap.Topology == nil {
				return
			}
			page := encoder.Encode(snap)
			body := string(page.Bytes())
			page.Release()
			select {
			case n.pages <- body:
				<-n.resume
			case <-ctx.Done():
			}
		},
	})
	for row := range devices {
		if n.side.topology.Serves(&plan.Fields[0], row) {
			n.shown++
		}
	}
	n.start = func() {
		ended := make(chan error)
		go func() { ended <- loop.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			close(n.resume)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	return n
}

// runs makes a process of a control group; "" ends it.
func (n *clusterNode) runs(pid uint32, group string) {
	stat, cgroup := fmt.Sprint(pid, "/stat"), fmt.Sprint(pid, "/cgroup")
	delete(n.proc, stat)
	delete(n.proc, cgroup)
	if group != "" {
		n.proc[stat] = &fstest.MapFile{Data: fmt.Appendf(nil, "%d (p) R 9 9 9 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 1 0 %d 100 1 1", pid, pid)}
		n.proc[cgroup] = &fstest.MapFile{Data: []byte("0::" + group + "\n")}
	}
}

var sampleOfT = regexp.MustCompile(`(?m)^T\{(.*)\} 40$`)
var labelOf = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)

// jobs returns which job each GPU, or GPU.instance, carries on the next page, and fails if one is
// not on it exactly once.
func (n *clusterNode) jobs() map[string]string {
	n.t.Helper()
	if n.start != nil {
		n.start()
		n.start = nil
	} else {
		n.resume <- struct{}{}
	}
	n.page = <-n.pages
	got, samples := map[string]string{}, sampleOfT.FindAllStringSubmatch(n.page, -1)
	for _, sample := range samples {
		labels := map[string]string{}
		for _, l := range labelOf.FindAllStringSubmatch(sample[1], -1) {
			labels[l[1]] += l[2]
		}
		name := labels["gpu"]
		if i := labels["GPU_I_ID"]; i != "" {
			name += "." + i
		}
		if job := labels["hpc_job"]; job != "" {
			got[name] = job
		}
	}
	if len(samples) != n.shown {
		n.t.Fatalf("%d samples, want %d:\n%s", len(samples), n.shown, n.page)
	}
	return got
}

func (n *clusterNode) want(when string, want map[string]string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.jobs()); diff != "" {
		n.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

const slurmJob = "/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0"

type jobs = map[string]string

// TestJobsOfProcesses follows jobs by the control groups of their processes: from the first
// collection, which cannot know them yet, to their end.
func TestJobsOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, config.HPC{Cgroups: true}, gpuAt(0), gpuAt(1), gpuAt(2))
		n.runs(100, fmt.Sprintf(slurmJob, 7))
		n.runs(101, fmt.Sprintf(slurmJob, 7))
		n.runs(102, "/system.slice/nvidia-persistenced.service")
		n.runs(200, "/pbs_jobs.service/jobid/8.server")
		n.on[0], n.on[1], n.on[2] = []uint32{100, 101, 102}, []uint32{200, 102}, []uint32{102}

		n.want("the first page", jobs{})
		n.want("the second", jobs{"0": "7", "1": "8.server"})
		n.want("the third", jobs{"0": "7", "1": "8.server"})

		n.on[0] = []uint32{100, 200, 102} // another job's, too
		n.jobs()
		n.jobs()
		n.want("a shared GPU", jobs{"1": "8.server"})

		n.on[0] = nil
		n.jobs()
		n.jobs()
		n.want("an idle GPU", jobs{"1": "8.server"})

		n.runs(200, "") // it ended, and the driver still lists it
		n.jobs()
		n.jobs()
		n.jobs()
		n.want("the process ended", jobs{})
	})
}

// A job file has the last word, also one that names no job.
func TestJobFileBeforeProcesses(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"0": "42\n", "1": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, config.HPC{Dir: dir, Cgroups: true}, gpuAt(0), gpuAt(1), gpuAt(2))
		n.runs(100, fmt.Sprintf(slurmJob, 7))
		n.on[0], n.on[1], n.on[2] = []uint32{100}, []uint32{100}, []uint32{100}
		n.jobs()
		n.jobs()
		n.want("files", jobs{"0": "42", "2": "7"})
		n.want("files", jobs{"0": "42", "2": "7"})
	})
}

// TestJobsOfProcessesAreOptIn holds that no processes are requested without the flag.
func TestJobsOfProcessesAreOptIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, config.HPC{Dir: t.TempDir()}, gpuAt(0))
		n.runs(100, fmt.Sprintf(slurmJob, 7))
		n.on[0] = []uint32{100}
		n.jobs()
		n.want("without the flag", jobs{})
		n.want("without the flag", jobs{})
		for row, requested := range n.requested {
			if requested {
				t.Errorf("the processes of row %d are requested", row)
			}
		}
	})
}

// What is not known is no job: neither another process's on the same GPU, nor one of the past.
func TestJobsOfProcessesUnknown(t *testing.T) {
	for name, spoil := range map[string]func(*clusterNode){
		"another PID namespace": func(n *clusterNode) { delete(n.proc, "2/stat") },
		"not permitted": func(n *clusterNode) {
			n.runs(300, "/")
			n.proc["300/stat"] = &fstest.MapFile{Mode: fs.ModeDir} // reading it is an error
			n.on[0] = []uint32{100, 300}
		},
		"the driver does not report": func(n *clusterNode) { n.fault[0] = gpu.ErrUnavailable },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := startNode(t, config.HPC{Cgroups: true}, gpuAt(0))
				n.runs(100, fmt.Sprintf(slurmJob, 7))
				n.on[0] = []uint32{100}
				if name == "another PID namespace" {
					spoil(n)
				} else {
					n.jobs()
					n.want("before", jobs{"0": "7"})
					spoil(n)
					n.jobs()
					n.jobs()
				}
				n.jobs()
				n.want("unknown", jobs{})
				if len(n.log.lines) != 1 {
					t.Errorf("log: %q, want one line", n.log.lines)
				}
			})
		})
	}
}

// TestJobsOfProcessesShare holds that two jobs on one GPU are two owners, as those of a file are:
// each has its account, and under --hpc-job-copies its copy.
func TestJobsOfProcessesShare(t *testing.T) {
	for _, copies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := startNode(t, config.HPC{Cgroups: true, Copies: copies}, gpuAt(0))
			n.runs(100, fmt.Sprintf(slurmJob, 7))
			n.runs(101, fmt.Sprintf(slurmJob, 8))
			n.on[0] = []uint32{101, 100}
			if copies {
				n.shown = 1 // on the first page nothing is known
				n.jobs()
				n.shown = 2
			} else {
				n.jobs()
			}
			n.jobs()
			n.jobs()
			for _, job := range []string{"7", "8"} {
				account := regexp.MustCompile(`(?m)^dcgm_pod_gpu_allocated_seconds_total\{gpu="0",.*hpc_job="` + job + `".*\} [0-9.]+$`)
				if !account.MatchString(n.page) {
					t.Errorf("copies %t: no account of job %s:\n%s", copies, job, n.page)
				}
				sample := regexp.MustCompile(`(?m)^T\{.*hpc_job="` + job + `".*\} 40$`)
				if sample.MatchString(n.page) != copies {
					t.Errorf("copies %t: the series of the GPU as of job %s:\n%s", copies, job, n.page)
				}
			}
		})
	}
}

// The processes of a partitioned GPU are its instances'.
func TestJobsOfProcessesOnInstances(t *testing.T) {
	part := func(id, instance uint32) gpu.Device {
		return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: id, ParentKind: gpu.KindGPU, Parent: 0}, GPU: 0, InstanceID: instance, UUID: fmt.Sprint("MIG-", id)}
	}
	synctest.Test(t, func(t *testing.T) {
		n := startNode(t, config.HPC{Cgroups: true}, gpuAt(0), part(10, 1), part(11, 5))
		n.runs(100, fmt.Sprintf(slurmJob, 7))
		n.runs(101, fmt.Sprintf(slurmJob, 8))
		n.fault[0] = gpu.ErrNotSupported
		n.on[1], n.on[2] = []uint32{100}, []uint32{101}
		n.jobs()
		n.want("instances", jobs{"0.1": "7", "0.5": "8"})
		if diff := cmp.Diff([]bool{false, true, true}, n.requested); diff != "" {
			t.Errorf("requested (-want +got):\n%s", diff)
		}
	})
}
