package accounting

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// inputs holds the plan indexes of the fields that attribution needs.
type inputs struct {
	slices, energy, util, memory, engine int
	present                              bool
}

func indexOf(plan *gpu.Plan, id gpu.FieldID) int {
	return slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == id })
}

// inputsOf finds the inputs of a plan that Extend returned. In other plans they are absent.
func inputsOf(plan *gpu.Plan) inputs {
	in := inputs{
		slices: indexOf(plan, catalog.MIGMaxSlices), energy: indexOf(plan, catalog.TotalEnergyConsumption),
		util: indexOf(plan, catalog.GPUUtil), memory: indexOf(plan, catalog.FBUsed),
		engine: indexOf(plan, catalog.ProfGREngineActive),
	}
	in.present = min(in.slices, in.energy, in.util, in.memory, in.engine) >= 0
	return in
}

// Extend returns plan with the fields that accounting needs. Fields that were not requested are read, but no counter
// shows them. An added engine activity field is read only for GPU instances, because whole GPUs report utilization
// without the profiling module.
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
		entry, _ := catalog.ByID(x.id) // always found; a test checks this
		f := entry.Field()
		f.Levels = x.levels
		extended.Fields = append(extended.Fields, f)
	}
	return &extended
}
