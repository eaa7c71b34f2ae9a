package counters

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Values of Problem.What for which a nearest name is looked up.
const (
	unknownField = "unknown field"
	unknownType  = "unknown type"
)

// A Problem is a mistake in a counters file.
type Problem struct {
	File     string
	Line     int    // from 1; 0 if the problem concerns the whole file
	Text     string // the line or its invalid part
	What     string // the mistake, such as "unknown field"
	Expected string // what was expected, or "" if unknown
	Nearest  string // the known name that was probably meant, or "" if none is similar
	Warning  bool   // the line is used anyway
}

// String returns the problem as one sentence.
func (p Problem) String() string {
	s := (&text.SyntaxError{File: p.File, Line: p.Line, Msg: p.What}).Error()
	if p.Text != "" {
		s += " " + strconv.Quote(p.Text)
	}
	if p.Expected != "" {
		s += ": expected " + p.Expected
	}
	if p.Nearest != "" {
		s += "; did you mean " + p.Nearest + "?"
	}
	return s
}

// Error returns the same sentence.
func (p Problem) Error() string { return p.String() }

// withNearest adds the name that was probably meant. It is expensive.
func (p Problem) withNearest() Problem {
	switch p.What {
	case unknownField:
		p.Nearest = catalog.Nearest(p.Text)
		if id, err := strconv.ParseUint(p.Text, 10, 16); err == nil {
			e, _ := catalog.ByID(gpu.FieldID(id))
			p.Nearest = e.Classic
		}
	case unknownType:
		p.Nearest = text.Nearest(strings.ToLower(p.Text), []string{"counter", "gauge", "label", "untyped"})
	}
	return p
}
