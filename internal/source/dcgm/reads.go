package dcgm

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Reads reports whether the source reads from an engine all that a plan names. It does not say that
// the engine and the hardware have it.
func Reads(p *gpu.Plan) bool {
	for i := range p.Fields {
		if !reads(&p.Fields[i]) {
			return false
		}
	}
	return true // health, peers and placement are the engine's too
}

// reads reports whether there is any kind of entities that the field is read for.
func reads(f *gpu.Field) bool {
	return slices.ContainsFunc(scopes[:], func(a scope) bool { return a.has(f) })
}
