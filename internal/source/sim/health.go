package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A watch is one of the engine's health watches. Its code is the default for faults of scenarios.
type watch struct {
	name, code string
	of         gpu.Kind
}

// watches are the health watches in the order of their bits (dcgmHealthSystems_t). ALL is the watch of a whole GPU.
var watches = [...]watch{
	{"PCIE", "DCGM_FR_PCI_REPLAY_RATE", gpu.KindGPU},
	{"NVLINK", codeLinkDown, gpu.KindGPU},
	{"PMU", "DCGM_FR_UNKNOWN", gpu.KindGPU},
	{"MCU", "DCGM_FR_UNKNOWN", gpu.KindGPU},
	{"MEM", "DCGM_FR_VOLATILE_DBE_DETECTED", gpu.KindGPU},
	{"SM", "DCGM_FR_UNKNOWN", gpu.KindGPU},
	{"INFOROM", "DCGM_FR_CORRUPT_INFOROM", gpu.KindGPU},
	{"THERMAL", codeThermal, gpu.KindGPU},
	{"POWER", codePower, gpu.KindGPU},
	{"DRIVER", codeXID, gpu.KindGPU},
	{"ALL", "DCGM_FR_FALLEN_OFF_BUS", gpu.KindGPU},
	{"NVSWITCH_NONFATAL", "DCGM_FR_NVSWITCH_NON_FATAL_ERROR", gpu.KindNVSwitch},
	{"NVSWITCH_FATAL", "DCGM_FR_NVSWITCH_FATAL_ERROR", gpu.KindNVSwitch},
	{"CONNECTX", "DCGM_FR_FIELD_VIOLATION", gpu.KindConnectX},
	{"IMEX", "DCGM_FR_IMEX_UNHEALTHY", gpu.KindNode},
}

// Errors reported for an unconnected link, an XID, link errors, and clocks held down by power or heat.
const (
	codeLinkDown   = "DCGM_FR_NVLINK_DOWN"
	codeXID        = "DCGM_FR_XID_ERROR"
	codeLinkErrors = "DCGM_FR_NVLINK_ERROR_CRITICAL"
	codePower      = "DCGM_FR_CLOCK_THROTTLE_POWER"
	codeThermal    = "DCGM_FR_CLOCK_THROTTLE_THERMAL"
)

// Results of health checks (dcgmHealthWatchResults_t). The zero result is a pass.
const (
	healthWarn = 10
	healthFail = 20
)

// A finding is the result of a health watch that does not pass.
type finding struct {
	watch, code string
	result      int64
}

// xidFindings are the findings after an XID, until the engine restarts (DcgmHealthWatch.cpp, BuildXidMappings).
var xidFindings = map[int64]finding{
	31: {"MEM", codeXID, healthWarn}, 32: {"MEM", codeXID, healthWarn}, 43: {"MEM", codeXID, healthWarn},
	38: {"PCIE", codeXID, healthWarn}, 39: {"PCIE", codeXID, healthWarn}, 42: {"PCIE", codeXID, healthWarn},
	48: {"ALL", codeXID, healthFail},
	54: {"POWER", codeXID, healthWarn}, 56: {"POWER", codeXID, healthWarn}, 57: {"POWER", codePower, healthWarn},
	58: {"POWER", codeXID, healthWarn}, 78: {"POWER", codeXID, healthWarn},
	60: {"THERMAL", codeThermal, healthWarn},
	61: {"THERMAL", codeXID, healthWarn}, 62: {"THERMAL", codeXID, healthWarn},
	63: {"MEM", "DCGM_FR_PENDING_PAGE_RETIREMENTS", healthWarn}, 64: {"MEM", "DCGM_FR_ROW_REMAP_FAILURE", healthFail},
	67: {"NVLINK", codeXID, healthWarn}, 73: {"NVLINK", codeXID, healthWarn},
	74: {"ALL", codeXID, healthFail}, 79: {"ALL", "DCGM_FR_FALLEN_OFF_BUS", healthFail},
	94: {"ALL", "DCGM_FR_CONTAINED_ERROR", healthWarn}, 95: {"ALL", "DCGM_FR_UNCONTAINED_ERROR", healthFail},
	119: {"ALL", codeXID, healthFail}, 120: {"ALL", codeXID, healthFail},
	121: {"NVLINK", codeXID, healthWarn}, 137: {"NVLINK", codeXID, healthWarn}, 140: {"ALL", codeXID, healthFail},
}

// counterFindings are the findings for error counters of a GPU that are above 0, until the driver is reloaded.
var counterFindings = map[gpu.FieldID]finding{
	catalog.ECCDBEVolTotal:  {"MEM", "DCGM_FR_VOLATILE_DBE_DETECTED", healthFail},
	catalog.RetiredPending:  {"MEM", "DCGM_FR_PENDING_PAGE_RETIREMENTS", healthWarn},
	catalog.RowRemapFailure: {"MEM", "DCGM_FR_ROW_REMAP_FAILURE", healthFail},

	catalog.NVLinkReplayErrorCountTotal:             {"NVLINK", codeLinkErrors, healthFail},
	catalog.NVLinkRecoveryErrorCountTotal:           {"NVLINK", codeLinkErrors, healthFail},
	catalog.NVLinkCountLinkRecoverySuccessfulEvents: {"NVLINK", codeLinkErrors, healthWarn},
	catalog.NVLinkCountLinkRecoveryFailedEvents:     {"NVLINK", codeLinkErrors, healthFail},
}

// recoveryFindings are the findings for recovery actions (nvmlDeviceGpuRecoveryAction_t, nvml.h).
var recoveryFindings = map[int64]finding{
	1: {"DRIVER", "DCGM_FR_GPU_RECOVERY_RESET", healthFail},
	2: {"DRIVER", "DCGM_FR_GPU_RECOVERY_REBOOT", healthFail},
	3: {"DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_P2P", healthWarn},
	4: {"DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_RESET", healthFail},
}

// fieldFinding returns the finding for a field's value on a GPU, and whether there is one.
func fieldFinding(id gpu.FieldID, n int64) (f finding, ok bool) {
	switch id {
	case catalog.GetGPURecoveryAction:
		f, ok = recoveryFindings[n]
	case catalog.FabricHealthMask:
		const ones = 0x55 // four parts have two bits each: 01 is unhealthy
		f = finding{"NVLINK", "DCGM_FR_FIELD_VIOLATION", healthFail}
		ok = n&ones&^(n>>1) != 0 || n>>8&15 > 1
	case catalog.FabricManagerStatus:
		f = finding{"NVLINK", "DCGM_FR_FABRIC_PROBE_STATE", healthFail}
		if n == catalog.FabricInProgress {
			f.result = healthWarn
		}
		ok = n != catalog.FabricNotSupported && n != catalog.FabricSuccess
	default:
		f, ok = counterFindings[id]
		ok = ok && n > 0
	}
	return f, ok
}

// readHealth reports the results of all health watches for the planned entities. Each code is reported once with its
// worst result, or the watch passes.
func (s *Session) readHealth(b *gpu.Batch, now int64, elapsed time.Duration) {
	if s.plan.Health == 0 {
		return
	}
	byField := map[int][]finding{} // by row: findings that follow from the samples
	for i := range b.Samples {
		x := &b.Samples[i]
		n, isInt := x.Value.Int64()
		f, ok := fieldFinding(s.plan.Fields[x.Field].ID, n)
		if ok && isInt && s.views[x.Row].dev.Entity.Kind == gpu.KindGPU {
			byField[x.Row] = append(byField[x.Row], f)
		}
	}
	for row := range s.views {
		d := s.views[row].dev
		if !s.plan.Health.Has(d.Entity.Kind) || s.down[row] {
			continue
		}
		found := append(s.found(row, now, elapsed), byField[row]...)
		for _, w := range watches {
			if w.of == d.Entity.Kind {
				s.addHealth(b, row, w, found, elapsed)
			}
		}
	}
}

// addHealth appends the results of a watch.
func (s *Session) addHealth(b *gpu.Batch, row int, w watch, found []finding, elapsed time.Duration) {
	first := len(b.Health)
	for _, f := range found {
		if f.watch != w.name {
			continue
		}
		code := catalog.FindingOf(cmp.Or(f.code, w.code)).Code
		i := slices.IndexFunc(b.Health[first:], func(h gpu.HealthCheck) bool { return h.Code == code })
		if i >= 0 {
			b.Health[first+i].Result = max(b.Health[first+i].Result, f.result)
			continue
		}
		check := gpu.HealthCheck{Row: row, Watch: w.name, Code: code, Result: f.result}
		check.NoLink = code == codeLinkDown && w.of == gpu.KindGPU && !s.isLinked(&s.views[row], elapsed)
		b.Health = append(b.Health, check)
	}
	if len(b.Health) == first {
		b.Health = append(b.Health, gpu.HealthCheck{Row: row, Watch: w.name})
	}
}

// found returns an entity's findings that do not come from fields: recent clock violations, XIDs since the engine
// started, and the scenario's faults.
func (s *Session) found(row int, now int64, elapsed time.Duration) (found []finding) {
	d, g := s.views[row].dev, s.views[row].gpu
	began := s.src.engineBegan(elapsed)
	if d.Entity.Kind == gpu.KindGPU {
		since := max(now-int64(time.Minute), s.src.start+int64(began))
		if g.powerCappedSince(since, s.src.world) {
			found = append(found, finding{"POWER", codePower, healthWarn})
		}
		if g.throttledFor(reasonsThermal, now) > g.throttledFor(reasonsThermal, since) {
			found = append(found, finding{"THERMAL", codeThermal, healthWarn})
		}
	}
	for f := range s.src.faults(faultXID) {
		for i, xid := range f.XIDs {
			at := f.occurs(i)
			if x, ok := xidFindings[xid]; ok && f.seenBy("engine") && f.on(d) && at >= began && at <= elapsed {
				found = append(found, x)
			}
		}
	}
	for f := range s.src.faults(faultHealth) {
		if !f.within(elapsed) || !f.on(d) {
			continue
		}
		result := int64(healthFail)
		if f.Result == "warn" {
			result = healthWarn
		}
		for _, name := range f.Watches {
			found = append(found, finding{name, f.Code, result})
		}
	}
	return found
}

// isLinked reports whether a GPU's link is up. Links without a peer or with a fault are down.
func (s *Session) isLinked(v *view, elapsed time.Duration) bool {
	w, links := s.src.world, v.board.NVLink
	hasPeer := slices.ContainsFunc(w.gpus, func(g worldGPU) bool { return !g.gone && w.linked(v.gpu, &g) })
	if links.Bridge && !hasPeer {
		return false
	}
	up := links.Links
	for link := range uint32(links.Links) {
		entity := gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindGPU, Parent: v.gpu.index}
		if s.src.active(faultLink, &gpu.Device{Entity: entity, Link: link}, elapsed) {
			up--
		}
	}
	return up > 0
}
