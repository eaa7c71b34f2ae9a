package collector

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// deviceLogPause is the minimum time between two log lines about a GPU. It keeps a flapping GPU from flooding the log.
const deviceLogPause = 10 * time.Second

// deviceState is the logged state of a GPU.
type deviceState struct {
	down   bool
	logged time.Time // when the latest line was logged; zero if never
}

// logDevices logs when a GPU becomes unreadable and when it recovers, across sessions. A GPU that is unreadable when
// first seen is logged by its source.
func (l *Loop) logDevices(s *gpu.Snapshot) {
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
		state, known := l.devices[key]
		if !known {
			l.devices[key] = deviceState{down: err != nil}
			continue
		}
		if state.down == (err != nil) || time.Since(state.logged) < deviceLogPause {
			continue
		}
		l.devices[key] = deviceState{err != nil, time.Now()}
		log := l.opt.Log.With("gpu", device.GPU, "uuid", device.UUID)
		if err == nil {
			log.Info("GPU recovered")
		} else {
			log.Warn("GPU cannot be read; other GPUs are still served", "reason", gpu.Reason(err), "error", err)
		}
	}
}

// noValues returns an error if GPU values were requested but no GPU or GPU instance has any.
func noValues(s *gpu.Snapshot, plan *gpu.Plan) error {
	kinds := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
	requested, err := false, error(nil)
	for row := range s.Topology.Devices {
		if !kinds.Has(s.Topology.Devices[row].Entity.Kind) {
			continue
		}
		for i := range s.Columns {
			c := s.Columns[i].Counter
			if c.Type == gpu.MetricLabel || plan.Fields[c.Field].Text || plan.Fields[c.Field].Levels&kinds == 0 {
				continue
			}
			if !s.Columns[i].Values[row].IsAbsent() {
				return nil
			}
			requested, err = true, cmp.Or(err, s.Health.Entities[row].Err)
		}
	}
	if !requested {
		return nil
	}
	return fmt.Errorf("no GPU has a value: %w", cmp.Or(err, gpu.ErrUnavailable))
}
