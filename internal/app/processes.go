package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// sideRetry is how long a library that could not be opened is left alone.
const sideRetry = time.Minute

// A withProcesses is a session of DCGM beside which NVML reports the processes of shared GPUs, and how busy each GPU was
// over their interval. DCGM knows the processes of registered jobs alone; NVML reads the same driver.
//
// GPUs are matched by UUID: NVML finds none of the GPUs of an engine on another machine. It is opened when processes are
// first requested: an idle handle is in the way of a reset like any other.
type withProcesses struct {
	collector.Session
	open     func(context.Context, *gpu.Plan) (collector.Session, error) // NVML
	interval time.Duration

	topology *gpu.Topology // of Session with places by NVML; nil for that of Session

	side    collector.Session // nil while there is none
	here    []int             // row of side → row of Session, -1 for none
	batch   gpu.Batch
	err     error // why there is no side
	retryAt time.Time
}

// Topology returns that of the first session, after locate with the places of GPU instances.
func (s *withProcesses) Topology() *gpu.Topology { return cmp.Or(s.topology, s.Session.Topology()) }

// locate adds where GPU instances are on their GPUs, which NVML knows and DCGM does not. NVML is open for as long as it
// takes.
func (s *withProcesses) locate(ctx context.Context) {
	located := *s.Session.Topology()
	cut := func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindGPUInstance }
	if !slices.ContainsFunc(located.Devices, cut) || s.openSide(ctx) != nil {
		return
	}
	located.Devices = slices.Clone(located.Devices)
	for there, row := range s.here {
		if row >= 0 {
			located.Devices[row].Start = s.side.Topology().Devices[there].Start
		}
	}
	s.topology = &located
	_ = s.closeSide()
}

// Read reads the first session, and the processes from the second.
func (s *withProcesses) Read(ctx context.Context, b *gpu.Batch) error {
	requested := b.RequestProcesses
	b.RequestProcesses = nil
	err := s.Session.Read(ctx, b)
	b.RequestProcesses = requested
	if err == nil && slices.Contains(requested, true) {
		s.readProcesses(ctx, b)
	}
	return err
}

func (s *withProcesses) readProcesses(ctx context.Context, b *gpu.Batch) {
	requested := func(there int) bool {
		row := s.here[there]
		return row >= 0 && row < len(b.RequestProcesses) && b.RequestProcesses[row]
	}
	err := s.openSide(ctx)
	if err == nil {
		s.batch.Reset()
		for there := range s.here {
			s.batch.RequestProcesses[there] = requested(there)
		}
		if err = s.side.Read(ctx, &s.batch); err == nil {
			err = s.side.Err()
		}
		if err != nil { // lost, or partitioned again: the next cycle opens it again
			_ = s.closeSide()
		}
	}
	for row, wanted := range b.RequestProcesses {
		switch {
		case wanted && err != nil:
			b.Fail(row, gpu.FieldProcesses, err)
		case wanted && !slices.Contains(s.here, row):
			b.Fail(row, gpu.FieldProcesses, fmt.Errorf("%w: NVML does not know this GPU", gpu.ErrNotSupported))
		}
	}
	if err == nil {
		s.copySide(b, requested)
	}
}

// copySide copies the second session's report of each requested row.
func (s *withProcesses) copySide(b *gpu.Batch, requested func(there int) bool) {
	for _, p := range s.batch.Processes {
		if requested(p.Row) {
			p.Row = s.here[p.Row]
			b.Processes = append(b.Processes, p)
		}
	}
	for _, u := range s.batch.Utilizations {
		if requested(u.Row) {
			u.Row = s.here[u.Row]
			b.Utilizations = append(b.Utilizations, u)
		}
	}
	for _, f := range s.batch.Faults {
		if f.Field == gpu.AllFields { // lost there; the first session says it of the GPU itself
			f.Field = gpu.FieldProcesses
		}
		for there := range s.here {
			if requested(there) && (f.Row == there || f.Row == gpu.AllRows) && (f.Field == gpu.FieldProcesses || f.Field == gpu.FieldProcessBusy) {
				b.Fail(s.here[there], f.Field, f.Err)
			}
		}
	}
}

// openSide opens the second session and matches its entities with the first's.
func (s *withProcesses) openSide(ctx context.Context) error {
	if s.side != nil {
		return nil
	}
	if time.Now().Before(s.retryAt) {
		return s.err
	}
	side, err := s.open(ctx, &gpu.Plan{Interval: s.interval, Devices: gpu.Selector{Flex: true}})
	if err != nil {
		s.err, s.retryAt = err, time.Now().Add(sideRetry)
		return err
	}
	s.side, s.here = side, nil
	for _, there := range side.Topology().Devices {
		s.here = append(s.here, slices.IndexFunc(s.Topology().Devices, func(d gpu.Device) bool {
			return d.UUID == there.UUID && d.Entity.Kind == there.Entity.Kind && d.InstanceID == there.InstanceID
		}))
	}
	s.batch.RequestProcesses = make([]bool, len(s.here))
	return nil
}

func (s *withProcesses) closeSide() error {
	if s.side == nil {
		return nil
	}
	side := s.side
	s.side = nil
	return side.Close()
}

// Close closes both.
func (s *withProcesses) Close() error {
	return errors.Join(s.closeSide(), s.Session.Close())
}
