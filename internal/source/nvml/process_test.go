//go:build linux && cgo

package nvml_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

// processes reads once and returns what runs on each wanted row, and the
// faults about it.
func processes(t *testing.T, s *nvml.Session, rows ...int) []string {
	t.Helper()
	b := gpu.Batch{WantProcesses: make([]bool, len(s.Topology().Devices))}
	for _, row := range rows {
		b.WantProcesses[row] = true
	}
	if err := s.Read(context.Background(), &b); err != nil {
		t.Fatalf("Read: %v", err)
	}
	var list []string
	for _, p := range b.Processes {
		memory := p.Memory.String()
		if n, ok := p.Memory.Int64(); ok {
			memory = fmt.Sprint(n >> 20)
		}
		list = append(list, fmt.Sprintf("%d: pid %d memory %s busy %s", p.Row, p.PID, memory, p.Busy))
	}
	for _, f := range b.Faults {
		switch f.Field {
		case gpu.FieldProcesses:
			list = append(list, fmt.Sprintf("%d: processes %s", f.Row, gpu.Reason(f.Err)))
		case gpu.FieldProcessBusy:
			list = append(list, fmt.Sprintf("%d: busy %s", f.Row, gpu.Reason(f.Err)))
		}
	}
	return list
}

func TestProcesses(t *testing.T) {
	first := []string{
		"gpus 2",
		"process 0 pid 70 memory 1000 busy 40 at 100000000", "process 0 pid 71 memory 500", "process 0 pid 72 memory - busy 5 at 100500000",
		"process 0 pid 71 memory 500 graphics", "process 0 pid 80 memory 10 graphics",
		"process 0 pid 66 memory 0 busy 99 at 5000000",    // hours ago
		"process 0 pid 73 memory 0 busy 20 at 99900000",   // ended just now
		"process 0 pid 74 memory 1 busy 4000 at 99900000", // garbage
		"process 1 pid 90 memory 7 busy 50 at 100000000",  // nobody wants to know
	}
	src, world := source(t, first...)
	plan := planOf(t, 150)
	s := open(t, src, plan)
	for _, step := range []struct {
		name  string
		world []string
		want  []string
	}{
		{"the first answer has a past", first, []string{
			"0: pid 70 memory 1000 busy 0.4", "0: pid 71 memory 500 busy 0", "0: pid 72 memory  busy 0.05", "0: pid 74 memory 1 busy 0",
			"0: pid 80 memory 10 busy 0", "0: pid 73 memory  busy 0.2",
		}},
		{"what was told is not told again", []string{
			"gpus 2", "process 0 pid 70 memory 1000 busy 40 at 100000000", "process 0 pid 72 memory 30 busy 60 at 100900000",
		}, []string{"0: pid 70 memory 1000 busy 0", "0: pid 72 memory 30 busy 0.6"}},
		{"nothing runs", []string{"gpus 2"}, nil},
		{"an older driver", []string{"gpus 2", "process 0 pid 70 memory 1000", "fail nvmlDeviceGetProcessUtilization 3"},
			[]string{"0: pid 70 memory 1000 busy ", "0: busy not_supported"}},
		{"which is not asked again", []string{"gpus 2", "process 0 pid 70 memory 1000 busy 1 at 200000000"},
			[]string{"0: pid 70 memory 1000 busy ", "0: busy not_supported"}},
		{"no permission", []string{"gpus 2", "process 0 pid 70 memory 1000", "fail nvmlDeviceGetGraphicsRunningProcesses_v3 4"},
			[]string{"0: processes permission"}},
	} {
		world.Play(t, step.world...)
		if diff := cmp.Diff(step.want, processes(t, s, 0)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if got := processes(t, s); got != nil {
		t.Errorf("nobody asked, and was told %q", got)
	}
}

// Under MIG the instances' memory is known, and how busy they are kept is not.
func TestProcessesUnderMIG(t *testing.T) {
	src, _ := source(t, append(append([]string{}, cut...),
		"process 1/2/0 pid 70 memory 100", "process 1/2/1 pid 70 memory 50", "process 1/2/1 pid 71 memory 5", "process 1/9/0 pid 72 memory 9",
	)...)
	s := open(t, src, planOf(t, 150, 252))
	want := []string{
		"2: pid 70 memory 150 busy ", "2: pid 71 memory 5 busy ", "3: pid 72 memory 9 busy ",
		"1: processes not_supported", "2: busy not_supported", "3: busy not_supported",
	}
	if diff := cmp.Diff(want, processes(t, s, 1, 2, 3)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A GPU that falls off the bus while its processes are listed takes them along.
func TestProcessesOfALostGPU(t *testing.T) {
	src, world := source(t, "gpus 2", "process 0 pid 70 memory 1000", "process 1 pid 71 memory 3")
	s := open(t, src, planOf(t, 150))
	world.Play(t, "gpus 2", "process 0 pid 70 memory 1000", "process 1 pid 71 memory 3", "fail nvmlDeviceGetProcessUtilization 15 0")
	if diff := cmp.Diff([]string{"1: pid 71 memory 3 busy 0"}, processes(t, s, 0, 1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
