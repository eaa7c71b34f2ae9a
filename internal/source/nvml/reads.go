//go:build linux && cgo

package nvml

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Reads reports whether the source reads every field of a plan, where driver and hardware have it.
func Reads(p *gpu.Plan) bool {
	for i := range p.Fields {
		if !reads(&p.Fields[i]) {
			return false
		}
	}
	return p.Health == 0 // peers and placement are NVML's too
}

// reads reports whether a field is read for any kind of entities.
func reads(f *gpu.Field) bool {
	sp, ok := specOf(f.ID)
	return ok && sp.unit == f.Unit || f.ID == catalog.XIDErrors
}
