package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// fields searches the catalog, for authors of counters files. It does not access hardware.
func fields(_ context.Context, p *Process) int {
	if i := slices.IndexFunc(p.Args, func(arg string) bool { return strings.HasPrefix(arg, "-") }); i >= 0 {
		return p.fail(Unable, fmt.Errorf("unknown flag %s: fields accepts only words", p.Args[i]))
	}
	found := catalog.Search(p.Args...)
	if len(found) == 0 {
		fmt.Fprintf(p.Err, "no field matches %q%s\n", strings.Join(p.Args, " "), similar(p.Args))
		return Faulty
	}
	rows := [][]string{{"NAME", "ID", "UNIT", "TYPE", "OF", "CURRENT", "WHAT"}}
	for _, e := range found {
		current, typ, of := e.Current, gpu.MetricGauge.String(), kinds(e.Levels)
		switch {
		case !e.Exportable():
			typ, of = "-", "cannot be exported"
		case e.Type == catalog.Text:
			typ = gpu.MetricLabel.String()
		case e.Monotonic:
			typ = gpu.MetricCounter.String()
		}
		if current == e.Classic {
			current = ""
		}
		rows = append(rows,
			[]string{e.Classic, fmt.Sprint(e.ID), cmp.Or(string(e.Unit), "-"), typ, of, cmp.Or(current, "-"), e.Help})
	}
	p.table(rows)
	return OK
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

// builtIn prints a counters file that is built in, for images without a shell.
func builtIn(_ context.Context, p *Process) int {
	name := strings.Join(p.Args, " ")
	content, ok := etc.Named(cmp.Or(name, "default"))
	if !ok {
		return p.fail(Unable, fmt.Errorf("unknown file %q: %s", name, text.Suggest(name, etc.Names)))
	}
	return p.print(string(content))
}
