package counters

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A Request requests one family (or label) by name.
type Request struct {
	Name   string // exported name, as written
	Type   gpu.MetricType
	Help   string
	Family *catalog.Family // the exporter family; nil for a field
	Named  catalog.Named   // the field; empty for an exporter family
	Line   int             // line in the file, from 1; 0 if the request comes from elsewhere

	Included bool          // the request comes from a built-in file that the line includes
	Interval time.Duration // interval of the watch group; 0 for none
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

// helpUnits maps units to the form that help texts use.
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

// Translate returns the requests in a vocabulary.
//
// Lines of a user's file keep their names in every vocabulary, and Both adds the other names. In a shipped file,
// included or not, Current replaces the names. It also adds the frame buffer size after the reserved size, as 4.9 does.
// Both exports all names. Names of dcgm-exporter 1.x belong to neither vocabulary and stay.
//
// Each name is requested once. Added and replaced families use the catalog's help, which has the new unit. They are
// gauges if their values are rates.
func Translate(requests []Request, v catalog.Vocabulary, shipped bool) []Request {
	if v != catalog.Current && v != catalog.Both {
		return slices.Clone(requests)
	}
	requested := make(map[string]bool, len(requests))
	for _, r := range requests {
		requested[r.Name] = true
	}
	out := make([]Request, 0, 2*len(requests))
	for _, r := range requests {
		shipped := shipped || r.Included
		other, ok := r.other()
		adds := ok && !requested[other.Name] && (v == catalog.Both || shipped)
		if !adds || v == catalog.Both {
			out = append(out, r)
		}
		if adds {
			requested[other.Name] = true
			out = append(out, other)
		}
		if size, _ := catalog.ByID(catalog.FBTotal); shipped && r.Named.Entry.ID == catalog.FBReserved &&
			!requested[size.Current] {
			extra, _ := NewRequest(size.Current, gpu.MetricGauge, "") // cannot fail: the catalog has the name
			requested[extra.Name] = true
			out = append(out, extra)
		}
	}
	return out
}

// other returns the same request under its name in the other vocabulary, if that differs.
func (r Request) other() (Request, bool) {
	_, named, ok := catalog.Rename(r.Name, catalog.Current)
	if !ok {
		_, named, ok = catalog.Rename(r.Name, catalog.Classic)
	}
	r.Name, r.Named, r.Help = named.Name, named, helpFor(named)
	if r.Type == gpu.MetricCounter && strings.HasSuffix(string(named.Unit), "/s") { // a rate cannot be a counter
		r.Type = gpu.MetricGauge
	}
	return r, ok
}

// Values of Problem.What for which the sentence suggests a name.
const (
	unknownField = "unknown field"
	unknownType  = "unknown type"
	unknownFile  = "no built-in counters file"
)

// A Problem is a mistake in a counters file.
type Problem struct {
	File     string
	Line     int    // line number from 1; 0 if the problem concerns the whole file
	Text     string // the line or its invalid part
	What     string // the mistake, such as "unknown field"
	Expected string // what was expected, or "" if unknown
	Warning  bool   // the line is used anyway
}

// Error returns the problem as one sentence. For unknown names it searches the catalog, which is expensive.
func (p Problem) Error() string {
	s := (&text.SyntaxError{File: p.File, Line: p.Line, Msg: p.What}).Error()
	if p.Text != "" {
		s += " " + strconv.Quote(p.Text)
	}
	if p.Expected != "" {
		s += ": expected " + p.Expected
	}
	if near := p.nearest(); near != "" {
		s += "; did you mean " + near + "?"
	}
	return s
}

// nearest returns the known name that was probably meant, or "" if none is similar.
func (p Problem) nearest() string {
	switch p.What {
	case unknownField:
		if id, err := strconv.ParseUint(p.Text, 10, 16); err == nil {
			e, _ := catalog.ByID(gpu.FieldID(id))
			return e.Classic
		}
		return catalog.Nearest(p.Text)
	case unknownType:
		return text.Nearest(strings.ToLower(p.Text), []string{"counter", "gauge", "label", "untyped"})
	case unknownFile:
		return text.Nearest(p.Text, etc.Names)
	default:
		return ""
	}
}
