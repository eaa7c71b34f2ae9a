package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A watch is one of the engine's health watches of GPUs, with the error of faults that name none.
type watch struct{ name, code string }

// watches are the health watches of GPUs in the order of their bits (dcgmHealthSystems_t), and the
// watch of all at once. The errors are dcgm_errors.h's.
var watches = [...]watch{
	{"PCIE", "DCGM_FR_PCI_REPLAY_RATE"},
	{"NVLINK", "DCGM_FR_NVLINK_DOWN"},
	{"PMU", "DCGM_FR_UNKNOWN"},
	{"MCU", "DCGM_FR_UNKNOWN"},
	{"MEM", "DCGM_FR_VOLATILE_DBE_DETECTED"},
	{"SM", "DCGM_FR_UNKNOWN"},
	{"INFOROM", "DCGM_FR_CORRUPT_INFOROM"},
	{"THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL"},
	{"POWER", "DCGM_FR_CLOCK_THROTTLE_POWER"},
	{"DRIVER", "DCGM_FR_XID_ERROR"},
	{"ALL", "DCGM_FR_FALLEN_OFF_BUS"},
}

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

// readHealth reports the result of every health watch of every GPU.
func (s *Session) readHealth(b *gpu.Batch, elapsed time.Duration) {
	for row := range s.views {
		d := s.views[row].dev
		if d.Entity.Kind != gpu.KindGPU || s.down[row] {
			continue
		}
		for _, w := range watches {
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
			b.Health = append(b.Health, check)
		}
	}
}
