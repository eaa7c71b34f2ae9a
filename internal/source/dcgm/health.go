package dcgm

import (
	"errors"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// allHealth is every health watch that the engine has (DCGM_HEALTH_WATCH_ALL).
const allHealth = 0xffffffff

// A healthSystem is one of the health watches.
type healthSystem struct {
	name string // as the health_watch label spells it
	mask uint32 // dcgmHealthSystems_t
}

// healthSystems returns the health watches. The first gpuHealthSystems are those of a GPU, and each
// GPU has a result of each; the others are reported where they find something. What ends a GPU as a
// whole, such as that it fell off the bus, comes under all of them at once.
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
	group   handle
	made    bool // the group is
	set     bool // the watches are
	checked time.Time
	err     error // of the latest check
	results []gpu.HealthCheck
}

// watchHealth turns the health watches on, if the plan requests them. What the engine refuses is
// tried again by readHealth; only a lost engine is an error.
func (s *Session) watchHealth() error {
	h := &s.health
	if !s.plan.Health || h.set {
		return nil
	}
	var members []entity
	for row := range s.top.Devices {
		if e := s.top.Devices[row].Entity; e.Kind == gpu.KindGPU {
			members = append(members, entity{groupGPU, e.ID})
		}
	}
	if len(members) == 0 {
		return nil
	}
	if !h.made {
		var refused []refusal // a lost one, which passes nothing
		if h.group, refused, h.err = s.engine.createGroup(s.nextName(), members); h.err != nil {
			return s.onlyOver(h.err)
		}
		if h.group == 0 {
			h.err = refused[0].err
			return nil
		}
		h.made = true
	}
	h.err = s.engine.setHealth(h.group, allHealth)
	h.set = h.err == nil
	return s.onlyOver(h.err)
}

// onlyOver returns err if it means that the engine is gone.
func (s *Session) onlyOver(err error) error {
	if s.isOver(err) {
		return err
	}
	return nil
}

// due reports whether something that was requested at a moment is to be requested again: once per
// collection interval, with room for ticks that come early.
func (s *Session) due(checked, now time.Time) bool {
	return checked.IsZero() || now.Sub(checked) >= s.plan.Interval*9/10
}

// readHealth appends the results of the health checks. A GPU that is lost passes nothing; what was
// found of it is reported.
func (s *Session) readHealth(b *gpu.Batch) error {
	h := &s.health
	if !s.plan.Health {
		return nil
	}
	if now := time.Now(); s.due(h.checked, now) {
		h.checked = now
		if err := s.watchHealth(); err != nil {
			return err
		}
		if h.set {
			var found []incident
			if found, h.err = s.engine.checkHealth(h.group); s.isOver(h.err) || s.isForgotten(h.err) {
				return h.err
			}
			h.results = s.healthResults(h.results[:0], found, now.UnixNano())
		}
	}
	if h.err != nil {
		b.Fail(gpu.AllRows, gpu.FieldHealthChecks, s.withVersions(h.err))
		return nil
	}
	for _, x := range h.results {
		if x.Result != 0 || !s.lost[x.Row] {
			b.Health = append(b.Health, x)
		}
	}
	return nil
}

// healthResults appends a result for each GPU and health watch: what was found, each code once and
// at its worst, or that the watch passes.
func (s *Session) healthResults(list []gpu.HealthCheck, found []incident, at int64) []gpu.HealthCheck {
	for row := range s.top.Devices {
		e := s.top.Devices[row].Entity
		if e.Kind != gpu.KindGPU {
			continue
		}
		for i, system := range healthSystems() {
			first := len(list)
			for _, x := range found {
				if x.entity != (entity{groupGPU, e.ID}) || x.system != system.mask || x.result == 0 {
					continue
				}
				code := errorName(x.code)
				known := slices.IndexFunc(list[first:], func(r gpu.HealthCheck) bool { return r.Code == code })
				if known >= 0 {
					list[first+known].Result = max(list[first+known].Result, int64(x.result))
					continue
				}
				list = append(list, gpu.HealthCheck{Row: row, Watch: system.name, Code: code, Result: int64(x.result), Time: at})
			}
			if len(list) == first && i < gpuHealthSystems {
				list = append(list, gpu.HealthCheck{Row: row, Watch: system.name, Time: at})
			}
		}
	}
	return list
}

// unwatchHealth undoes watchHealth.
func (s *Session) unwatchHealth() error {
	h := &s.health
	if !h.made {
		return nil
	}
	var err error
	if h.set {
		err = s.engine.setHealth(h.group, 0)
	}
	h.made, h.set = false, false
	return errors.Join(err, s.engine.destroyGroup(h.group))
}
