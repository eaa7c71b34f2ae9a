package accounting_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// virtualPage plays two moments and returns the series of the counters in the form "FAMILY{row labels} value".
func virtualPage(t *testing.T, virtual bool, uses []gpu.Use, procs ...gpu.Process) (lines []string) {
	t.Helper()
	p := &play{
		moments: []moment{at(0, uses, nil), at(1, uses, runs(procs...))}, virtual: virtual,
		plan: &gpu.Plan{
			Interval: interval, Devices: gpu.Selector{Flex: true},
			Fields: []gpu.Field{{ID: 203, Levels: gpuOnly}, {ID: 252, Levels: gpuOnly}, {ID: 156, Levels: gpuOnly}},
			Counters: []gpu.Counter{
				{Name: "UTIL", Type: gpu.MetricGauge, Field: 0, Scale: 1},
				{Name: "UTIL_RATIO", Type: gpu.MetricGauge, Field: 0, Scale: 0.01},
				{Name: "FB", Type: gpu.MetricGauge, Field: 1, Scale: 1},
				{Name: "ENERGY", Type: gpu.MetricCounter, Field: 2, Scale: 1},
				{Name: "LABEL", Type: gpu.MetricLabel, Field: 0, Scale: 1},
			},
		},
	}
	p.run(t, func(_ int, s *gpu.Snapshot) {
		lines = nil
		for _, c := range s.Columns {
			for row, v := range c.Values {
				if !v.IsAbsent() && c.Counter.Type != gpu.MetricLabel {
					lines = append(lines, fmt.Sprintf("%s{%d} %s", c.Counter.Name, row, v))
				}
			}
		}
		for _, f := range s.Families {
			for _, x := range f.Series {
				if strings.HasPrefix(f.Name, "dcgm_") {
					continue
				}
				if !x.NoOwner {
					t.Errorf("%s of %v gets the labels of the device's owner, want only its own", f.Name, x.Owner)
				}
				lines = append(lines, fmt.Sprintf("%s{%d %s} %s", f.Name, x.Row, textOf(x.Owner), x.Value))
			}
		}
	})
	slices.Sort(lines)
	return lines
}

func TestVirtualGPUs(t *testing.T) {
	replicas := func(numbers ...int) []gpu.Use {
		uses := pods(gpu.SharingTimeSlicing, 4, numbers...)
		for i := range uses[0].Owners {
			uses[0].Owners[i].Replica = fmt.Sprint(i)
		}
		return uses
	}
	two, procs := replicas(1, 2), []gpu.Process{process(1, 0.1, 300), process(2, 0.35, 100)}
	const b, c = "container=main namespace=ns pod=b vgpu=0", "container=main namespace=ns pod=c vgpu=1"
	device := []string{"ENERGY{0} 1000000", "FB{0} 1000", "UTIL_RATIO{0} 0.6", "UTIL{0} 60"}
	same := func(name string, want, got []string) {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	same("with virtual GPUs", []string{
		"ENERGY{0} 1000000",                                        // the page has this series twice
		"FB{0 " + b + "} 300", "FB{0 " + c + "} 100", "FB{0} 1000", // with the device's own series, as in dcgm-exporter
		"UTIL_RATIO{0 " + b + "} 0.1", "UTIL_RATIO{0 " + c + "} 0.35", "UTIL_RATIO{0} 0.6",
		"UTIL{0 " + b + "} 10", "UTIL{0 " + c + "} 35", "UTIL{0} 60",
	}, virtualPage(t, true, two, procs...))
	same("without virtual GPUs", device, virtualPage(t, false, two, procs...))
	same("exclusive GPU", device, virtualPage(t, true, pods(gpu.SharingNone, 0, 1)))
	same("idle GPU", device, virtualPage(t, true, []gpu.Use{{}}))
	// If a pod's UID is unknown, its share is unknown. Its series have no value. GPU 1 has no samples.
	lines := slices.DeleteFunc(virtualPage(t, true, append(replicas(0, 1), replicas(1)...), procs...),
		func(line string) bool { return !strings.Contains(line, "pod=a") && !strings.Contains(line, "{1 ") })
	const a = "{0 container=main namespace=ns pod=a vgpu=0} "
	same("pod with an unknown share", []string{"FB" + a, "UTIL_RATIO" + a, "UTIL" + a}, lines)
}
