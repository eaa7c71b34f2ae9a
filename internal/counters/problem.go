package counters

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// What is wrong in the cases that have a nearest name.
const (
	unknownField = "unknown field"
	unknownType  = "unknown type"
)

// A Problem is what is wrong with one line of a counters file. It says one clear sentence.
type Problem struct {
	File string
	Line int    // from 1; 0 where the problem is the file's
	Text string // the line or the part of it that is wrong
	// What is wrong, as in "unknown field".
	What string
	// Expected is what was expected instead, if anything can be said.
	Expected string
	// Nearest is the known name that was probably meant, if one is alike.
	Nearest string
	// Warning is set where the line is used nevertheless.
	Warning bool
}

// String returns the sentence: file, line, what was found, what was expected and the nearest right
// name.
func (p Problem) String() string {
	var s strings.Builder
	s.WriteString(p.File)
	if p.Line > 0 {
		s.WriteByte(':')
		s.WriteString(strconv.Itoa(p.Line))
	}
	s.WriteString(": ")
	s.WriteString(p.What)
	if p.Text != "" {
		s.WriteByte(' ')
		s.WriteString(strconv.Quote(p.Text))
	}
	if p.Expected != "" {
		s.WriteString(": expected ")
		s.WriteString(p.Expected)
	}
	if p.Nearest != "" {
		s.WriteString("; did you mean ")
		s.WriteString(p.Nearest)
		s.WriteByte('?')
	}
	return s.String()
}

// Error makes a Problem an error with the same sentence.
func (p Problem) Error() string { return p.String() }

// withNearest returns the problem with the name that was probably meant. It is the expensive part
// of reporting a problem.
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
