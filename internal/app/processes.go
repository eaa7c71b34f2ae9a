package app

import (
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

// A withProcesses is a session of DCGM beside which NVML reports the processes of shared GPUs, and
// how busy each GPU was over their interval. DCGM knows processes only as statistics of jobs that
// were registered; NVML reads the same driver.
//
// GPUs are matched by UUID: a remote engine on another machine finds none of its GPUs here, and
// nothing is mixed up. NVML is opened when processes are first requested, not before: an idle handle
// is in the way of a reset like any other.
type withProcesses struct {
	collector.Session
	open     func(context.Context, *gpu.Plan) (collector.Session, error) // NVML
	interval time.Duration

	side    collector.Session // nil while there is none
	rows    []int             // row here → row there, -1 for none
	batch   gpu.Batch
	err     error // why there is none
	retryAt time.Time
}

// Read reads the first session, and the processes from the second.
func (s *withProcesses) Read(ctx context.Context, b *gpu.Batch) error {
	requested := b.RequestProcesses
	b.RequestProcesses = nil
	err := s.Session.Read(ctx, b)
	b.RequestProcesses = requested
	if err != nil {
		return err
	}
	if slices.Contains(requested, true) {
		s.readProcesses(ctx, b)
	}
	return nil
}

func (s *withProcesses) readProcesses(ctx context.Context, b *gpu.Batch) {
	err := s.openSide(ctx)
	if err == nil {
		s.batch.Reset()
		clear(s.batch.RequestProcesses)
		for row, requested := range b.RequestProcesses {
			if requested && row < len(s.rows) && s.rows[row] >= 0 {
				s.batch.RequestProcesses[s.rows[row]] = true
			}
		}
		if err = s.side.Read(ctx, &s.batch); err == nil {
			err = s.side.Err()
		}
		if err != nil { // lost, or partitioned again: the next cycle opens it again
			s.closeSide()
		}
	}
	for row, requested := range b.RequestProcesses {
		switch {
		case !requested:
		case err != nil:
			b.Fail(row, gpu.FieldProcesses, err)
		case row >= len(s.rows) || s.rows[row] < 0:
			b.Fail(row, gpu.FieldProcesses, fmt.Errorf("%w: NVML does not know this GPU", gpu.ErrNotSupported))
		default:
			s.copyRow(b, row, s.rows[row])
		}
	}
}

// copyRow copies what the second session reports of one entity.
func (s *withProcesses) copyRow(b *gpu.Batch, row, there int) {
	for _, p := range s.batch.Processes {
		if p.Row == there {
			p.Row = row
			b.Processes = append(b.Processes, p)
		}
	}
	for _, u := range s.batch.Utilizations {
		if u.Row == there {
			u.Row = row
			b.Utilizations = append(b.Utilizations, u)
		}
	}
	for _, f := range s.batch.Faults {
		ofProcesses := f.Field == gpu.FieldProcesses || f.Field == gpu.FieldProcessBusy || f.Field == gpu.AllFields
		if !ofProcesses || f.Row != there && f.Row != gpu.AllRows {
			continue
		}
		if f.Field == gpu.AllFields { // lost there; the first session says it of the GPU itself
			f.Field = gpu.FieldProcesses
		}
		b.Fail(row, f.Field, f.Err)
	}
}

// open opens the second session and matches its entities with the first's.
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
	type key struct {
		uuid     string
		kind     gpu.Kind
		instance uint32
	}
	there := map[key]int{}
	for row, d := range side.Topology().Devices {
		there[key{d.UUID, d.Entity.Kind, d.InstanceID}] = row
	}
	s.side, s.rows = side, nil
	for _, d := range s.Topology().Devices {
		row, ok := there[key{d.UUID, d.Entity.Kind, d.InstanceID}]
		if !ok {
			row = -1
		}
		s.rows = append(s.rows, row)
	}
	s.batch.RequestProcesses = make([]bool, len(side.Topology().Devices))
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
