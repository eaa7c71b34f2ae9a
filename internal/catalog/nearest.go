package catalog

import (
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Nearest returns the known name that is most like the given one, or "" where
// none is alike. Derived names count; case does not.
func Nearest(name string) string {
	name = strings.ToUpper(strings.TrimSpace(name))
	if name == "" || len(name) > text.Longest {
		return ""
	}
	// A third of the letters may be wrong, but never so many that any short
	// name would do.
	limit := min(len(name)/3, 12)
	best := ""
	consider := func(known string) {
		d := text.Distance(name, strings.ToUpper(known), limit)
		if d < limit || d == limit && (best == "" || known < best) {
			best, limit = known, d
		}
	}
	for known := range index() {
		consider(known)
	}
	for i := range families {
		consider(families[i].Name)
	}
	return best
}
