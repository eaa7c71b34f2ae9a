package counters

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Problem.What of problems with a nearest name.
const (
	unknownField = "unknown field"
	unknownType  = "unknown type"
)

// A Problem is a mistake in one line of a counters file.
type Problem struct {
	File     string
	Line     int    // from 1; 0 where the problem is the file's
	Text     string // the line or the wrong part of it
	What     string // the mistake, as in "unknown field"
	Expected string // "" where nothing can be said
	Nearest  string // the known name that was probably meant; "" where none is alike
	Warning  bool   // the line is used nevertheless
}

// String returns one sentence of all of it.
func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	s += ": " + p.What
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

// withNearest returns the problem with the name that was probably meant. It is the expensive part of a problem.
func (p Problem) withNearest() Problem {
	switch p.What {
	case unknownField:
		p.Nearest = catalog.Nearest(p.Text)
	case unknownType:
		word := strings.ToLower(p.Text)
		for _, typ := range []string{"counter", "gauge", "label", "untyped"} {
			if text.Distance(word, typ, 2) <= 2 {
				p.Nearest = typ
			}
		}
	}
	return p
}
