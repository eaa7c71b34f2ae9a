package sim_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/events/kernellog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// The reader of real kernel logs can read the log of the simulated kernel: the times, the GPUs, and the processes of
// pods.
func TestKernelLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src, err := sim.New(sim.Options{Node: "demo", Scenario: simulated.Scenario(t, `
faults:
  - {fault: xid, at: 20s, devices: ["0", "5"], xids: [62, 45], apart: 1s}
  - {fault: xid, at: 25s, devices: ["0"], xids: [31], reported-by: [engine]}
  - {fault: xid, at: 30s, devices: ["6"], xids: [79], reported-by: [kernel]}
  - {fault: xid, at: 0s, devices: ["0"], xids: [13]}`)})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		var log strings.Builder
		reader := kernellog.New(kernellog.Options{
			Path: "simulated", Registerer: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(&log, nil)),
			Open: func() (kernellog.Device, error) { return src.KernelLog(), nil },
		})
		time.Sleep(5 * time.Second) // the first lines are older than the reader
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); reader.Run(ctx) }()
		time.Sleep(time.Minute)
		xids := reader.Drain(nil)
		cancel()
		<-done

		session, err := src.Open(t.Context(), simulated.Plan(gpuTemp))
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		buses := map[string]uint32{}
		for _, d := range session.Topology().Devices {
			buses[d.PCIBusID] = d.GPU
		}
		var got []string
		for _, x := range xids {
			pods, err := src.PodOf(x.PID)
			if err != nil {
				t.Fatal(err)
			}
			past := map[bool]string{true: ", past"}[x.Past]
			at, id := time.Unix(0, x.Time).Sub(begin), buses[x.PCIBusID]
			got = append(got, fmt.Sprintf("%v GPU %d XID %d, pod %t%s", at, id, x.Code, pods != nil, past))
		}
		want := []string{
			"0s GPU 0 XID 13, pod true, past",
			"20s GPU 0 XID 62, pod true", "20s GPU 5 XID 62, pod false",
			"21s GPU 0 XID 45, pod true", "21s GPU 5 XID 45, pod false",
			"30s GPU 6 XID 79, pod true",
		}
		if diff := cmp.Diff(want, got); diff != "" || log.Len() > 0 {
			t.Errorf("XIDs (-want +got):\n%s\nlog: %s", diff, &log)
		}
	})
}

// SXIDs of a switch and of its links are read like those of real switches.
func TestKernelLogOfSwitches(t *testing.T) {
	src, err := sim.New(sim.Options{Node: "everything", Scenario: simulated.Scenario(t, `
faults:
  - {fault: sxid, devices: ["nvswitch 0"], xids: [11004], result: warn}
  - {fault: sxid, devices: ["nvswitch 1/3"], xids: [20034]}`)})
	if err != nil {
		t.Fatal(err)
	}
	l := src.KernelLog()
	defer l.Close()
	var got []gpu.XID
	for range 3 { // the first line is the driver's own
		b := make([]byte, 1000)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if record, _ := kernellog.ParseRecord(b[:n]); strings.Contains(record.Text, "SXid") {
			sxid, _ := kernellog.ParseLine(record.Text)
			got = append(got, sxid)
		}
	}
	want := []gpu.XID{
		{OnSwitch: true, Code: 11004, Detail: gpu.XIDDetail{Severity: "nonfatal"}},
		{OnSwitch: true, Switch: 1, Code: 20034, Detail: gpu.XIDDetail{Severity: "fatal", Link: "3"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("SXIDs (-want +got):\n%s", diff)
	}
}

// The log behaves like /dev/kmsg.
func TestKernelLogBehavesLikeDevice(t *testing.T) {
	scenario := simulated.Scenario(t, `faults: [{fault: xid, devices: ["0"], xids: [31]}]`)
	src, err := sim.New(sim.Options{Node: "t4", Scenario: scenario})
	if err != nil {
		t.Fatal(err)
	}
	l := src.KernelLog()
	read := func() string {
		b := make([]byte, 1000)
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	if n, err := l.Read(make([]byte, 9)); n != 0 || !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Read with a small buffer = %d, %v, want EINVAL", n, err)
	}
	first, second := read(), read()
	if first != "4,0,0,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.230.02\n" {
		t.Errorf("first record = %q, want the message that the driver is loading", first)
	}
	record, ok := kernellog.ParseRecord([]byte(second))
	isXID := strings.HasPrefix(record.Text, "NVRM: Xid (PCI:0000:1b:00): 31, pid=")
	if !ok || !record.Kernel || record.Sequence != 1 || !isXID {
		t.Errorf("second record = %q, want a kernel record with sequence 1 and XID 31", second)
	}
	if n, err := l.TryRead(make([]byte, 1000)); n != 0 || err != nil {
		t.Errorf("TryRead after the last record = %d, %v, want 0 and no error", n, err)
	}
	over := make(chan error)
	go func() { _, err := l.Read(make([]byte, 1000)); over <- err }()
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-over; !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read of a closed log: %v, want fs.ErrClosed", err)
	}
}
