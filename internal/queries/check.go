package queries

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/VictoriaMetrics/metricsql"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Checker checks queries against requested metrics.
type Checker struct{ requested map[string]*counters.Request }

// New returns a Checker for the requests of a counters file, in the configured vocabulary.
func New(requests []counters.Request) *Checker {
	c := &Checker{requested: map[string]*counters.Request{}}
	for i := range requests {
		c.requested[requests[i].Name] = &requests[i]
	}
	return c
}

// entityLabels are labels that every series can have.
var entityLabels = []string{
	"gpu", "UUID", "uuid", "device", "pci_bus_id", "modelName", "GPU_I_ID", "GPU_I_PROFILE", "hostname", "Hostname",
	"container", "namespace", "pod", "pod_uid", "job", "instance",
}

// xidLabels are the labels of the latest XID.
var xidLabels = []string{"err_code", "err_msg"}

// Check returns what is wrong with a query, one sentence each, without duplicates. It reports only certain mistakes:
// whatever cannot be decided passes.
func (c *Checker) Check(expr string) (found []string) {
	expr = withoutVariables(expr)
	root, err := metricsql.Parse(expr)
	switch {
	case err != nil && strings.ContainsRune(expr, '$'):
		return nil // a variable of Grafana that stands for a part of the expression
	case err != nil:
		return []string{"not PromQL: " + err.Error()}
	}
	sentences, _ := c.lacking(root)
	metricsql.VisitAll(root, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			sentences = append(sentences, c.metric(e)...)
		case *metricsql.FuncExpr:
			sentences = append(sentences, c.function(e))
		case *metricsql.BinaryOpExpr:
			sentences = append(sentences, c.unit(e))
		}
	})
	for _, sentence := range sentences {
		if sentence != "" && !slices.Contains(found, sentence) {
			found = append(found, sentence)
		}
	}
	return found
}

// nameOf returns the name that a selector requires, or "".
func nameOf(m *metricsql.MetricExpr) string {
	for _, f := range slices.Concat(m.LabelFilterss...) {
		if f.Label == "__name__" && !f.IsNegative && !f.IsRegexp {
			return f.Value
		}
	}
	return ""
}

// lookup returns the request of a metric and whether the file has it. If not, it returns the request that the file
// would have.
func (c *Checker) lookup(name string) (r counters.Request, known, requested bool) {
	if r := c.requested[name]; r != nil {
		return *r, true, true
	}
	typ := gpu.MetricGauge
	if f := catalog.FamilyNamed(name); f != nil {
		typ = f.Type
	} else if named, ok := catalog.Lookup(name); ok && named.Entry.Type == catalog.Text {
		typ = gpu.MetricLabel
	}
	r, err := counters.NewRequest(name, typ, "")
	if err == nil && r.IsMonotonic() {
		r.Type = gpu.MetricCounter
	}
	return r, err == nil, false
}

// metric checks the name and the labels of a selector. A sentence is "" if a label is right.
func (c *Checker) metric(m *metricsql.MetricExpr) (found []string) {
	name := nameOf(m)
	r, known, _ := c.lookup(name)
	switch {
	case !known && strings.HasPrefix(name, "DCGM_"):
		sentence := "there is no metric " + name
		if near := catalog.Nearest(name); near != "" {
			sentence += "; did you mean " + near + "?"
		}
		return []string{sentence}
	case !known:
		return nil // of another exporter, or a recording rule
	}
	for _, f := range slices.Concat(m.LabelFilterss...) {
		if f.Label != "__name__" && !f.IsNegative && f.Value != "" {
			found = append(found, wrongLabel(r, f.Label))
		}
	}
	return found
}

// lacking returns a sentence for each metric that nothing collects, and whether the expression has a metric that is
// collected. If one side of an "or" is collected, the other may be missing, because queries name a metric in both
// vocabularies.
func (c *Checker) lacking(e metricsql.Expr) (sentences []string, served bool) {
	var parts []metricsql.Expr
	switch e := e.(type) {
	case *metricsql.MetricExpr:
		r, known, requested := c.lookup(nameOf(e))
		if known && !requested {
			return []string{c.missing(r)}, false
		}
		return nil, requested
	case *metricsql.RollupExpr:
		parts = []metricsql.Expr{e.Expr}
	case *metricsql.AggrFuncExpr:
		parts = e.Args
	case *metricsql.FuncExpr:
		if strings.HasPrefix(strings.ToLower(e.Name), "absent") {
			return nil, false
		}
		parts = e.Args
	case *metricsql.BinaryOpExpr:
		parts = []metricsql.Expr{e.Left, e.Right}
		switch strings.ToLower(e.Op) {
		case "or":
			left, hasLeft := c.lacking(e.Left)
			right, hasRight := c.lacking(e.Right)
			if hasLeft && len(left) == 0 || hasRight && len(right) == 0 {
				return nil, true
			}
			return append(left, right...), hasLeft || hasRight
		case "unless":
			parts = parts[:1]
		}
	}
	for _, part := range parts {
		more, has := c.lacking(part)
		sentences, served = append(sentences, more...), served || has
	}
	return sentences, served
}

// missing returns a sentence that says that nothing collects a metric, and what to do about it.
func (c *Checker) missing(r counters.Request) string {
	for _, v := range []catalog.Vocabulary{catalog.Classic, catalog.Current} {
		if _, to, ok := catalog.Rename(r.Name, v); ok && c.requested[to.Name] != nil {
			return fmt.Sprintf("%s is not served; with this --vocabulary, the metric is named %s", r.Name, to.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.requested)) {
		if s := c.requested[name]; r.Family == nil && s.Family == nil && s.Named.Entry.ID == r.Named.Entry.ID {
			return fmt.Sprintf("%s is not served; its field is served as %s", r.Name, s.Name) // a name of version 1.x
		}
	}
	return fmt.Sprintf("nothing collects %s; add the line \"%s, %s\" to the counters file", r.Name, r.Name, r.Type)
}

// wrongLabel returns why a metric cannot have a label, or "".
func wrongLabel(r counters.Request, label string) string {
	var own []string
	switch {
	case r.Family != nil:
		own = r.Family.Labels
	case r.Named.Entry.ID == catalog.XIDErrors:
		own = xidLabels
	}
	isNamed := func(known string) bool { return strings.EqualFold(known, label) }
	hasLabel := func(f catalog.Family) bool { return slices.Contains(f.Labels, label) }
	switch i := slices.IndexFunc(entityLabels, isNamed); {
	case slices.Contains(entityLabels, label) || slices.Contains(own, label):
		return ""
	case i >= 0:
		return fmt.Sprintf("%s has no label %s; did you mean %s?", r.Name, label, entityLabels[i])
	case !slices.Contains(xidLabels, label) && !slices.ContainsFunc(catalog.Families(catalog.Requested), hasLabel):
		return "" // any series can have it
	case len(own) > 0:
		return fmt.Sprintf("%s has no label %s; it has %s", r.Name, label, strings.Join(own, ", "))
	default:
		return fmt.Sprintf("%s has no label %s", r.Name, label)
	}
}

// needsCounter has the functions of changes, and whether their argument must be a counter.
var needsCounter = map[string]bool{
	"rate": true, "irate": true, "increase": true, "resets": true,
	"changes": false, "delta": false, "idelta": false, "deriv": false,
}

// function checks whether a function suits the type of its metric.
func (c *Checker) function(f *metricsql.FuncExpr) string {
	name := strings.ToLower(f.Name)
	onlyCounters, known := needsCounter[name]
	r, rollup := c.argument(f)
	if rollup == nil || !known {
		return ""
	}
	window := cmp.Or(string(rollup.Window.AppendString(nil)), "5m")
	switch {
	case r.Family == nil && r.Named.Entry.ID == catalog.XIDErrors:
		return fmt.Sprintf("%s(%s) never sees an XID, because each one is a new series with another err_code; "+
			"use increase(%s[%s]) > 0, or %s > 0", name, r.Name, catalog.XIDErrorsTotal, window, r.Name)
	case !onlyCounters || r.IsMonotonic():
		return ""
	case r.Family != nil && strings.HasSuffix(r.Name, "_COUNT"):
		const form = "%s(%s): the gauge already counts within a window; use it without %s, or the counter …_TOTAL"
		return fmt.Sprintf(form, name, r.Name, name)
	default:
		unit := ""
		if r.Named.Unit != "" {
			unit = " in " + string(r.Named.Unit)
		}
		return fmt.Sprintf("%s(%s): the metric is a gauge%s, not a counter; use it as it is, or avg_over_time(%s[%s])",
			name, r.Name, unit, r.Name, window)
	}
}

// argument returns the known metric in a function's range vector. The vector is nil if there is none.
func (c *Checker) argument(f *metricsql.FuncExpr) (counters.Request, *metricsql.RollupExpr) {
	if len(f.Args) == 0 {
		return counters.Request{}, nil
	}
	if rollup, ok := f.Args[0].(*metricsql.RollupExpr); ok {
		if m, ok := rollup.Expr.(*metricsql.MetricExpr); ok {
			if r, known, _ := c.lookup(nameOf(m)); known {
				return r, rollup
			}
		}
	}
	return counters.Request{}, nil
}

// unit checks whether nanoseconds are divided as if they were microseconds: an increase cannot exceed its window, so a
// quotient of about a thousand is off by the factor between them.
func (c *Checker) unit(b *metricsql.BinaryOpExpr) string {
	divisor, ok := b.Right.(*metricsql.NumberExpr)
	f, isFunc := b.Left.(*metricsql.FuncExpr)
	if b.Op != "/" || !ok || divisor.N == 0 || !isFunc || !strings.EqualFold(f.Name, "increase") {
		return ""
	}
	r, rollup := c.argument(f)
	if rollup == nil || r.Named.Unit != catalog.Nanoseconds {
		return ""
	}
	seconds := float64(rollup.Window.Duration(0)) / 1e3
	most := seconds * 1e9 / divisor.N
	if most < 500 || most > 5000 {
		return ""
	}
	return fmt.Sprintf("%s is in nanoseconds, so increase(%s[%s]) / %s can reach %.0f instead of 1; divide by %.0fe9",
		r.Name, r.Name, rollup.Window.AppendString(nil), divisor.AppendString(nil), most, seconds)
}
