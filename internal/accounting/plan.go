package accounting

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Inputs are where attribution finds a device's own values: indexes of the plan's fields.
type inputs struct {
	slices, energy, util, memory, engine int
	present                              bool
}

func indexOf(plan *gpu.Plan, id gpu.FieldID) int {
	return slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == id })
}

// inputsOf finds the inputs of a plan that Extend returned; they are not present in another one.
func inputsOf(plan *gpu.Plan) inputs {
	in := inputs{
		slices: indexOf(plan, catalog.MIGMaxSlices), energy: indexOf(plan, catalog.TotalEnergyConsumption),
		util: indexOf(plan, catalog.GPUUtil), memory: indexOf(plan, catalog.FBUsed), engine: indexOf(plan, catalog.ProfGREngineActive),
	}
	in.present = min(in.slices, in.energy, in.util, in.memory, in.engine) >= 0
	return in
}

// Extend returns plan with the fields that accounting divides. A field that was not requested is read
// all the same, and no counter shows it. The engine's activity is requested of GPU instances alone
// then: whole GPUs report their utilization without the profiling module.
func Extend(plan *gpu.Plan) *gpu.Plan {
	extended := *plan
	extended.Fields, extended.Processes = slices.Clone(plan.Fields), true
	whole, instance := gpu.KindsOf(gpu.KindGPU), gpu.KindsOf(gpu.KindGPUInstance)
	for _, x := range []struct {
		id     gpu.FieldID
		levels gpu.Kinds
	}{
		{catalog.MIGMaxSlices, whole},
		{catalog.TotalEnergyConsumption, whole},
		{catalog.GPUUtil, whole},
		{catalog.FBUsed, whole | instance},
		{catalog.ProfGREngineActive, instance},
	} {
		if indexOf(plan, x.id) >= 0 {
			continue
		}
		entry, _ := catalog.ByID(x.id) // the catalog has them all; a test checks that
		f := entry.Field()
		f.Levels = x.levels
		extended.Fields = append(extended.Fields, f)
	}
	return &extended
}
