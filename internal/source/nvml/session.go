//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Session reads the fields of a plan from the entities of a topology.
type Session struct {
	api       gonvml.Interface
	queues    *queues // shared by all sessions of a Source
	symbols   symbols
	plan      *gpu.Plan
	topology  *gpu.Topology
	list      []gpu.Device // devices of the topology
	count     int          // number of GPUs that the driver has, selected or not
	devices   []*device
	elsewhere []int // indexes of the plan's fields that no GPU, instance or link has

	gpu.Lifecycle
	closed bool

	until   time.Time // deadline of the device that is being read; zero if there is none
	slots   []slot    // scratch: slots of the device that is being verified
	answer  answers
	values  []gonvml.FieldValue      // scratch: values of the row that is being read
	metrics gonvml.GpmMetricsGetType // scratch: metrics of the row that is being read
}

// errElsewhere is the fault of fields that only links, switches, CPUs and network cards have.
var errElsewhere = fmt.Errorf("%w: NVML has fields only for GPUs, GPU instances and, in part, NVLinks",
	gpu.ErrNotSupported)

// errClosed is the error of a closed Session.
var errClosed = fmt.Errorf("nvml: %w: the session is closed", gpu.ErrUnavailable)

// Topology returns the entities that the plan selected when the session was opened.
func (s *Session) Topology() *gpu.Topology { return s.topology }

// end closes Done. Read still works afterwards.
func (s *Session) end(err error) error { return s.End(fmt.Errorf("nvml: %w", err)) }

// Read appends the current values. A lost GPU is a fault of its rows. The error wraps gpu.ErrLost if the driver or all
// GPUs are lost.
func (s *Session) Read(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	if s.closed {
		return errClosed
	}
	if err := s.Err(); errors.Is(err, gpu.ErrLost) {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nvml: %w", err)
	}
	if err := s.verify(); err != nil {
		return s.failed(err)
	}
	for _, field := range s.elsewhere {
		b.Fail(gpu.AllRows, field, errElsewhere)
	}
	if s.plan.Health != 0 {
		b.FailPart(gpu.AllRows, gpu.PartHealthChecks, errNoWatches)
	}
	dead, err := s.readDevices(ctx, req, b)
	if err == nil && s.plan.Peers {
		err = s.readPeers(b)
	}
	if err != nil {
		return s.failed(err)
	}
	if dead != nil && s.Err() == nil {
		err = s.failed(dead)
	}
	if len(b.XIDs) > 0 {
		return nil // serve a page with the XIDs of the lost GPUs
	}
	return err
}

// readDevices appends the values of all GPUs, and a fault for each one that cannot be read. If there are GPUs and none
// could be read, dead is the error of the last one. If err is not nil, the Read ends.
func (s *Session) readDevices(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) (dead, err error) {
	alive := false
	for i, d := range s.devices {
		d.alive = false
		if err := ctx.Err(); errors.Is(err, context.Canceled) {
			return nil, err
		}
		s.share(ctx, len(s.devices)-i)
		if d.changed {
			d.events.drain(b) // no later session reports these XIDs
			continue          // its instances no longer exist
		}
		if err = s.readDevice(d, req, b); driverGone(codeOf(err)) {
			return nil, err
		}
		if d.alive = err == nil; d.alive {
			alive = true
			continue
		}
		dead = err
		for _, r := range d.rows {
			b.FailPart(r.index, gpu.PartEntity, err)
		}
	}
	if alive {
		dead = nil
	}
	return dead, nil
}

// errLate is the fault of a GPU that exceeds its share of the read timeout.
var errLate = fmt.Errorf("nvml: %w: the GPU exceeded its share of the read timeout", gpu.ErrTimeout)

// share sets the deadline of the next device: an equal share of the remaining time for each of the devices that are
// left.
func (s *Session) share(ctx context.Context, left int) {
	s.until = time.Time{}
	if end, limited := ctx.Deadline(); limited {
		now := time.Now()
		s.until = now.Add(end.Sub(now) / time.Duration(left))
	}
}

// inTime returns errLate if the device's deadline has passed.
func (s *Session) inTime(now time.Time) error {
	if !s.until.IsZero() && now.After(s.until) {
		return errLate
	}
	return nil
}

// failed ends the session if the error means that the driver or all GPUs are lost.
func (s *Session) failed(err error) error {
	if driverGone(codeOf(err)) && !errors.Is(err, gpu.ErrLost) {
		err = fmt.Errorf("%w: %w", gpu.ErrLost, err) // a driver of another version is lost to this library
	}
	if errors.Is(err, gpu.ErrLost) {
		return s.end(err)
	}
	return fmt.Errorf("nvml: %w", err)
}

// readDevice appends the values of one GPU and its instances. If the GPU is lost, it returns the reason and removes
// everything but the XIDs from the batch, since partial values would be mistaken for complete ones.
func (s *Session) readDevice(d *device, req gpu.ReadRequest, b *gpu.Batch) error {
	if d.dead != nil {
		return d.dead
	}
	d.events.drain(b)
	up, known, err := s.readLinks(d)
	if err != nil {
		return err
	}
	samples, faults, processes, utilizations := len(b.Samples), len(b.Faults), len(b.Processes), len(b.Utilizations)
	for _, r := range d.rows {
		err := s.readRow(r, b)
		if err == nil && req.WantsProcesses(r.index) {
			if err = s.inTime(time.Now()); err == nil {
				err = s.readProcesses(d, r, b)
			}
		}
		if err != nil {
			b.Samples, b.Faults = b.Samples[:samples], b.Faults[:faults]
			b.Processes, b.Utilizations = b.Processes[:processes], b.Utilizations[:utilizations]
			return err
		}
	}
	if known {
		b.Links = append(b.Links, gpu.LinkState{Row: d.gpuRow(), Up: up})
	}
	for _, x := range b.Samples[samples:] {
		if s.plan.Fields[x.Field].AllSamples {
			b.Trails = append(b.Trails, x)
		}
	}
	return nil
}

// Close releases all handles. The driver counts initializations, so it shuts down with the last one.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	for _, d := range s.devices {
		d.events.free()
		for _, r := range d.rows {
			r.gpm.free()
		}
	}
	if ret := s.api.Shutdown(); ret != gonvml.SUCCESS && !driverGone(ret) {
		return fmt.Errorf("nvml: %w", &driverError{"nvmlShutdown", ret})
	}
	return nil
}
