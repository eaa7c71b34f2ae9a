package verdict

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// Table returns the rules as a table in Markdown, the most severe verdicts first.
func Table() string {
	var b strings.Builder
	b.WriteString("| verdict | reason | signal | for | memory | what it means |\n|---|---|---|---|---|---|\n")
	for _, v := range slices.Backward(verdicts[:]) {
		if v == Unknown {
			fmt.Fprintf(&b, "| `%s` | `lost`, `permission`, `timeout`, … | `dcgm_exporter_entity_up` is 0 "+
				"| – | – | The GPU cannot be read |\n", v)
			fmt.Fprintf(&b, "| `%s` | `%s` | the counters file lacks `%s` "+
				"| – | – | A family that the verdict needs is missing |\n",
				v, NoCounters, strings.Join(Families(), "`, `"))
		}
		for i := range table {
			if x := &table[i]; x.verdict == v {
				fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n",
					v, x.reason, x.signal, Span(x.after), Span(x.memory), x.what)
			}
		}
	}
	return b.String()
}

// Reasons returns the meaning of each reason of a verdict other than ok.
func Reasons() map[string]string {
	all := map[string]string{NoCounters: "the counters file lacks lines that the verdict needs"}
	for i := range table {
		all[table[i].reason] = table[i].what
	}
	return all
}

// String describes the signal in words and in the notation of PromQL.
func (s signal) String() string {
	if s.lost {
		return "`dcgm_exporter_entity_up{reason=\"lost\"}` is 0"
	}
	var names []string
	for _, id := range s.fields {
		e, _ := catalog.ByID(id)
		names = append(names, "`"+e.Classic+"`")
	}
	if s.family != "" {
		matcher := ""
		if s.active {
			matcher = fmt.Sprintf("{%s=\"\"}", catalog.TreatmentLabel)
		}
		if s.label != "" {
			operator := map[bool]string{false: "=~", true: "!~"}[s.except]
			matcher = fmt.Sprintf("{%s%s%q}", s.label, operator, strings.Join(s.values, `\|`))
		}
		names = append(names, "`"+strings.ReplaceAll(s.family+matcher, `\\|`, `\|`)+"`")
	}
	name := strings.Join(names, " + ")
	switch {
	case s.test == grows:
		return name + " grows"
	case s.test == recent:
		return name + " is within the memory"
	case s.most > s.least:
		return fmt.Sprintf("%s ≥ %v", name, s.least)
	case s.count != 0:
		e, _ := catalog.ByID(s.count)
		return fmt.Sprintf("%s is %v and `%s` ≥ 1", name, s.least, e.Classic)
	default:
		return fmt.Sprintf("%s is %v", name, s.least)
	}
}

// Span formats a duration in minutes or hours. Zero is "–".
func Span(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	default:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
}

// FindingsTable returns the table in Markdown: the findings that alerts and the verdict do not use, then the active
// ones.
func FindingsTable() string {
	var b strings.Builder
	b.WriteString("| `health_error_code` | severity | category | treatment | why |\n|---|---|---|---|---|\n")
	for _, active := range []bool{false, true} {
		for _, f := range catalog.Findings() {
			if active != (f.Treatment == catalog.Active) {
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Code, f.Severity, f.Category, treatmentOf(&f), f.Why)
		}
	}
	return b.String()
}

func treatmentOf(f *catalog.Finding) string {
	words := string(f.Treatment)
	if f.Treatment == catalog.BySeries {
		words = "superseded by `" + f.By + "`"
	}
	if f.Watch != "" {
		words += ", under " + f.Watch + " only"
	}
	return words
}
