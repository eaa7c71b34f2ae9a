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
