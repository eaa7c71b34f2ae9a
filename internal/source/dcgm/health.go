package dcgm

import (
	"errors"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// allHealth is every health watch that the engine has (DCGM_HEALTH_WATCH_ALL).
const allHealth = 0xffffffff

// A healthSystem is one of the health watches.
type healthSystem struct {
	name string // as the health_watch label spells it
	mask uint32 // dcgmHealthSystems_t
}

// healthSystems returns the health watches. Each GPU has a result of each of the first
// gpuHealthSystems; the others are reported where they find something. DCGM reports the end of a
// whole GPU, such as its fall off the bus, under all of them at once.
func healthSystems() [15]healthSystem {
	return [...]healthSystem{
		{"PCIE", 0x1}, {"NVLINK", 0x2}, {"PMU", 0x4}, {"MCU", 0x8}, {"MEM", 0x10}, {"SM", 0x20}, {"INFOROM", 0x40},
		{"THERMAL", 0x80}, {"POWER", 0x100}, {"DRIVER", 0x200}, {"ALL", allHealth},
		{"NVSWITCH_NONFATAL", 0x400}, {"NVSWITCH_FATAL", 0x800}, {"CONNECTX", 0x1000}, {"IMEX", 0x2000},
	}
}

const gpuHealthSystems = 11

// A healthWatch is the engine's health checks of the session's GPUs.
type healthWatch struct {
	group handle // 0 until it is made
	set   bool   // the watches are
}

// watchHealth turns the health watches on, if the plan requests them. readHealth tries again.
func (s *Session) watchHealth() error {
	h := &s.health
	if !s.plan.Health || h.set {
		return nil
	}
	var members []entity
	for _, e := range s.members {
		if e.group == groupGPU {
			members = append(members, e)
		}
	}
	if len(members) == 0 {
		return nil
	}
	if h.group == 0 {
		group, refused, err := s.engine.createGroup(s.nextName(), members)
		if err == nil && group == 0 {
			err = refused[0].err // lost ones, which pass nothing
		}
		if err != nil {
			return err
		}
		h.group = group
	}
	err := s.engine.setHealth(h.group, allHealth)
	h.set = err == nil
	return err
}

// readHealth appends the results of the health checks. A lost GPU passes nothing.
func (s *Session) readHealth(b *gpu.Batch) error {
	if !s.plan.Health {
		return nil
	}
	err := s.watchHealth()
	var found []incident
	if s.health.set {
		found, err = s.engine.checkHealth(s.health.group)
	}
	if err != nil {
		b.Fail(gpu.AllRows, gpu.FieldHealthChecks, s.withVersions(err))
		return s.onlyGone(err)
	}
	for row, e := range s.members {
		if e.group == groupGPU && s.health.set {
			s.addHealth(b, row, found)
		}
	}
	return nil
}

// addHealth appends the results of each health watch of a GPU: each code once and at its worst, or
// a pass.
func (s *Session) addHealth(b *gpu.Batch, row int, found []incident) {
	for i, system := range healthSystems() {
		first := len(b.Health)
		for _, x := range found {
			if x.entity != s.members[row] || x.system != system.mask || x.result == 0 {
				continue
			}
			code := errorName(x.code)
			known := slices.IndexFunc(b.Health[first:], func(r gpu.HealthCheck) bool { return r.Code == code })
			if known >= 0 {
				b.Health[first+known].Result = max(b.Health[first+known].Result, int64(x.result))
				continue
			}
			b.Health = append(b.Health, gpu.HealthCheck{Row: row, Watch: system.name, Code: code, Result: int64(x.result)})
		}
		if len(b.Health) == first && i < gpuHealthSystems && !s.lost[row] {
			b.Health = append(b.Health, gpu.HealthCheck{Row: row, Watch: system.name})
		}
	}
}

// unwatchHealth undoes watchHealth.
func (s *Session) unwatchHealth() error {
	if s.health.group == 0 {
		return nil
	}
	var err error
	if s.health.set {
		err = s.engine.setHealth(s.health.group, 0)
	}
	return errors.Join(err, s.engine.destroyGroup(s.health.group))
}

// errorName returns the name of a finding (DCGM_FR_*), as the health_error_code label spells it. An
// unknown code is DCGM_FR_UNRECOGNIZED, as DCGM itself says.
func errorName(code uint32) string {
	const prefix, unrecognized = "DCGM_FR_", 2
	names := errorNames()
	if code >= uint32(len(names)) {
		code = unrecognized
	}
	return prefix + names[code]
}
