package counters

import (
	"cmp"
	"strings"
	"time"

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

	Included bool          // the line includes a built-in file that has the request
	Interval time.Duration // of the watch group; 0 for none
}

// NewRequest returns the request for a name, or a Problem if the name cannot be exported as that type. If help is
// empty, the catalog's help is used.
func NewRequest(name string, typ gpu.MetricType, help string) (Request, error) {
	r := Request{Name: name, Type: typ, Help: strings.Join(strings.Fields(help), " ")} // join lines
	if f := catalog.FamilyNamed(name); f != nil && f.Group == catalog.Requested {
		r.Family, help = f, f.HelpLine()
	} else {
		r.Named, _ = catalog.Lookup(name)
		help = helpFor(r.Named)
	}
	r.Help = cmp.Or(r.Help, help)
	if what, expected := r.unfit(); what != "" {
		return Request{}, Problem{Text: name, What: what, Expected: expected}
	}
	return r, nil
}

// unfit returns why a name cannot be exported as its type, and what was expected. Both are empty if it can.
func (r *Request) unfit() (what, expected string) {
	e := &r.Named.Entry
	switch {
	case r.Family != nil && r.Type == gpu.MetricLabel:
		return "type label for the exporter family", "type gauge or counter"
	case r.Family != nil:
		return "", ""
	case r.Named.Name == "":
		return unknownField, "a DCGM field or an exporter family"
	case e.Type == catalog.Marker:
		return "name of a range of IDs", "the name of a field"
	case e.Type == catalog.Binary:
		return "field that holds a structure", "a field that holds a number or a text"
	case e.Levels == 0:
		return "field of vGPUs, which the exporter does not watch",
			"a field of GPUs, MIG instances, links, switches, CPUs, CPU cores, ConnectX cards or the machine"
	case e.Type == catalog.Text && r.Type != gpu.MetricLabel:
		return "type " + r.Type.String() + " for the text", "type label"
	default:
		return "", ""
	}
}

// helpUnits has the units that help texts write in their own way.
var helpUnits = map[gpu.Unit]string{
	"": "", catalog.Ratio: " (0 to 1)", catalog.Percent: " (in %)", catalog.Celsius: " (in degrees C)",
}

// helpFor returns the catalog's help for a name, with the unit.
func helpFor(n catalog.Named) string {
	in, ok := helpUnits[n.Unit]
	if !ok {
		in = " (in " + string(n.Unit) + ")"
	}
	return n.Entry.Help + in + "."
}
