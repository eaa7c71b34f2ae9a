package collector

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

// shareInputs are where attribution finds a device's own values: indexes of
// the plan's fields.
type shareInputs struct{ slices, energy, util, memory, engine int }

// present reports whether there are any: a plan without attributors has none.
func (in shareInputs) present() bool { return in != shareInputs{} }

// withShareInputs returns plan with the fields that attribution divides, and
// where they are. What the user did not ask for is read all the same, but no
// counter shows it. The engine's activity is asked of GPU instances alone then,
// and of compute instances where they are selected: whole GPUs tell their
// utilisation without the profiling module.
func withShareInputs(plan *gpu.Plan) (*gpu.Plan, shareInputs) {
	extended := *plan
	extended.Fields = slices.Clone(plan.Fields)
	index := func(id gpu.FieldID, levels gpu.Kinds) int {
		at := slices.IndexFunc(extended.Fields, func(f gpu.Field) bool { return f.ID == id })
		if at >= 0 {
			return at
		}
		entry, _ := counters.ByID(id) // the catalogue has them all; a test holds that
		f := entry.Field()
		f.Levels = levels
		extended.Fields = append(extended.Fields, f)
		return len(extended.Fields) - 1
	}
	whole, instance := gpu.KindsOf(gpu.KindGPU), gpu.KindsOf(gpu.KindGPUInstance)
	active := instance
	if plan.Devices.Compute {
		active |= gpu.KindsOf(gpu.KindComputeInstance)
	}
	in := shareInputs{
		slices: index(fieldMIGSlices, whole),
		energy: index(fieldEnergy, whole),
		util:   index(fieldGPUUtil, whole),
		memory: index(fieldMemoryUsed, whole|instance),
		engine: index(fieldEngine, active),
	}
	return &extended, in
}
