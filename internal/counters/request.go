package counters

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Request requests one family (or label) by name.
type Request struct {
	Name   string // exported name, as written
	Type   gpu.MetricType
	Help   string
	Family *catalog.Family // the exporter family; nil for a field
	Named  catalog.Named   // the field; empty for an exporter family
	Line   int             // line in the file, from 1; 0 if the request comes from elsewhere

	Included bool // the line includes a built-in file that has the request
}

// NewRequest returns a request that does not come from a counters file, or a Problem if the name cannot be exported as
// that type. If help is empty, the catalog's help is used.
func NewRequest(name string, typ gpu.MetricType, help string) (Request, error) {
	request, problem := resolve(name, typ, help)
	if problem.What != "" {
		return Request{}, problem.withNearest()
	}
	return request, nil
}

// helpFor returns the catalog's help for a name, with the unit.
func helpFor(n catalog.Named) string {
	switch n.Unit {
	case "":
		return n.Entry.Help + "."
	case catalog.Ratio:
		return n.Entry.Help + " (0 to 1)."
	case catalog.Percent:
		return n.Entry.Help + " (in %)."
	case catalog.Celsius:
		return n.Entry.Help + " (in degrees C)."
	default:
		return n.Entry.Help + " (in " + string(n.Unit) + ")."
	}
}
