package accounting

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The fields that attribution divides among owners (dcgm_fields.h).
const (
	fieldMIGSlices  gpu.FieldID = 69   // DCGM_FI_DEV_MIG_MAX_SLICES
	fieldEnergy     gpu.FieldID = 156  // DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION
	fieldGPUUtil    gpu.FieldID = 203  // DCGM_FI_DEV_GPU_UTIL
	fieldMemoryUsed gpu.FieldID = 252  // DCGM_FI_DEV_FB_USED
	fieldEngine     gpu.FieldID = 1001 // DCGM_FI_PROF_GR_ENGINE_ACTIVE
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
	in := inputs{slices: at(fieldMIGSlices), energy: at(fieldEnergy), util: at(fieldGPUUtil), memory: at(fieldMemoryUsed), engine: at(fieldEngine)}
	in.present = min(in.slices, in.energy, in.util, in.memory, in.engine) >= 0
	return in
}

// Extend returns plan with the fields that accounting divides. What the user did not ask for is read
// all the same, but no counter shows it. The engine's activity is requested of GPU instances alone
// then, and of compute instances where they are selected: whole GPUs report their utilization
// without the profiling module.
func Extend(plan *gpu.Plan) *gpu.Plan {
	extended := *plan
	extended.Fields = slices.Clone(plan.Fields)
	add := func(id gpu.FieldID, levels gpu.Kinds) {
		if slices.ContainsFunc(extended.Fields, func(f gpu.Field) bool { return f.ID == id }) {
			return
		}
		entry, _ := counters.ByID(id) // the catalogue has them all; a test holds that
		f := entry.Field()
		f.Levels = levels
		extended.Fields = append(extended.Fields, f)
	}
	whole, instance := gpu.KindsOf(gpu.KindGPU), gpu.KindsOf(gpu.KindGPUInstance)
	active := instance
	if plan.Devices.Compute {
		active |= gpu.KindsOf(gpu.KindComputeInstance)
	}
	add(fieldMIGSlices, whole)
	add(fieldEnergy, whole)
	add(fieldGPUUtil, whole)
	add(fieldMemoryUsed, whole|instance)
	add(fieldEngine, active)
	return &extended
}
