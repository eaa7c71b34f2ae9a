package exposition

import (
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxXIDs bounds the codes that are remembered: NVIDIA's catalogue ends far
// below, and what lies above comes from a broken engine.
const maxXIDs = 1024

// xidLabels gives the labels that belong to XIDs. Its zero value is ready.
type xidLabels struct {
	known map[int64][2]gpu.Label
}

// isXID reports whether name, of either vocabulary, is that of the XID field.
func isXID(name string) bool {
	named, ok := catalog.Lookup(name)
	return ok && named.Entry.ID == catalog.XIDErrors
}

// isWhole reports whether name is that of a field of GPUs that none of their
// instances has.
func isWhole(name string) bool {
	named, ok := catalog.Lookup(name)
	return ok && !named.Entry.Levels.Has(gpu.KindGPUInstance) &&
		(named.Entry.Levels.Has(gpu.KindGPU) || named.Entry.Levels.Has(gpu.KindNode))
}

// isMachine reports whether name is that of a field of the machine itself, such
// as the driver's version.
func isMachine(name string) bool {
	named, ok := catalog.Lookup(name)
	return ok && named.Entry.Levels.Has(gpu.KindNode)
}

// isEvents reports whether name is that of a family which dcgm-exporter derives
// from the events of a GPU, and repeats for its instances.
func isEvents(name string) bool {
	switch name {
	case catalog.XIDErrorsCount, catalog.XIDErrorsTotal,
		catalog.ClockEventsCount, catalog.ClockEventsTotal:
		return true
	default:
		return false
	}
}

// of returns err_code and err_msg for the XID v.
func (x *xidLabels) of(v gpu.Value) [2]gpu.Label {
	n, _ := v.Number()
	code := int64(n)
	if labels, ok := x.known[code]; ok {
		return labels
	}
	labels := [2]gpu.Label{
		{Name: "err_code", Value: strconv.FormatInt(code, 10)},
		{Name: "err_msg", Value: catalog.XIDMessage(code)},
	}
	if x.known == nil {
		x.known = map[int64][2]gpu.Label{}
	}
	if code >= 0 && code < maxXIDs {
		x.known[code] = labels
	}
	return labels
}
