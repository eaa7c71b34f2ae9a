package goldens

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
)

func TestMain(m *testing.M) { os.Exit(fakedcgm.Main(m)) }

// pace is the interval of a session with a test library, which runs in real time.
const pace = 20 * time.Millisecond

// masked lists families whose values vary because these tests run in real time. Only their labels are compared.
var masked = []string{
	"DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_CLOCK_EVENTS_TOTAL", "DCGM_EXP_CLOCK_EVENT_SECONDS_TOTAL",
	"DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS",
	"dcgm_pod_gpu_allocated_seconds_total", "dcgm_pod_gpu_active_seconds_total",
	"dcgm_gpu_unattributed_active_seconds_total",
	"dcgm_exporter_sample_age_seconds", "dcgm_exporter_attribution_duration_seconds",
	"dcgm_exporter_collect_duration_seconds", "dcgm_exporter_collect_last_success_timestamp_seconds",
}

// mask replaces the values of masked families on a page with MASKED.
func mask(page []byte) []byte {
	var b strings.Builder
	for line := range strings.Lines(string(page)) {
		name := line[:strings.IndexAny(line, "{ ")]
		if slices.Contains(masked, name) {
			line = line[:strings.LastIndexByte(line, ' ')] + " MASKED\n"
		}
		b.WriteString(line)
	}
	return []byte(b.String())
}

// settled repeats an exporter until two consecutive runs return the same masked page of the third cycle, and returns
// that page. On a machine that is slow for a moment, samples become stale and pages differ. Profiling fields have
// values from the second read on.
func settled(t *testing.T, run pages.Run) []byte {
	t.Helper()
	var last []byte
	const runs = 8
	run.Interval = pace
	for range runs {
		page := mask(pageOf(t, run, 3))
		if bytes.Equal(last, page) {
			return page
		}
		last = page
	}
	t.Fatalf("%d runs: no two consecutive pages are equal", runs)
	return nil
}

// engine returns the script of an engine with three GPUs, switches, links, a CPU and a network card. The second GPU is
// partitioned by MIG, and the third one is lost.
func engine() []string {
	return []string{
		"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06",
		"gpu 0 uuid=GPU-00000000-1111-4222-8333-000000000000 name=NVIDIA_H100_80GB_HBM3 bus=00000000:1B:00.0 " +
			"index=0 minor=2 status=ok prof=1001,1002,1003,1004,1005,1006,1007,1008,1009,1010 links=2 cpus=0-31",
		"gpu 1 uuid=GPU-00000000-1111-4222-8333-000000000001 name=NVIDIA_H100_80GB_HBM3 bus=00000000:2C:00.0 " +
			"index=1 minor=1 status=ok prof=1001,1004,1005 links=2 cpus=32-63",
		"gpu 2 uuid=GPU-00000000-1111-4222-8333-000000000002 name=NVIDIA_H100_80GB_HBM3 bus=00000000:3D:00.0 " +
			"index=2 minor=0 status=lost prof=none",
		"instance 7 gpu=1 nvml=1 profile=3g.40gb uuid=MIG-00000000-1111-4222-8333-000000000007",
		"instance 8 gpu=1 nvml=2 profile=4g.40gb",
		"switch 0 links=2", "switch 1 links=1", "link switch:1:3 state=down",
		"link gpu:0:1 state=down", "cpu 0 serial=0123ABCD cores=0-1,70", "connectx 5", "path 0 1 node nvlinks=2",
		"peer 0 1 0",
		"value any:* 100-999 int 7", "value any:* 1100-1199 double 0.25", "value any:* 1300-1999 int 3",
		"value any:* 1001-1012 double 0.5",
		"value gpu:* 150-151 int 45", "value gpu:* 155-156 double 71.5", "value gpu:* 156 int 1000000",
		"value gpu:* 252 int 4096", "value gpu:* 250 int 81920",
		"value gpu:* 203 int 30", "value gpu:1 203 unsupported i", "value instance:* 252 int 1024",
		"value gpu:0 112 int 4",
		"value any:* 1009-1010 double 123456789", "value gpu:* 101 int 2619", "value gpu:0 206 nopermission i",
		"value gpu:0 207 notfound i", "value gpu:0 204 nodata",
		"event 1 gpu:0 230 62", "incident gpu:0 2 10 45",
	}
}

// driver returns the script of a driver with three GPUs. The second one is partitioned by MIG, and the third one is
// lost.
func driver() []string {
	return []string{
		"gpus 3", "gpu 1 mig", "gpu 1 instance 1 0 3g.40gb 40448", "gpu 1 instance 9 0 1g.10gb 9984", "gpu 2 lost",
		"process 0 pid 100 memory 500", "process 0 pid 200 memory 300", "process 1/1/0 pid 300 memory 1000",
	}
}

// podOf returns a pod UID made from the process ID. Processes 100 and 200 belong to the two pods that
// owned reports.
func podOf(pid uint32) ([]string, error) {
	return []string{fmt.Sprintf("00000000-0000-4000-8000-%012d", pid/100)}, nil
}

// owned is an attributor that reports that two pods share the first GPU by time-slicing.
type owned struct{}

func (owned) Name() string { return "kubernetes" }

func (owned) Attribute(_ context.Context, t *gpu.Topology) (*gpu.Owners, error) {
	use := gpu.Use{Sharing: gpu.SharingTimeSlicing, Replicas: 2}
	for i := range 2 {
		use.Owners = append(use.Owners, gpu.Owner{
			Namespace: "work", Pod: fmt.Sprint("trainer-", i), Container: "main", Replica: fmt.Sprint(i),
			PodUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i+1),
		})
	}
	return &gpu.Owners{Uses: append([]gpu.Use{use}, make([]gpu.Use, len(t.Devices)-1)...)}, nil
}

func TestLibraries(t *testing.T) {
	remote := hostengine.Address{Transport: hostengine.TCP, Host: "10.0.0.9", Port: hostengine.DefaultPort}
	for name, open := range map[string]func(t *testing.T) collector.Source{
		"dcgm-embedded": func(t *testing.T) collector.Source {
			fakedcgm.New(t, engine()...)
			return collector.SourceOf(dcgm.New(dcgm.Options{}).Open)
		},
		"dcgm-remote": func(t *testing.T) collector.Source {
			fakedcgm.New(t, engine()...)
			return collector.SourceOf(dcgm.New(dcgm.Options{Remote: remote}).Open)
		},
		"nvml": func(t *testing.T) collector.Source {
			path, err := fakenvml.Build(t.TempDir())
			fakenvml.Need(t, err)
			fakenvml.NewWorld(t, driver()...)
			return collector.SourceOf(nvml.New(path).Open)
		},
	} {
		t.Run(name, func(t *testing.T) {
			comparePage(t, name, settled(t, pages.Run{
				Other: open(t), PodOf: podOf, Owners: owned{}, Counters: []byte(counters),
				Args: []string{noMetrics},
			}))
		})
	}
}
