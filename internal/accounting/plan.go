package accounting

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func indexOf(plan *gpu.Plan, id gpu.FieldID) int {
	return slices.IndexFunc(plan.Fields, func(f gpu.Field) bool { return f.ID == id })
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
