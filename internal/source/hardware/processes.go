package hardware

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

// retryInterval is the time between two attempts to open NVML next to DCGM.
const retryInterval = time.Minute

// A mergedSession is a session of DCGM with the processes of shared GPUs from NVML, and the utilization of each GPU
// over the same interval. DCGM only reports the processes of registered jobs.
//
// GPUs are matched by UUID, so NVML contributes nothing for an engine on another machine. NVML is opened when processes
// are first requested, since even an idle handle blocks a GPU reset.
type mergedSession struct {
	collector.Session // of DCGM
	open              func(context.Context, *gpu.Plan) (collector.Session, error)
	interval          time.Duration

	topology *gpu.Topology // topology with positions; nil if it is that of Session

	nvml    collector.Session // nil while it is not open
	rows    []int             // maps rows of nvml to rows of Session; -1 if there is none
	batch   gpu.Batch         // what nvml read
	request gpu.ReadRequest   // for nvml
	err     error             // why nvml could not be opened
	retryAt time.Time
}

// Topology returns the topology of the DCGM session. It has the positions of GPU instances after addPositions.
func (s *mergedSession) Topology() *gpu.Topology { return cmp.Or(s.topology, s.Session.Topology()) }

// addPositions adds the positions of GPU instances on their GPUs to the topology. NVML is open only for the duration of
// the call.
func (s *mergedSession) addPositions(ctx context.Context) {
	topology := *s.Session.Topology()
	isInstance := func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindGPUInstance }
	if !slices.ContainsFunc(topology.Devices, isInstance) || s.openNVML(ctx) != nil {
		return
	}
	topology.Devices = slices.Clone(topology.Devices)
	for nvmlRow, row := range s.rows {
		if row >= 0 {
			topology.Devices[row].Start = s.nvml.Topology().Devices[nvmlRow].Start
		}
	}
	s.topology = &topology
	_ = s.closeNVML()
}

// Read reads DCGM, and the requested processes from NVML.
func (s *mergedSession) Read(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	err := s.Session.Read(ctx, gpu.ReadRequest{Contradicted: req.Contradicted}, b)
	if err == nil && slices.Contains(req.Processes, true) {
		s.readProcesses(ctx, req, b)
	}
	return err
}

func (s *mergedSession) readProcesses(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) {
	requested := func(nvmlRow int) bool { return req.WantsProcesses(s.rows[nvmlRow]) }
	err := s.openNVML(ctx)
	if err == nil {
		s.batch.Reset()
		for nvmlRow := range s.rows {
			s.request.Processes[nvmlRow] = requested(nvmlRow)
		}
		if err = s.nvml.Read(ctx, s.request, &s.batch); err == nil {
			err = s.nvml.Err()
		}
		if err != nil { // NVML is lost, or MIG was repartitioned: open it again in the next cycle
			_ = s.closeNVML()
		}
	}
	for row, isRequested := range req.Processes {
		switch {
		case isRequested && err != nil:
			b.FailPart(row, gpu.PartProcesses, err)
		case isRequested && !slices.Contains(s.rows, row):
			b.FailPart(row, gpu.PartProcesses, fmt.Errorf("%w: NVML does not list this GPU", gpu.ErrNotSupported))
		}
	}
	if err == nil {
		s.merge(b, requested)
	}
}

// merge copies NVML's results for the requested rows to b.
func (s *mergedSession) merge(b *gpu.Batch, requested func(nvmlRow int) bool) {
	for _, p := range s.batch.Processes {
		if requested(p.Row) {
			p.Row = s.rows[p.Row]
			b.Processes = append(b.Processes, p)
		}
	}
	for _, u := range s.batch.Utilizations {
		if requested(u.Row) {
			u.Row = s.rows[u.Row]
			b.Utilizations = append(b.Utilizations, u)
		}
	}
	for _, f := range s.batch.Faults {
		if f.Part == gpu.PartEntity { // the GPU is lost, which DCGM reports for the GPU itself
			f.Part = gpu.PartProcesses
		}
		if f.Part != gpu.PartProcesses && f.Part != gpu.PartProcessBusy {
			continue
		}
		for nvmlRow := range s.rows {
			if requested(nvmlRow) && (f.Row == nvmlRow || f.Row == gpu.AllRows) {
				b.FailPart(s.rows[nvmlRow], f.Part, f.Err)
			}
		}
	}
}

// openNVML opens NVML and matches its entities to those of DCGM.
func (s *mergedSession) openNVML(ctx context.Context) error {
	if s.nvml != nil {
		return nil
	}
	if time.Now().Before(s.retryAt) {
		return s.err
	}
	session, err := s.open(ctx, &gpu.Plan{Interval: s.interval, Devices: gpu.Selector{Flex: true}})
	if err != nil {
		s.err, s.retryAt = err, time.Now().Add(retryInterval)
		return err
	}
	s.nvml, s.rows = session, nil
	for _, device := range session.Topology().Devices {
		s.rows = append(s.rows, slices.IndexFunc(s.Topology().Devices, func(d gpu.Device) bool {
			return d.UUID == device.UUID && d.Entity.Kind == device.Entity.Kind && d.InstanceID == device.InstanceID
		}))
	}
	s.request.Processes = make([]bool, len(s.rows))
	return nil
}

func (s *mergedSession) closeNVML() error {
	session := s.nvml
	if s.nvml = nil; session == nil {
		return nil
	}
	return session.Close()
}

// Close closes both sessions.
func (s *mergedSession) Close() error { return errors.Join(s.closeNVML(), s.Session.Close()) }
