package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A watch is one of the engine's health watches, with the error of faults that name none.
type watch struct {
	name, code string
	of         gpu.Kind
}

// watches are the health watches in the order of their bits (dcgmHealthSystems_t), that of all of a
// GPU's at once behind them. The errors are dcgm_errors.h's.
var watches = [...]watch{
	{"PCIE", "DCGM_FR_PCI_REPLAY_RATE", gpu.KindGPU},
	{"NVLINK", codeLinkDown, gpu.KindGPU},
	{"PMU", "DCGM_FR_UNKNOWN", gpu.KindGPU},
	{"MCU", "DCGM_FR_UNKNOWN", gpu.KindGPU},
	{"MEM", "DCGM_FR_VOLATILE_DBE_DETECTED", gpu.KindGPU},
	{"SM", "DCGM_FR_UNKNOWN", gpu.KindGPU},
	{"INFOROM", "DCGM_FR_CORRUPT_INFOROM", gpu.KindGPU},
	{"THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL", gpu.KindGPU},
	{"POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", gpu.KindGPU},
	{"DRIVER", "DCGM_FR_XID_ERROR", gpu.KindGPU},
	{"ALL", "DCGM_FR_FALLEN_OFF_BUS", gpu.KindGPU},
	{"NVSWITCH_NONFATAL", "DCGM_FR_NVSWITCH_NON_FATAL_ERROR", gpu.KindNVSwitch},
	{"NVSWITCH_FATAL", "DCGM_FR_NVSWITCH_FATAL_ERROR", gpu.KindNVSwitch},
	{"CONNECTX", "DCGM_FR_FIELD_VIOLATION", gpu.KindConnectX},
	{"IMEX", "DCGM_FR_IMEX_UNHEALTHY", gpu.KindNode},
}

// codeLinkDown is the error of a link without a connection.
const codeLinkDown = "DCGM_FR_NVLINK_DOWN"

// Results of health checks (dcgmHealthWatchResults_t).
const (
	healthPass = 0
	healthWarn = 10
	healthFail = 20
)

func watchNames() []string {
	names := make([]string, len(watches))
	for i := range watches {
		names[i] = watches[i].name
	}
	return names
}

// readHealth reports the result of every health watch of every entity that the plan names.
func (s *Session) readHealth(b *gpu.Batch, elapsed time.Duration) {
	for row := range s.views {
		d := s.views[row].dev
		if !s.plan.Health.Has(d.Entity.Kind) || s.down[row] {
			continue
		}
		for _, w := range watches {
			if w.of != d.Entity.Kind {
				continue
			}
			check := gpu.HealthCheck{Row: row, Watch: w.name, Result: healthPass}
			for f := range s.src.faults(faultHealth) {
				if !f.within(elapsed) || !f.on(d) || !slices.Contains(f.Watches, w.name) {
					continue
				}
				check.Code, check.Result = cmp.Or(f.Code, w.code), healthFail
				if f.Result == "warn" {
					check.Result = healthWarn
				}
			}
			check.NoLink = check.Code == codeLinkDown && w.of == gpu.KindGPU && !s.isLinked(&s.views[row], elapsed)
			b.Health = append(b.Health, check)
		}
	}
}

// isLinked reports whether a link of a GPU is up. Links without a peer, and links with a fault, are not.
func (s *Session) isLinked(v *view, elapsed time.Duration) bool {
	w, links := s.src.world, v.board.NVLink
	if links.Bridge && !slices.ContainsFunc(w.gpus, func(g worldGPU) bool { return !g.gone && w.linked(v.gpu, &g) }) {
		return false
	}
	down := slices.Collect(s.src.faults(faultLink))
	for link := range uint32(links.Links) {
		d := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindGPU, Parent: v.gpu.index}, Link: link}
		if !slices.ContainsFunc(down, func(f *fault) bool { return f.within(elapsed) && f.on(&d) }) {
			return true
		}
	}
	return false
}
