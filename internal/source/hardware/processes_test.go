package hardware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// fakeDriver is a source and its session. read fills the batch.
type fakeDriver struct {
	topology       *gpu.Topology
	read           func(gpu.ReadRequest, *gpu.Batch) error
	err            error
	opened, closed int
	openErr        error
}

func (s *fakeDriver) Open(context.Context, *gpu.Plan) (collector.Session, error) {
	s.opened++
	if s.openErr != nil {
		return nil, s.openErr
	}
	return s, nil
}
func (s *fakeDriver) Topology() *gpu.Topology { return s.topology }
func (s *fakeDriver) Read(_ context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	return s.read(req, b)
}
func (s *fakeDriver) Done() <-chan struct{} { return nil }
func (s *fakeDriver) Err() error            { return s.err }
func (s *fakeDriver) Close() error          { s.closed++; return nil }

func board(id uint32, uuid string) gpu.Device {
	return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, UUID: uuid}
}

func instance(id, of uint32, uuid string, mig uint32) gpu.Device {
	return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: id, ParentKind: gpu.KindGPU, Parent: of},
		UUID: uuid, InstanceID: mig}
}

func newPair() (engine, driver *fakeDriver, s *mergedSession) {
	engine = &fakeDriver{
		topology: gpu.NewTopology([]gpu.Device{board(0, "A"), board(1, "B"), instance(7, 1, "B", 9),
			board(2, "elsewhere")}),
		read: func(req gpu.ReadRequest, b *gpu.Batch) error {
			if req.Processes != nil {
				return errors.New("processes were requested from the engine")
			}
			b.Add(0, 0, gpu.Int(1), time.Now())
			return nil
		},
	}
	driver = &fakeDriver{ // the same GPUs in another order
		topology: gpu.NewTopology([]gpu.Device{board(0, "B"), instance(109, 0, "B", 9), board(1, "A")}),
	}
	driver.read = func(req gpu.ReadRequest, b *gpu.Batch) error {
		for row, want := range req.Processes {
			if want {
				b.Processes = append(b.Processes, gpu.Process{Row: row, PID: uint32(1000 + row)})
				b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: row, Busy: gpu.Float(float64(row) / 10)})
			}
		}
		b.FailPart(1, gpu.PartProcessBusy, gpu.ErrNotSupported)
		return nil
	}
	return engine, driver, &mergedSession{Session: engine, open: driver.Open, interval: time.Second}
}

// shown returns what a batch has of processes, and its other faults.
func shown(b *gpu.Batch) (lines []string) {
	for _, p := range b.Processes {
		lines = append(lines, fmt.Sprintf("row %d: process %d", p.Row, p.PID))
	}
	for _, u := range b.Utilizations {
		lines = append(lines, fmt.Sprintf("row %d: busy %v", u.Row, u.Busy))
	}
	for _, f := range b.Faults {
		lines = append(lines, fmt.Sprintf("row %d: part %d %s", f.Row, f.Part, gpu.Reason(f.Err)))
	}
	slices.Sort(lines)
	return lines
}

func TestMergesProcessesByUUID(t *testing.T) {
	_, driver, s := newPair()
	var b gpu.Batch
	if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil || driver.opened != 0 || len(b.Samples) != 1 {
		t.Fatalf("without requested processes: error %v, NVML opened %d times, %d samples; want none, 0, 1", err,
			driver.opened, len(b.Samples))
	}
	for range 2 {
		b.Reset()
		if err := s.Read(t.Context(), gpu.ReadRequest{Processes: []bool{true, false, true, true}}, &b); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"row 0: busy 0.2", "row 0: process 1002", "row 2: busy 0.1",
		fmt.Sprintf("row 2: part %d not_supported", gpu.PartProcessBusy), "row 2: process 1001",
		fmt.Sprintf("row 3: part %d not_supported", gpu.PartProcesses)}
	if diff := cmp.Diff(want, shown(&b)); diff != "" {
		t.Errorf("processes (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil || driver.opened != 1 || driver.closed != 1 {
		t.Errorf("Close: %v; NVML was opened %d times and closed %d times, want 1 and 1", err, driver.opened,
			driver.closed)
	}
}

// addPositions opens NVML to read the positions of GPU instances, and closes it again.
func TestAddPositions(t *testing.T) {
	_, driver, merged := newPair()
	start := uint32(4)
	driver.topology.Devices[1].Start = &start
	before := merged.Topology()
	merged.addPositions(t.Context())
	for row, d := range merged.Topology().Devices {
		if located := d.Start != nil && *d.Start == 4; located != (row == 2) {
			t.Errorf("row %d starts at slice %v, want slice 4 only for row 2", row, d.Start)
		}
	}
	located := merged.Topology()
	if driver.opened != 1 || driver.closed != 1 || before.Devices[2].Start != nil || merged.Topology() != located {
		t.Errorf("NVML opened %d times, closed %d times, want once each; start in DCGM's own topology = %v, want nil",
			driver.opened, driver.closed, before.Devices[2].Start)
	}
	driver.openErr = gpu.ErrUnavailable
	merged.topology = nil
	if merged.addPositions(t.Context()); merged.Topology() != before {
		t.Error("without NVML, the topology differs from DCGM's, want the same")
	}
}

// NVML is opened at most once a minute, and again after it was repartitioned. DCGM is read meanwhile.
func TestNVMLIsOpenedAgain(t *testing.T) {
	engine, driver, s := newPair()
	driver.openErr = gpu.ErrUnavailable
	for _, step := range []struct {
		name                    string
		openErr, err            error // of the driver
		processes, opens, close int
	}{
		{"without NVML", gpu.ErrUnavailable, nil, 0, 1, 0},
		{"still without it", gpu.ErrUnavailable, nil, 0, 1, 0},
		{"after a minute", nil, nil, 1, 2, 0},
		{"repartitioned", nil, gpu.ErrTopology, 0, 2, 1},
		{"open again", nil, nil, 1, 3, 1},
	} {
		driver.openErr, driver.err = step.openErr, step.err
		if step.name == "after a minute" {
			s.retryAt = s.retryAt.Add(-retryInterval)
		}
		var b gpu.Batch
		if err := s.Read(t.Context(), gpu.ReadRequest{Processes: []bool{true}}, &b); err != nil || len(b.Samples) != 1 {
			t.Fatalf("%s: DCGM: error %v, %d samples; want none, 1", step.name, err, len(b.Samples))
		}
		isOf := func(cause error) bool { return cause != nil && errors.Is(b.Faults[0].Err, cause) }
		failed := len(b.Faults) == 1 && b.Faults[0].Part == gpu.PartProcesses && (isOf(step.openErr) || isOf(step.err))
		if len(b.Processes) != step.processes || failed == (step.processes > 0) {
			t.Errorf("%s: %d processes and faults %v, want %d processes or else a fault", step.name, len(b.Processes),
				b.Faults, step.processes)
		}
		if driver.opened != step.opens || driver.closed != step.close {
			t.Errorf("%s: NVML was opened %d times and closed %d times, want %d and %d", step.name, driver.opened,
				driver.closed, step.opens, step.close)
		}
	}
	if engine.closed != 0 {
		t.Error("DCGM was closed together with NVML, want it open")
	}
}
