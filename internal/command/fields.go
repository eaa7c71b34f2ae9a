package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

const fieldsUsage = `Usage: dcgm-exporter fields [WORD...]

Lists the fields that have every WORD in a name, in the description, in the unit
or as the id. Case does not matter. Without WORD it lists every field. CURRENT
is the name in 4.9 if that differs; a counters file can use either.

Exit code: 0 a field was found; 1 none was found; 2 an unknown flag.
`

// fields searches the catalog, for authors of counters files. It does not access hardware.
func fields(_ context.Context, p *Process) int {
	for _, arg := range p.Args {
		switch {
		case arg == "-h" || arg == "--help" || arg == "-help":
			_, _ = io.WriteString(p.Out, fieldsUsage)
			return OK
		case strings.HasPrefix(arg, "-"):
			return p.fail(Unable, fmt.Errorf("unknown flag %s: fields accepts only words", arg))
		}
	}
	found := catalog.Search(p.Args...)
	if len(found) == 0 {
		fmt.Fprintf(p.Err, "no field matches %q%s\n", strings.Join(p.Args, " "), similar(p.Args))
		return Faulty
	}
	t := tabwriter.NewWriter(p.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tID\tUNIT\tTYPE\tOF\tCURRENT\tWHAT")
	for _, e := range found {
		current, typ, of := e.Current, "-", "cannot be exported"
		if current == e.Classic {
			current = ""
		}
		if e.Exportable() {
			typ, of = metricType(e).String(), kinds(e.Levels)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n",
			e.Classic, e.ID, dash(string(e.Unit)), typ, of, dash(current), e.Help)
	}
	t.Flush() // ignore the error: it could not be printed either
	return OK
}

// metricType returns the metric type that suits a field in a counters file.
func metricType(e catalog.Entry) gpu.MetricType {
	switch {
	case e.Type == catalog.Text:
		return gpu.MetricLabel
	case e.Monotonic:
		return gpu.MetricCounter
	default:
		return gpu.MetricGauge
	}
}

// similar returns a question that suggests a field, or other words if one of the given words occurs nowhere. It returns
// "" if nothing is similar.
func similar(words []string) string {
	if near := catalog.Nearest(words[0]); near != "" && len(words) == 1 {
		return "; did you mean " + near + "?"
	}
	better := slices.Clone(words)
	for i, word := range words {
		if len(catalog.Search(word)) == 0 {
			better[i] = text.Nearest(strings.ToLower(word), catalog.Words())
		}
	}
	if slices.Contains(better, "") || len(catalog.Search(better...)) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(better, " ") + "?"
}
