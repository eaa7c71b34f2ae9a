package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A watch is one of the engine's health watches of GPUs, and the error that a scenario gives it
// that names none.
type watch struct{ name, code string }

// watches are the health watches of GPUs in the order of their bits (dcgmHealthSystems_t) and that
// of all at once, with errors of dcgm_errors.h.
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

// parseHealth reads what a fault of health watches says.
func (f *fault) parseHealth(s *faultSpec) error {
	for _, name := range s.Watches {
		i := slices.IndexFunc(watches[:], func(w watch) bool { return w.name == name })
		if i < 0 {
			names := make([]string, len(watches))
			for i := range watches {
				names[i] = watches[i].name
			}
			return fmt.Errorf("unknown health watch %q, %s", name, text.Suggest(name, names))
		}
		f.watches |= 1 << i
	}
	f.result = healthFail
	if s.Result != nil {
		switch *s.Result {
		case "warn":
			f.result = healthWarn
		case "fail":
		default:
			return fmt.Errorf("result is %q, expected warn or fail", *s.Result)
		}
	}
	if s.Code != nil {
		if f.code = *s.Code; !strings.HasPrefix(f.code, "DCGM_FR_") {
			return fmt.Errorf("code is %q, expected a name of dcgm_errors.h such as DCGM_FR_NVLINK_DOWN", f.code)
		}
	}
	return nil
}

// readHealth reports the result of every health watch of every GPU.
func (s *Session) readHealth(b *gpu.Batch, now int64, elapsed time.Duration) {
	for row := range s.views {
		d := s.views[row].dev
		if d.Entity.Kind != gpu.KindGPU || s.down[row] {
			continue
		}
		first := len(b.Health)
		for i := range watches {
			b.Health = append(b.Health, gpu.HealthCheck{Row: row, Watch: watches[i].name, Result: healthPass, Time: now})
		}
		s.src.faults(faultHealth, func(f *fault) bool {
			for i := range watches {
				if f.watches&(1<<i) == 0 || !f.within(elapsed) || !f.on(d) {
					continue
				}
				check := &b.Health[first+i]
				check.Result = f.result
				if check.Code = f.code; check.Code == "" {
					check.Code = watches[i].code
				}
			}
			return true
		})
	}
}
