package counters

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Values of Problem.What for which the sentence suggests a name.
const (
	unknownField = "unknown field"
	unknownType  = "unknown type"
	unknownFile  = "no built-in counters file"
)

// A Problem is a mistake in a counters file.
type Problem struct {
	File     string
	Line     int    // from 1; 0 if the problem concerns the whole file
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
