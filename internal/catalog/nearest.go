package catalog

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Nearest returns the known name closest to the given one, or "" if none is similar. It ignores case. A truncated name
// is completed to the shortest known one, unless another name is only a typing error (two letters) away.
func Nearest(name string) string {
	written := strings.TrimSpace(name)
	name = strings.ToUpper(written)
	if name == "" || len(name) > text.Longest {
		return ""
	}
	// Allow a third of the letters to be wrong, but never so many that any short name would match.
	limit := min(len(name)/3, 12)
	best, longer := "", ""
	var candidates []string
	for _, f := range Families(Requested) {
		candidates = append(candidates, f.Name)
	}
	for _, known := range append(candidates, slices.Sorted(maps.Keys(index()))...) {
		upper := strings.ToUpper(known)
		if written == name && known != upper { // names of 1.x are in lower case
			continue
		}
		if strings.HasPrefix(upper, name+"_") && (longer == "" || len(known) < len(longer)) {
			longer = known
		}
		if d := text.Distance(name, upper, limit); d <= wrong(name, upper) && (d < limit || d == limit && best == "") {
			best, limit = known, d
		}
	}
	if longer != "" && (best == "" || limit > 2) {
		return longer
	}
	return best
}

// wrong returns how many letters of a name may be wrong: a third of them, without the common prefix.
func wrong(a, b string) int {
	longer := max(len(a), len(b))
	for _, prefix := range []string{"DCGM_FI_DEV_", "DCGM_FI_PROF_", "DCGM_FI_", "DCGM_EXP_", "DCGM_"} {
		if strings.HasPrefix(a, prefix) && strings.HasPrefix(b, prefix) {
			return (longer - len(prefix)) / 3
		}
	}
	return longer / 3
}
