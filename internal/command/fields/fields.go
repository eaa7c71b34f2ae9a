package fields

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const name = "fields"

// Usage is the text of "fields --help".
const Usage = `Usage: dcgm-exporter fields [WORD...]

Lists the fields that have every WORD in a name, the description, the unit or
as their id; without WORD every field. Case does not matter. CURRENT is the name
of 4.9 where it differs; a counters file can use either.

Exit code: 0 something was found; 1 nothing was; 2 an unknown flag.
`

// A Command is the subcommand.
type Command struct{ command.Process }

// Run searches and returns the exit code.
func (c Command) Run() int {
	for _, arg := range c.Args {
		switch {
		case arg == "-h" || arg == "--help":
			fmt.Fprint(c.Out, Usage)
			return command.OK
		case strings.HasPrefix(arg, "-"):
			return c.Fail(name, fmt.Errorf("unknown flag %s: fields takes words alone", arg))
		}
	}
	found := catalog.Search(c.Args...)
	if len(found) == 0 {
		fmt.Fprintf(c.Err, "no field has %q", strings.Join(c.Args, " "))
		if len(c.Args) == 1 {
			if near := catalog.Nearest(c.Args[0]); near != "" {
				fmt.Fprintf(c.Err, "; did you mean %s?", near)
			}
		}
		fmt.Fprintln(c.Err)
		return command.Faulty
	}
	t := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tID\tUNIT\tTYPE\tOF\tCURRENT\tWHAT")
	for _, e := range found {
		current, unit := e.Current, string(e.Unit)
		if current == e.Classic {
			current = "-"
		}
		if unit == "" {
			unit = "-"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", e.Classic, e.ID, unit, metricType(e), entities(e), current, e.Help)
	}
	t.Flush() // a failing standard output has no other place to report to
	return command.OK
}

// metricType is the type that suits the field in a counters file, "-" for a field that cannot be
// exported.
func metricType(e catalog.Entry) string {
	switch {
	case !e.Exportable():
		return "-"
	case e.Type == catalog.Text:
		return gpu.MetricLabel.String()
	case e.Monotonic:
		return gpu.MetricCounter.String()
	default:
		return gpu.MetricGauge.String()
	}
}

func entities(e catalog.Entry) string {
	if !e.Exportable() {
		return "cannot be exported"
	}
	var words []string
	for _, k := range e.Levels.List() {
		words = append(words, k.String())
	}
	return strings.Join(words, ", ")
}
