package pagefuzz

import (
	"context"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// IDs of the fields that the world's driver serves.
const (
	fieldTemperature gpu.FieldID = 150
	fieldEnergy      gpu.FieldID = 156
	fieldUtilization gpu.FieldID = 203
	fieldXID         gpu.FieldID = 230
	fieldMemory      gpu.FieldID = 252
	fieldEngine      gpu.FieldID = 1001
	fieldSlices      gpu.FieldID = 69
)

var fields = []gpu.FieldID{fieldTemperature, fieldEnergy, fieldUtilization, fieldMemory, fieldEngine, fieldSlices}

// Open implements collector.Source for the world's driver.
func (w *world) Open(ctx context.Context, plan *gpu.Plan) (*session, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.engine.down {
		return nil, fmt.Errorf("open: %w", gpu.ErrUnavailable)
	}
	s := &session{w: w, plan: plan, generation: w.generation, done: make(chan struct{})}
	var devices []gpu.Device
	for _, c := range w.cards {
		if c.gone {
			continue
		}
		whole := gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: c.id}, GPU: c.id, UUID: c.uuid, NVMLIndex: c.id, Minor: c.id,
			PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 16+c.id), Model: "NVIDIA H100 80GB HBM3",
		}
		s.rows = append(s.rows, row{card: c})
		devices = append(devices, whole)
		if c.mode != cut {
			s.rows[len(s.rows)-1].device = c.devices[0]
			continue
		}
		for _, d := range c.devices {
			part := whole
			part.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ID: 100*c.id + d.instance, ParentKind: gpu.KindGPU,
				Parent: c.id}
			part.InstanceID, part.Profile, part.MIGUUID = d.instance, d.profile, d.migUUID
			s.rows = append(s.rows, row{c, d})
			devices = append(devices, part)
		}
	}
	s.topology = gpu.NewTopology(devices)
	s.topology.Source, s.topology.Driver = "sim", "570.124.06"
	return s, nil
}

// A row is a GPU or a MIG instance. device is nil for a partitioned GPU.
type row struct {
	card   *card
	device *device
}

// A session is an open connection to the world's driver. It ends if the driver goes down or the topology changes.
type session struct {
	w          *world
	plan       *gpu.Plan
	topology   *gpu.Topology
	generation int
	rows       []row
	done       chan struct{}
	err        error
}

func (s *session) Topology() *gpu.Topology { return s.topology }
func (s *session) Done() <-chan struct{}   { return s.done }
func (s *session) Err() error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.err
}
func (s *session) Close() error { return nil }

func (s *session) over(err error) error {
	if s.err == nil {
		s.err = err
		close(s.done)
	}
	return s.err
}

func (s *session) Read(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	w := s.w
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.engine.hanging {
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		return fmt.Errorf("read: %w: %w", gpu.ErrTimeout, ctx.Err())
	}
	switch {
	case w.engine.down:
		return s.over(fmt.Errorf("engine: %w", gpu.ErrLost))
	case w.generation != s.generation:
		return s.over(gpu.ErrTopology)
	case w.engine.failing != nil:
		return fmt.Errorf("read: %w", w.engine.failing)
	}
	w.readAt = w.steps
	at := time.Now().Add(w.engine.skew)
	for i, r := range s.rows {
		if r.device != nil && r.device.instance == 0 { // a GPU in another mode has a new device
			r.device = r.card.devices[0]
		}
		if r.card.lost {
			b.FailPart(i, gpu.PartEntity, gpu.ErrLost)
			if w.rng.IntN(4) > 0 {
				continue
			}
			// a real engine can still return samples of a lost GPU
		}
		for f := range s.plan.Fields {
			s.sample(b, i, f, r, at)
		}
		if req.WantsProcesses(i) && r.device != nil {
			s.processes(b, i, r.device, at)
		}
	}
	return nil
}

// sample reads a field of a row.
func (s *session) sample(b *gpu.Batch, i, f int, r row, at time.Time) {
	field := &s.plan.Fields[f]
	e := &s.w.engine
	if !s.topology.Serves(field, i) || e.mute[field.ID] {
		return
	}
	if err := e.blind[field.ID]; err != nil {
		b.Fail(i, f, err)
		return
	}
	if v, ok := e.strange[field.ID]; ok {
		b.Add(i, f, gpu.Float(v), at)
		return
	}
	switch field.ID {
	case fieldTemperature:
		b.Add(i, f, gpu.Int(45), at)
	case fieldEnergy:
		b.Add(i, f, gpu.Int(int64(r.card.millijoule)), at)
	case fieldSlices:
		b.Add(i, f, gpu.Int(slicesOfGPU), at)
	case fieldUtilization:
		if r.device != nil && r.device.instance == 0 {
			b.Add(i, f, gpu.Int(int64(100*r.device.util+0.5)), at)
		}
	case fieldMemory:
		if r.device != nil {
			b.Add(i, f, gpu.Int(r.device.memory), at)
		}
	case fieldEngine:
		if r.device != nil {
			b.Add(i, f, gpu.Float(r.device.engine), at)
		}
	case fieldXID:
		if s.w.rng.IntN(40) == 0 {
			code := []int64{13, 31, 79}[s.w.rng.IntN(3)]
			b.XIDs = append(b.XIDs, gpu.XID{Row: i, Code: code, ID: at.UnixNano(), Time: at.UnixNano()})
		}
	}
}

// processes reads the processes of a device.
func (s *session) processes(b *gpu.Batch, i int, d *device, at time.Time) {
	e := &s.w.engine
	if e.noProcess != nil {
		b.FailPart(i, gpu.PartProcesses, e.noProcess)
		return
	}
	noBusy := e.noBusy
	if d.instance > 0 { // NVML does not report the utilization of processes under MIG
		noBusy = gpu.ErrNotSupported
	}
	if noBusy != nil {
		b.FailPart(i, gpu.PartProcessBusy, noBusy)
	} else if !e.noMean {
		b.Utilizations = append(b.Utilizations, gpu.Utilization{Row: i, Busy: gpu.Float(d.mean)})
	}
	d.reported.mean, d.reported.busy = d.mean, 0
	for _, x := range d.processes {
		d.reported.busy += x.busy
		p := gpu.Process{Row: i, PID: x.pid, Memory: gpu.Int(x.memory), Time: at.UnixNano()}
		if noBusy == nil {
			p.Busy = gpu.Float(x.busy)
		}
		b.Processes = append(b.Processes, p)
	}
}
