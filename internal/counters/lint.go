package counters

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// Lint returns a warning for every request whose type does not suit the field: a counter that can go down, a gauge that only
// grows, a label that is a measurement. The type is used all the same.
func Lint(requests []Request, file string) []Problem {
	var problems []Problem
	for _, r := range requests {
		fits := r.Named.Entry.Monotonic
		if r.Family != nil {
			fits = r.Family.Type == gpu.MetricCounter
		}
		warn := Problem{File: file, Line: r.Line, Text: r.Name, Warning: true}
		switch {
		case r.Type == gpu.MetricCounter && !fits:
			warn.What, warn.Expected = "type counter for the value, which can go down, of", "type gauge"
		case r.Type == gpu.MetricGauge && fits:
			warn.What, warn.Expected = "type gauge for the value, which only grows, of", "type counter"
		case r.Type == gpu.MetricLabel && (fits || r.Named.Unit != ""):
			warn.What, warn.Expected = "type label for the number, each change of which begins new series, of", "type gauge"
			if fits {
				warn.Expected = "type counter"
			}
		default:
			continue
		}
		problems = append(problems, warn)
	}
	return problems
}
