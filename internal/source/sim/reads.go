package sim

import (
	"cmp"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Reads reports whether simulated nodes can have every field of a plan. Whether a particular node has a field depends
// on its hardware.
func Reads(p *gpu.Plan) bool {
	for i := range p.Fields {
		f := &p.Fields[i]
		if !slices.ContainsFunc(f.Levels.List(), func(kind gpu.Kind) bool { return plays(f.ID, kind) }) {
			return false
		}
	}
	return true // health, peers and placement are simulated too
}

// plays reports whether entities of a kind can have a field.
func plays(id gpu.FieldID, kind gpu.Kind) bool {
	entry, known := catalog.ByID(id)
	if r := ruleFor(cmp.Or(entry.BaseOf, id), kind); r != nil {
		return !r.gen.none()
	}
	return known && entry.Exportable()
}
