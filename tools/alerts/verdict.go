package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/verdict"
)

// verdictTable returns the rules of the verdict, the most severe verdicts first.
func verdictTable() string {
	var b strings.Builder
	b.WriteString("| verdict | reason | signal | for | memory | what it means |\n|---|---|---|---|---|---|\n")
	for _, v := range []string{verdict.Replace, verdict.Drain, verdict.Unknown, verdict.Watch} {
		if v == verdict.Unknown {
			fmt.Fprintf(&b, "| `%s` | `lost`, `permission`, `timeout`, … | `dcgm_exporter_entity_up` is 0 "+
				"| – | – | The GPU cannot be read |\n", v)
			fmt.Fprintf(&b, "| `%s` | `%s` | the counters file lacks `%s` "+
				"| – | – | A family that the verdict needs is missing |\n",
				v, verdict.NoCounters, strings.Join(verdict.Families(), "`, `"))
		}
		for _, r := range verdict.Rules() {
			if r.Verdict == v {
				fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n",
					v, r.Reason, signal(&r.Signal), span(r.After), span(r.Memory), r.Meaning)
			}
		}
	}
	return b.String()
}

// signal describes a signal in words and in the notation of PromQL.
func signal(s *verdict.Signal) string {
	var names []string
	for _, id := range s.Fields {
		names = append(names, fieldName(id))
	}
	if s.Family != "" {
		matcher := ""
		if s.Untreated {
			matcher = fmt.Sprintf("{%s=\"\"}", catalog.TreatmentLabel)
		}
		if s.Label != "" {
			operator := map[bool]string{false: "=~", true: "!~"}[s.Except]
			matcher = fmt.Sprintf("{%s%s\"%s\"}", s.Label, operator, strings.Join(s.Values, `\|`))
		}
		names = append(names, "`"+s.Family+matcher+"`")
	}
	name := strings.Join(names, " + ")
	switch {
	case s.Test == verdict.Lost:
		return "`dcgm_exporter_entity_up{reason=\"lost\"}` is 0"
	case s.Test == verdict.Grows:
		return name + " grows"
	case s.Test == verdict.Recent:
		return name + " is within the memory"
	case s.Count != 0:
		return fmt.Sprintf("%s is %v and %s ≥ 1", name, s.Least, fieldName(s.Count))
	case s.Exact:
		return fmt.Sprintf("%s is %v", name, s.Least)
	default:
		return fmt.Sprintf("%s ≥ %v", name, s.Least)
	}
}

func fieldName(id gpu.FieldID) string {
	e, _ := catalog.ByID(id)
	return "`" + e.Classic + "`"
}

// span formats a duration in minutes or hours. Zero is "–".
func span(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
}

// findingsTable returns the health findings: those that alerts and the verdict do not use, then the active ones.
func findingsTable() string {
	var b strings.Builder
	b.WriteString("| `health_error_code` | severity | category | treatment | why |\n|---|---|---|---|---|\n")
	for _, active := range []bool{false, true} {
		for _, f := range catalog.Findings() {
			if active != (f.Treatment == catalog.Active) {
				continue
			}
			treatment := string(f.Treatment)
			if f.Treatment == catalog.BySeries {
				treatment = "superseded by `" + f.By + "`"
			}
			if f.Watch != "" {
				treatment += ", under " + f.Watch + " only"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Code, f.Severity, f.Category, treatment, f.Why)
		}
	}
	return b.String()
}
