package exposition

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// isWhole reports whether name is that of a field of GPUs that none of their instances has.
func isWhole(name string) bool {
	named, ok := catalog.Lookup(name)
	return ok && !named.Entry.Levels.Has(gpu.KindGPUInstance) &&
		(named.Entry.Levels.Has(gpu.KindGPU) || named.Entry.Levels.Has(gpu.KindNode))
}

// isMachine reports whether name is that of a field of the machine itself, such as the driver's
// version.
func isMachine(name string) bool {
	named, ok := catalog.Lookup(name)
	return ok && named.Entry.Levels.Has(gpu.KindNode)
}
