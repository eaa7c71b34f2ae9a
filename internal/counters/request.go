package counters

import (
	"io"

	"github.com/gocarina/gocsv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Request requests one family (or label) by name.
type Request struct {
	// Name is the name to export, as it was written.
	Name string
	Type gpu.MetricType
	Help string
	// Family is the exporter family that is requested; nil for a field.
	Family *catalog.Family
	// Named is what the name means. It is empty for an exporter family.
	Named catalog.Named
	// Line is the line of the file, from 1; 0 where the request comes from elsewhere.
	Line int
}

// NewRequest returns the request for a name that did not come from a counters file, or a Problem if
// the name cannot be exported as that type. An empty help gets the catalog's.
func NewRequest(name string, typ gpu.MetricType, help string) (Request, error) {
	request, problem := resolve(name, typ, help)
	if problem.What != "" {
		return Request{}, problem.withNearest()
	}
	return request, nil
}

// helpFor returns the catalog's help for a name: what it is, and its unit.
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

// Print writes requests as a counters file that Parse reads back as the same requests.
func Print(w io.Writer, requests []Request) error {
	lines := make([]line, len(requests))
	for i, r := range requests {
		lines[i] = line{Field: r.Name, Type: r.Type.String(), Help: r.Help}
	}
	return gocsv.MarshalWithoutHeaders(lines, w)
}
