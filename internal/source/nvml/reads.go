//go:build linux && cgo

package nvml

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Reads reports whether this source can read every field of a plan, if driver and hardware support them.
func Reads(p *gpu.Plan) bool {
	for i := range p.Fields {
		if !reads(&p.Fields[i]) {
			return false
		}
	}
	return p.Health == 0 // NVML has peers and placement
}

// reads reports whether NVML can read a field for at least one kind of entity.
func reads(f *gpu.Field) bool {
	_, ok := specOf(f.ID)
	entry, _ := catalog.ByID(f.ID)
	return ok && entry.Unit == f.Unit || f.ID == catalog.XIDErrors
}
