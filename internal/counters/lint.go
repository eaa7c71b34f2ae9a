package counters

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// Lint returns a warning for every request whose type does not suit the field: a counter that can go down, a gauge that
// only grows, or a label that is a measurement. It also warns of help texts that name a unit that the value does not
// have. Such requests are used as they are.
func Lint(requests []Request, file string) []Problem {
	var problems []Problem
	for i := range requests {
		r := &requests[i]
		warn := Problem{File: file, Line: r.Line, Text: r.Name, Warning: true}
		if warn.What, warn.Expected = r.wrongType(); warn.What != "" {
			problems = append(problems, warn)
		}
		if word := wrongUnit(r); word != "" {
			warn.What, warn.Expected = "help text names the unit "+word+" for", string(r.Named.Unit)
			problems = append(problems, warn)
		}
	}
	return problems
}

// IsMonotonic reports whether the value only grows.
func (r *Request) IsMonotonic() bool {
	if r.Family != nil {
		return r.Family.Type == gpu.MetricCounter
	}
	return r.Named.Entry.Monotonic
}

// wrongType says what is wrong with the type of a request, and which type is expected. Both are empty if the type fits.
func (r *Request) wrongType() (what, expected string) {
	monotonic := r.IsMonotonic()
	switch {
	case r.Type == gpu.MetricCounter && !monotonic:
		return "type counter, although the value can go down, for", "type gauge"
	case r.Type == gpu.MetricGauge && monotonic:
		return "type gauge, although the value only grows, for", "type counter"
	case r.Type == gpu.MetricLabel && monotonic:
		return "type label, although each new value creates new series, for", "type counter"
	case r.Type == gpu.MetricLabel && r.Named.Unit != "":
		return "type label, although each new value creates new series, for", "type gauge"
	default:
		return "", ""
	}
}
