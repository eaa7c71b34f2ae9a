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
func virtualPage(t *testing.T, virtual bool, uses []gpu.Use, procs ...gpu.Process) []string {
	t.Helper()
	var lines []string
	p := &play{
		moments: []moment{at(0, uses, nil), at(1, uses, runs(procs...))},
		virtual: virtual,
		plan: &gpu.Plan{
			Interval: interval, Devices: gpu.Selector{Flex: true},
			Fields: []gpu.Field{
				{ID: 203, Name: "UTIL", Levels: gpuOnly},
				{ID: 252, Name: "FB", Levels: gpuOnly},
				{ID: 156, Name: "ENERGY", Levels: gpuOnly},
			},
			Counters: []gpu.Counter{
				{Name: "UTIL", Type: gpu.MetricGauge, Field: 0, Scale: 1},
				{Name: "UTIL_RATIO", Type: gpu.MetricGauge, Field: 0, Scale: 0.01},
				{Name: "FB", Type: gpu.MetricGauge, Field: 1, Scale: 1},
				{Name: "ENERGY", Type: gpu.MetricCounter, Field: 2, Scale: 1},
			},
		},
	}
	p.run(t, func(i int, s *gpu.Snapshot) {
		if i == 0 {
			return
		}
		add := func(name string, row int, labels []gpu.Label, v gpu.Value) {
			text := ""
			if len(labels) > 0 {
				text = " " + textOf(labels)
			}
			lines = append(lines, fmt.Sprintf("%s{%d%s} %s", name, row, text, v))
		}
		for _, c := range s.Columns {
			for row, v := range c.Values {
				if !v.IsAbsent() {
					add(c.Counter.Name, row, nil, v)
				}
			}
		}
		for _, f := range s.Families {
			if f.Type != gpu.MetricLabel && !strings.HasPrefix(f.Name, "dcgm_") {
				for _, x := range f.Series {
					if !x.NoOwner {
						t.Errorf("%s of %v gets the labels of the device's owner, want only its own", f.Name, x.Owner)
					}
					add(f.Name, x.Row, x.Owner, x.Value)
				}
			}
		}
	})
	slices.Sort(lines)
	return lines
}

func replicas(uses []gpu.Use) []gpu.Use {
	for i := range uses[0].Owners {
		uses[0].Owners[i].Replica = fmt.Sprint(i)
	}
	return uses
}

func TestVirtualGPUs(t *testing.T) {
	two := replicas(pods(gpu.SharingTimeSlicing, 4, 1, 2))
	procs := []gpu.Process{process(1, 0.1, 300), process(2, 0.35, 100)}
	const b, c = "container=main namespace=ns pod=b vgpu=0", "container=main namespace=ns pod=c vgpu=1"
	want := []string{
		"ENERGY{0} 1000000",                                        // the page has this series twice
		"FB{0 " + b + "} 300", "FB{0 " + c + "} 100", "FB{0} 1000", // with the device's own series, as in dcgm-exporter
		"UTIL_RATIO{0 " + b + "} 0.1", "UTIL_RATIO{0 " + c + "} 0.35", "UTIL_RATIO{0} 0.6",
		"UTIL{0 " + b + "} 10", "UTIL{0 " + c + "} 35", "UTIL{0} 60",
	}
	if diff := cmp.Diff(want, virtualPage(t, true, two, procs...)); diff != "" {
		t.Errorf("with virtual GPUs (-want +got):\n%s", diff)
	}
	device := []string{"ENERGY{0} 1000000", "FB{0} 1000", "UTIL_RATIO{0} 0.6", "UTIL{0} 60"}
	if diff := cmp.Diff(device, virtualPage(t, false, two, procs...)); diff != "" {
		t.Errorf("without virtual GPUs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(device, virtualPage(t, true, pods(gpu.SharingNone, 0, 1))); diff != "" {
		t.Errorf("exclusive GPU (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(device, virtualPage(t, true, []gpu.Use{{}})); diff != "" {
		t.Errorf("idle GPU (-want +got):\n%s", diff)
	}
	// If a pod's UID is unknown, its share is unknown. Its series have no value.
	var unknown []string
	silent := replicas(pods(gpu.SharingTimeSlicing, 4, 1)) // GPU 1 has no samples
	uses := append(replicas(pods(gpu.SharingTimeSlicing, 4, 0, 1)), silent...)
	for _, line := range virtualPage(t, true, uses, procs...) {
		if strings.Contains(line, "pod=a") || strings.Contains(line, "{1 ") {
			unknown = append(unknown, line)
		}
	}
	const a = "{0 container=main namespace=ns pod=a vgpu=0} "
	if diff := cmp.Diff([]string{"FB" + a, "UTIL_RATIO" + a, "UTIL" + a}, unknown); diff != "" {
		t.Errorf("pod with an unknown share (-want +got):\n%s", diff)
	}
}
