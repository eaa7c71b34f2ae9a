package dashboards

import (
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// measure is the unit of an expression, and the factor that converts its value to that unit. The unit is "" for a
// count, and "any" for a constant.
type measure struct {
	unit   string
	factor float64
}

// bases maps the units of the catalog to base units, with the factor.
var bases = map[gpu.Unit]measure{
	"": {"", 1}, catalog.Megahertz: {"hertz", 1e6}, catalog.Hertz: {"hertz", 1}, catalog.Millijoules: {"joules", 1e-3},
	catalog.Joules: {"joules", 1},
	catalog.Watts:  {"watts", 1}, catalog.Percent: {"ratio", 1e-2}, catalog.Ratio: {"ratio", 1},
	catalog.Mebibytes: {"bytes", 1 << 20},
	catalog.Bytes:     {"bytes", 1}, catalog.BytesPerSecond: {"bytes/s", 1},
	catalog.MegabytesPerSecond: {"bytes/s", 1024 * 1000},
	catalog.Celsius:            {"celsius", 1}, catalog.Seconds: {"seconds", 1},
}

// grafanas maps each unit to the names of the Grafana units that may display it.
var grafanas = map[string][]string{
	"hertz": {"hertz"}, "joules": {"joule"}, "watts": {"watt"}, "ratio": {"percentunit"},
	"seconds/s": {"percentunit", "none"}, "bytes": {"bytes"}, "bytes/s": {"Bps"},
	"celsius": {"celsius"}, "seconds": {"s"}, "": {"none"}, "/s": {"cps"}, "any": {"none"},
}

// measureOf derives the unit of an expression from the catalog, from the names of families, and from its functions.
func measureOf(t *testing.T, e parser.Expr) measure {
	t.Helper()
	switch e := e.(type) {
	case *parser.ParenExpr:
		return measureOf(t, e.Expr)
	case *parser.UnaryExpr:
		return measureOf(t, e.Expr)
	case *parser.NumberLiteral:
		return measure{"any", e.Val}
	case *parser.MatrixSelector:
		return measureOf(t, e.VectorSelector)
	case *parser.VectorSelector:
		if named, ok := catalog.Lookup(e.Name); ok {
			m, known := bases[named.Unit]
			if !known {
				t.Fatalf("%s: unit %q is not in bases", e.Name, named.Unit)
			}
			return m
		}
		return bases[gpu.Unit(promisedUnit(e.Name))]
	case *parser.AggregateExpr:
		if e.Op == parser.COUNT || e.Op == parser.GROUP {
			return measure{"", 1}
		}
		return measureOf(t, e.Expr)
	case *parser.Call:
		switch e.Func.Name {
		case "time":
			return measure{"seconds", 1}
		case "vector":
			return measure{"any", 1}
		case "changes":
			return measure{"", 1}
		case "rate":
			m := measureOf(t, e.Args[0])
			m.unit = map[string]string{"joules": "watts", "seconds": "seconds/s", "": "/s"}[m.unit]
			return m
		default: // same unit: relabeling, averages, increases
			return measureOf(t, e.Args[0])
		}
	case *parser.BinaryExpr:
		return measureOfTwo(t, e)
	}
	t.Fatalf("measureOf cannot handle the expression %s", e)
	return measure{}
}

func measureOfTwo(t *testing.T, e *parser.BinaryExpr) measure {
	t.Helper()
	l, r := measureOf(t, e.LHS), measureOf(t, e.RHS)
	same := func() measure {
		switch {
		case l.unit == "any":
			return r
		// a GPU second per second is one GPU
		case (l.unit == "" && r.unit == "seconds/s" || r.unit == "" && l.unit == "seconds/s") && l.factor == r.factor:
		case r.unit != "any" && (l.unit != r.unit || math.Abs(l.factor/r.factor-1) > 1e-9):
			t.Errorf("units %v and %v are mixed: %s", l, r, e)
		}
		return l
	}
	switch {
	case e.Op == parser.LAND || e.Op == parser.LUNLESS:
		return l
	case e.Op.IsComparisonOperator():
		if e.VectorMatching == nil {
			return l
		}
		return same()
	case e.Op == parser.LOR || e.Op == parser.ADD || e.Op == parser.SUB:
		return same()
	case e.Op == parser.MUL && r.unit == "any":
		return measure{l.unit, l.factor / r.factor}
	case e.Op == parser.DIV && r.unit == "any":
		return measure{l.unit, l.factor * r.factor}
	// multiplication with an info series, which adds labels
	case e.Op == parser.MUL && (l.unit == "any" || l.unit == ""):
		return r
	case e.Op == parser.MUL && r.unit == "":
		return l
	case e.Op == parser.DIV && l == r:
		return measure{"ratio", 1}
	}
	t.Fatalf("measureOfTwo cannot handle %v %s %v: %s", l, e.Op, r, e)
	return measure{}
}

// TestUnitsAreTheCatalogs derives the unit of each query from the catalog. The panel must display that unit, and the
// query must scale its values to it.
func TestUnitsAreTheCatalogs(t *testing.T) {
	checked := map[string]int{}
	for file, d := range dashboards(t) {
		for _, p := range d.everyPanel() {
			m, units := modelOf(t, p), p.properties(t, "unit")
			for _, q := range p.Targets {
				unit := p.FieldConfig.Defaults.Unit
				if p.Type == "table" {
					field := "Value"
					if len(p.Targets) > 1 {
						field = "Value #" + q.RefID
					}
					if m.ExcludeByName[field] {
						continue
					}
					unit = strings.Trim(string(units[m.RenameByName[field]]), `"`)
				}
				expr, err := parser.NewParser(parser.Options{}).ParseExpr(filled(q.Expr, "some"))
				if err != nil {
					t.Fatalf("%s: %q: %v", file, p.Title, err)
				}
				got := measureOf(t, expr)
				want, factor := grafanas[got.unit], 1.
				if unit == "dateTimeAsIso" && got.unit == "seconds" { // Grafana's times are in milliseconds
					want, factor = []string{unit}, 1e-3
				}
				if got.unit == "any" {
					factor = got.factor
				}
				checked[unit]++
				if !strings.Contains(" "+strings.Join(want, " ")+" ", " "+unit+" ") ||
					math.Abs(got.factor/factor-1) > 1e-9 {
					t.Errorf("%s: panel %q, query %s: unit = %s, want that of the query, %q times %v\n%s",
						file, p.Title, q.RefID, unit, got.unit, got.factor, q.Expr)
				}
			}
		}
	}
	for _, unit := range []string{"watt", "joule", "celsius", "hertz", "bytes", "Bps", "s", "percentunit", "none",
		"cps", "dateTimeAsIso"} {
		if checked[unit] == 0 {
			t.Errorf("no panel has the unit %s", unit)
		}
	}
}

// promisedUnit returns the unit at the end of a family's name, or "" if there is none.
func promisedUnit(name string) string {
	name = strings.TrimSuffix(strings.ToLower(name), "_total")
	for _, unit := range []gpu.Unit{catalog.Seconds, catalog.Bytes, catalog.Joules, catalog.Ratio} {
		if strings.HasSuffix(name, "_"+string(unit)) {
			return string(unit)
		}
	}
	return ""
}
