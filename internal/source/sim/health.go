package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A watch is one of the engine's health watches, defined in data/findings.yaml.
type watch struct {
	Name, Code string // Code is the default for faults of scenarios
	Of         string // kind of entity, as its String
}

// A finding is the result of a health watch that does not pass. Findings from the fields of a GPU are defined in
// data/findings.yaml.
type finding struct {
	Watch, Code string // an empty Code is the watch's default
	Result      int64
	Field       gpu.FieldID
	Values      []int64 // values of the field; nil means every value that isHarm
}

// healthResults maps the result of a fault to that of a health check (dcgmHealthWatchResults_t). 0 is a pass.
var healthResults = map[string]int64{"": 20, "fail": 20, "warn": 10}

// isHarm reports whether an error counter is above 0, or a part of the fabric is unhealthy.
func isHarm(id gpu.FieldID, n int64) bool {
	const ones = 0x55 // four parts of the mask have two bits each: 01 is unhealthy
	if id == catalog.FabricHealthMask {
		return n&ones&^(n>>1) != 0 || n>>8&15 > 1
	}
	return n > 0
}

// appendFinding appends the finding for a field's value on a GPU, if there is one.
func appendFinding(found []finding, id gpu.FieldID, n int64) []finding {
	for _, f := range builtIn().Findings {
		if f.Field == id && (slices.Contains(f.Values, n) || f.Values == nil && isHarm(id, n)) {
			return append(found, f)
		}
	}
	return found
}

// readHealth reports the results of all health watches for the planned entities. Each code is reported once with its
// worst result, or the watch passes.
func (s *Session) readHealth(b *gpu.Batch, now int64) {
	if s.plan.Health == 0 {
		return
	}
	byField := make([][]finding, len(s.views)) // by row: findings that follow from the samples
	for i := range b.Samples {
		x := &b.Samples[i]
		if n, ok := x.Value.Int64(); ok && s.views[x.Row].dev.Entity.Kind == gpu.KindGPU {
			byField[x.Row] = appendFinding(byField[x.Row], s.plan.Fields[x.Field].ID, n)
		}
	}
	for row := range s.views {
		kind := s.views[row].dev.Entity.Kind
		if !s.plan.Health.Has(kind) || s.down[row] {
			continue
		}
		found := append(s.found(row, now), byField[row]...)
		for _, w := range builtIn().Watches {
			if w.Of == kind.String() {
				s.addHealth(b, row, w, found)
			}
		}
	}
}

func (s *Session) addHealth(b *gpu.Batch, row int, w watch, found []finding) {
	first, v := len(b.Health), &s.views[row]
	for _, f := range found {
		if f.Watch != w.Name {
			continue
		}
		code := catalog.FindingOf(cmp.Or(f.Code, w.Code)).Code
		i := slices.IndexFunc(b.Health[first:], func(h gpu.HealthCheck) bool { return h.Code == code })
		if i >= 0 {
			b.Health[first+i].Result = max(b.Health[first+i].Result, f.Result)
			continue
		}
		noLink := code == "DCGM_FR_NVLINK_DOWN" && v.dev.Entity.Kind == gpu.KindGPU && !s.isLinked(v)
		b.Health = append(b.Health, gpu.HealthCheck{
			Row: row, Watch: w.Name, Code: code, Result: f.Result, NoLink: noLink,
		})
	}
	if len(b.Health) == first {
		b.Health = append(b.Health, gpu.HealthCheck{Row: row, Watch: w.Name})
	}
}

// found returns an entity's findings that do not come from fields: clocks held down by power or heat within a minute,
// XIDs since the engine started, and the scenario's faults.
func (s *Session) found(row int, now int64) (found []finding) {
	d, g := s.views[row].dev, s.views[row].gpu
	began := s.world.engineBegan(now)
	if d.Entity.Kind == gpu.KindGPU {
		since := max(now-int64(time.Minute), began)
		isCapped := s.world.at > s.world.t0 && g.from[levelCapped]+g.now[levelCapped] > 0
		if g.cappedUntil > since || isCapped { // agrees with the counter of power violations
			found = append(found, finding{Watch: "POWER", Result: healthResults["warn"]})
		}
		if g.throttledFor(reasonsThermal, now) > g.throttledFor(reasonsThermal, since) {
			found = append(found, finding{Watch: "THERMAL", Result: healthResults["warn"]})
		}
	}
	for f := range s.world.faultsOf(faultXID) {
		for i, xid := range f.XIDs {
			if at := f.occurs(i); f.seenBy("engine") && f.on(d) && at >= began && at <= now {
				found = appendFinding(found, catalog.XIDErrors, xid)
			}
		}
	}
	for f := range s.world.faultsOf(faultHealth) {
		for _, name := range f.Watches {
			if f.within(now) && f.on(d) {
				found = append(found, finding{Watch: name, Code: f.Code, Result: healthResults[f.Result]})
			}
		}
	}
	return found
}

// isLinked reports whether any of a GPU's links is up. Links without a peer or with a fault are down.
func (s *Session) isLinked(v *view) bool {
	w, links := s.world, v.board.NVLink
	hasPeer := slices.ContainsFunc(w.gpus, func(g worldGPU) bool { return !g.gone && w.linked(v.gpu, &g) })
	if links.Bridge && !hasPeer {
		return false
	}
	down := map[deviceRef]bool{}
	for f := range w.faultsOf(faultLink) {
		for _, ref := range f.devices {
			if ref.of == gpu.KindGPU && ref.id == v.gpu.index && f.within(w.at) {
				down[ref] = true
			}
		}
	}
	return len(down) < int(links.Links)
}
