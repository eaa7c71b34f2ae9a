package hardware

import (
	"context"
	"errors"
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

func TestMergesProcessesByUUID(t *testing.T) {
	_, driver, s := newPair()
	var b gpu.Batch
	if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil || driver.opened != 0 || len(b.Samples) != 1 {
		t.Fatalf("without requested processes: error %v, NVML opened %d times, %d samples; want none, 0, 1", err,
			driver.opened, len(b.Samples))
	}
	req := gpu.ReadRequest{Processes: []bool{true, false, true, true}}
	for range 2 {
		b.Reset()
		if err := s.Read(t.Context(), req, &b); err != nil {
			t.Fatal(err)
		}
	}
	got := map[int]uint32{}
	for _, p := range b.Processes {
		got[p.Row] = p.PID
	}
	if diff := cmp.Diff(map[int]uint32{0: 1002, 2: 1001}, got); diff != "" {
		t.Errorf("row and process (-want +got):\n%s", diff)
	}
	busy := map[int]string{}
	for _, u := range b.Utilizations {
		busy[u.Row] = u.Busy.String()
	}
	if diff := cmp.Diff(map[int]string{0: "0.2", 2: "0.1"}, busy); diff != "" {
		t.Errorf("row and utilization (-want +got):\n%s", diff)
	}
	type fault struct {
		row  int
		part gpu.Part
	}
	faults := map[fault]string{}
	for _, f := range b.Faults {
		faults[fault{f.Row, f.Part}] = gpu.Reason(f.Err)
	}
	want := map[fault]string{{2, gpu.PartProcessBusy}: "not_supported", {3, gpu.PartProcesses}: "not_supported"}
	if diff := cmp.Diff(want, faults); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	if driver.opened != 1 {
		t.Errorf("NVML was opened %d times, want 1", driver.opened)
	}
	if err := s.Close(); err != nil || driver.closed != 1 {
		t.Errorf("Close: %v; NVML was closed %d times, want 1", err, driver.closed)
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

// readShared reads a session whose first GPU is shared.
func readShared(t *testing.T, s *mergedSession) gpu.Batch {
	t.Helper()
	var b gpu.Batch
	err := s.Read(t.Context(), gpu.ReadRequest{Processes: []bool{true}}, &b)
	if err != nil || len(b.Samples) != 1 {
		t.Fatalf("DCGM: error %v, %d samples; want none, 1", err, len(b.Samples))
	}
	return b
}

func TestReadsDCGMWithoutNVML(t *testing.T) {
	_, driver, s := newPair()
	driver.openErr = gpu.ErrUnavailable
	for range 3 { // opened once, reported every time
		if b := readShared(t, s); len(b.Faults) != 1 || gpu.Reason(b.Faults[0].Err) != "unavailable" {
			t.Errorf("faults = %v, want one with the reason unavailable", b.Faults)
		}
	}
	if driver.opened != 1 {
		t.Errorf("a missing library was opened %d times, want 1", driver.opened)
	}
}

func TestNVMLIsOpenedAgain(t *testing.T) {
	engine, driver, s := newPair()
	readShared(t, s)
	driver.err = gpu.ErrTopology // repartitioned
	if b := readShared(t, s); len(b.Processes) != 0 || driver.closed != 1 {
		t.Errorf("%d processes of the old partitioning, want 0; NVML closed %d times, want 1",
			len(b.Processes), driver.closed)
	}
	driver.err = nil
	if b := readShared(t, s); len(b.Processes) != 1 || driver.opened != 2 {
		t.Errorf("%d processes after repartitioning, want 1; NVML opened %d times, want 2",
			len(b.Processes), driver.opened)
	}
	if engine.closed != 0 {
		t.Error("DCGM was closed together with NVML, want it open")
	}
}
