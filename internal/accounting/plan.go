package accounting

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// inputs are where attribution finds a device's own values: indexes of the plan's fields.
type inputs struct {
	slices, energy, util, memory, engine int
	present                              bool
}

// inputsOf finds the inputs of a plan that Extend returned; they are not present in another one.
func inputsOf(plan *gpu.Plan) inputs {
	at := func(id gpu.FieldID) int {
		return slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == id })
	}
	in := inputs{slices: at(catalog.MIGMaxSlices), energy: at(catalog.TotalEnergyConsumption), util: at(catalog.GPUUtil), memory: at(catalog.FBUsed), engine: at(catalog.ProfGREngineActive)}
	in.present = min(in.slices, in.energy, in.util, in.memory, in.engine) >= 0
	return in
}

// Extend returns plan with the fields that accounting divides. What was not requested is read all
// the same, but no counter shows it. The engine's activity is requested of GPU instances alone
// then: whole GPUs report their utilization without the profiling module.
func Extend(plan *gpu.Plan) *gpu.Plan {
	extended := *plan
	extended.Fields, extended.Processes = slices.Clone(plan.Fields), true
	add := func(id gpu.FieldID, levels gpu.Kinds) {
		if slices.ContainsFunc(extended.Fields, func(f gpu.Field) bool { return f.ID == id }) {
			return
		}
		entry, _ := catalog.ByID(id) // the catalog has them all; a test checks that
		f := entry.Field()
		f.Levels = levels
		extended.Fields = append(extended.Fields, f)
	}
	whole, instance := gpu.KindsOf(gpu.KindGPU), gpu.KindsOf(gpu.KindGPUInstance)
	add(catalog.MIGMaxSlices, whole)
	add(catalog.TotalEnergyConsumption, whole)
	add(catalog.GPUUtil, whole)
	add(catalog.FBUsed, whole|instance)
	add(catalog.ProfGREngineActive, instance)
	return &extended
}
