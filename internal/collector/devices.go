package collector

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// deviceLogPause is the minimum time between two log lines about a GPU. It keeps a flapping GPU from flooding the log.
const deviceLogPause = 10 * time.Second

// deviceLog logs when a GPU becomes unreadable and when it recovers. It spans all sessions.
type deviceLog struct {
	log    *slog.Logger
	states map[string]deviceState // keyed by GPU UUID, or by entity if the UUID is unknown
}

// deviceState is the logged state of a GPU.
type deviceState struct {
	down   bool
	logged time.Time // when the latest line was logged; zero if never
}

// note logs the differences between a snapshot and the logged states. A GPU that is unreadable when first seen is
// logged by its source.
func (d *deviceLog) note(s *gpu.Snapshot) {
	if d.states == nil {
		d.states = map[string]deviceState{}
	}
	now := time.Now()
	for row := range s.Topology.Devices {
		device := &s.Topology.Devices[row]
		if device.Entity.Kind != gpu.KindGPU {
			continue
		}
		key := device.UUID
		if key == "" {
			key = device.Entity.String()
		}
		err := s.Health.Entities[row].Err
		state, known := d.states[key]
		switch {
		case !known:
			d.states[key] = deviceState{down: err != nil}
			continue
		case state.down == (err != nil) || !state.logged.IsZero() && now.Sub(state.logged) < deviceLogPause:
			continue
		}
		d.states[key] = deviceState{err != nil, now}
		if err == nil {
			d.log.Info("GPU recovered", "gpu", device.GPU, "uuid", device.UUID)
			continue
		}
		d.log.Warn("GPU cannot be read; other GPUs are still served", "gpu", device.GPU, "uuid", device.UUID,
			"reason", gpu.Reason(err), "error", err)
	}
}

// noValues returns an error if GPU values were requested but no GPU or GPU instance has any.
func noValues(s *gpu.Snapshot, plan *gpu.Plan) error {
	kinds := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
	rows := s.Topology.RowsOf(kinds)
	requested := false
	for i := range s.Columns {
		c := s.Columns[i].Counter
		if c.Type == gpu.MetricLabel || plan.Fields[c.Field].Text || plan.Fields[c.Field].Levels&kinds == 0 {
			continue
		}
		requested = true
		for _, row := range rows {
			if row < len(s.Columns[i].Values) && !s.Columns[i].Values[row].IsAbsent() {
				return nil
			}
		}
	}
	if !requested || len(rows) == 0 {
		return nil
	}
	for _, row := range rows {
		if err := s.Health.Entities[row].Err; err != nil {
			return fmt.Errorf("no GPU has a value: %w", err)
		}
	}
	return fmt.Errorf("%w: no GPU has a value", gpu.ErrUnavailable)
}
