//go:build linux && cgo

package nvml_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// processes reads once and returns the processes on the wanted rows, and faults about them.
func (r *rig) processes(rows ...int) (list []string) {
	r.t.Helper()
	req := gpu.ReadRequest{Processes: make([]bool, len(r.Topology().Devices))}
	for _, row := range rows {
		req.Processes[row] = true
	}
	var b gpu.Batch
	if err := r.Read(r.t.Context(), req, &b); err != nil {
		r.t.Fatalf("Read: %v", err)
	}
	for _, p := range b.Processes {
		memory := p.Memory.String()
		if n, ok := p.Memory.Int64(); ok {
			memory = fmt.Sprint(n >> 20)
		}
		list = append(list, fmt.Sprintf("%d: pid %d memory %s busy %s", p.Row, p.PID, memory, p.Busy))
	}
	for _, u := range b.Utilizations {
		list = append(list, fmt.Sprintf("%d: device %s", u.Row, u.Busy))
	}
	parts := map[gpu.Part]string{gpu.PartProcesses: "processes", gpu.PartProcessBusy: "busy"}
	for _, f := range b.Faults {
		if part := parts[f.Part]; part != "" {
			list = append(list, fmt.Sprintf("%d: %s %s", f.Row, part, gpu.Reason(f.Err)))
		}
	}
	return list
}

// wantProcesses reads once and compares the processes on rows.
func (r *rig) wantProcesses(when string, rows []int, want ...string) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.processes(rows...)); diff != "" {
		r.t.Errorf("%s: processes (-want +got):\n%s", when, diff)
	}
}

// at replaces times in the lines of a script. "@1.5" stands for 1.5 seconds after start.
func at(start time.Time, lines ...string) []string {
	out := slices.Clone(lines)
	for i, line := range out {
		out[i] = stamp.ReplaceAllStringFunc(line, func(s string) string {
			seconds, _ := strconv.ParseFloat(s[1:], 64)
			return fmt.Sprint(start.UnixMicro() + int64(seconds*1e6))
		})
	}
	return out
}

var stamp = regexp.MustCompile(`@-?[0-9.]+`)

func TestProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, r := time.Now(), start(t, planOf(150), "gpus 2")
		after := func(when string, script []string, want ...string) {
			t.Helper()
			r.with(at(begin, script...)...)
			r.wantProcesses(when, []int{0}, want...)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Second)
		after("the first read includes earlier samples", []string{
			"process 0 pid 70 memory 1000 busy 40 at @0.4", "process 0 pid 71 memory 500",
			"process 0 pid 72 memory - busy 5 at @0.9",
			"process 0 pid 71 memory 500 graphics", "process 0 pid 80 memory 10 graphics",
			"process 0 pid 66 memory 0 busy 99 at @-9000", // hours ago
			"process 0 pid 73 memory 0 busy 20 at @0.5",   // has just exited
			"process 0 pid 74 memory 1 busy 4000 at @0.5", // invalid
			"process 1 pid 90 memory 7 busy 50 at @0.5",   // not requested
		}, "0: pid 70 memory 1000 busy 0.4", "0: pid 71 memory 500 busy 0", "0: pid 72 memory  busy 0.05",
			"0: pid 74 memory 1 busy 0", "0: pid 80 memory 10 busy 0", "0: pid 73 memory 0 busy 0.2")
		after("no sample is reported twice",
			[]string{"process 0 pid 70 memory 1000 busy 40 at @0.4", "process 0 pid 72 memory 30 busy 60 at @1.9"},
			"0: pid 70 memory 1000 busy 0", "0: pid 72 memory 30 busy 0.6")
		after("nothing runs", nil)
		after("an older driver has no utilization of processes",
			[]string{"process 0 pid 70 memory 1000", "fail nvmlDeviceGetProcessUtilization 3"},
			"0: pid 70 memory 1000 busy ", "0: busy not_supported")
		after("utilization is not queried again", []string{"process 0 pid 70 memory 1000 busy 1 at @4.9"},
			"0: pid 70 memory 1000 busy ", "0: busy not_supported")
		after("no permission",
			[]string{"process 0 pid 70 memory 1000", "fail nvmlDeviceGetGraphicsRunningProcesses_v3 4"},
			"0: processes permission")
		r.wantProcesses("without a request", nil)
	})
}

// The utilization of the device and of its processes covers the same interval: the driver's samples since the previous
// Read. The momentary utilization is not used.
func TestProcessesAndDeviceShareInterval(t *testing.T) {
	// The momentary utilization is always 10 % (the library's default).
	const one, two = "process 0 pid 70 memory 1 busy ", "process 0 pid 71 memory 1 busy "
	for name, step := range map[string]struct {
		world []string
		want  []string
	}{
		"one mean per process": {
			[]string{
				"gpu 0 set samples.1 @-1:99 @0.25:100 @0.5:0 @0.75:100 @1:0", one + "25 at @1", two + "25 at @0.75",
			},
			[]string{"0: pid 70 memory 1 busy 0.25", "0: pid 71 memory 1 busy 0.25", "0: device 0.5"},
		},
		"one sample per period": {
			[]string{
				"gpu 0 set samples.1 @0.25:100 @0.5:0 @0.75:100 @1:0", one + "80 at @0.25", two + "20 at @0.25",
				"process 0 pid 70 memory 0 busy 60 at @0.75", "process 0 pid 71 memory 0 busy 40 at @0.75",
			},
			[]string{"0: pid 70 memory 1 busy 0.35", "0: pid 71 memory 1 busy 0.15", "0: device 0.5"},
		},
		"idle": {
			[]string{"gpu 0 set samples.1 @0.5:0 @1:0", "process 0 pid 70 memory 1"},
			[]string{"0: pid 70 memory 1 busy 0", "0: device 0"},
		},
		"invalid samples": {
			[]string{"gpu 0 set samples.1 @0.5:60 @0.7:4000000000 @3600:99", one + "30 at @0.5"},
			[]string{"0: pid 70 memory 1 busy 0.3", "0: device 0.6"},
		},
		"the driver keeps no samples": {
			[]string{one + "30 at @0.5"}, []string{"0: pid 70 memory 1 busy 0.3"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, planOf(150), "gpus 1")
				r.with(at(time.Now(), step.world...)...)
				time.Sleep(time.Second)
				r.wantProcesses("after a second", []int{0}, step.want...)
			})
		})
	}
}

// If the driver has no new samples since the previous Read, the latest values are repeated for a while. The processes
// did not pause.
func TestProcessesBetweenSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, planOf(150), "gpus 1")
		r.with(at(time.Now(), "gpu 0 set samples.1 @0.1:50", "process 0 pid 70 memory 1 busy 50 at @0.1")...)
		for i := range 40 {
			time.Sleep(100 * time.Millisecond)
			want := []string{"0: pid 70 memory 1 busy 0.5", "0: device 0.5"}
			if i > 20 {
				want = []string{"0: pid 70 memory 1 busy 0"}
			}
			if got := r.processes(0); !slices.Equal(got, want) && i != 20 {
				t.Fatalf("Read %d: processes = %q, want %q", i, got, want)
			}
		}
	})
}

// The memory of processes on MIG instances is known, but not their utilization.
func TestProcessesUnderMIG(t *testing.T) {
	r := start(t, planOf(150, 252), slices.Concat(cut, []string{
		"process 1/2/0 pid 70 memory 100", "process 1/2/1 pid 70 memory 50", "process 1/2/1 pid 71 memory 5",
		"process 1/9/0 pid 72 memory 9",
	})...)
	r.wantProcesses("instances", []int{1, 2, 3},
		"2: pid 70 memory 150 busy ", "2: pid 71 memory 5 busy ", "3: pid 72 memory 9 busy ",
		"1: processes not_supported", "2: busy not_supported", "3: busy not_supported")
}

// If a GPU falls off the bus while its processes are listed, they are not reported.
func TestProcessesOfLostGPU(t *testing.T) {
	r := start(t, planOf(150), "gpus 2", "process 0 pid 70 memory 1000", "process 1 pid 71 memory 3")
	r.with("fail nvmlDeviceGetProcessUtilization 15 0")
	r.wantProcesses("GPU 0 is lost", []int{0, 1}, "1: pid 71 memory 3 busy 0")
}
