package queries

import (
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
type Checker struct {
	requested map[string]*counters.Request
	special   map[string]bool // labels that only some families have
}

// New returns a Checker for the requests of a counters file, in the configured vocabulary.
func New(requests []counters.Request) *Checker {
	c := &Checker{requested: map[string]*counters.Request{}, special: map[string]bool{}}
	for _, label := range xidLabels {
		c.special[label] = true
	}
	for i := range requests {
		c.requested[requests[i].Name] = &requests[i]
	}
	for _, f := range catalog.Families(catalog.Requested) {
		for _, label := range f.Labels {
			c.special[label] = true
		}
	}
	for _, label := range entityLabels {
		delete(c.special, label)
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
func (c *Checker) Check(expr string) []string {
	expr = withoutVariables(expr)
	root, err := metricsql.Parse(expr)
	switch {
	case err != nil && strings.ContainsRune(expr, '$'):
		return nil // a variable of Grafana that stands for a part of the expression
	case err != nil:
		return []string{"not PromQL: " + err.Error()}
	}
	var found []string
	add := func(sentences ...string) {
		for _, sentence := range sentences {
			if sentence != "" && !slices.Contains(found, sentence) {
				found = append(found, sentence)
			}
		}
	}
	lacking, _ := c.lacking(root)
	add(lacking...)
	metricsql.VisitAll(root, func(e metricsql.Expr) {
		switch e := e.(type) {
		case *metricsql.MetricExpr:
			add(c.metric(e)...)
		case *metricsql.FuncExpr:
			add(c.function(e))
		case *metricsql.BinaryOpExpr:
			add(c.unit(e))
		}
	})
	return found
}

// nameOf returns the name that a selector requires, or "".
func nameOf(m *metricsql.MetricExpr) string {
	for _, filters := range m.LabelFilterss {
		for _, f := range filters {
			if f.Label == "__name__" && !f.IsNegative && !f.IsRegexp {
				return f.Value
			}
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
		if near := catalog.Nearest(name); near != "" {
			return []string{fmt.Sprintf("there is no metric %s; did you mean %s?", name, near)}
		}
		return []string{"there is no metric " + name}
	case !known:
		return nil // of another exporter, or a recording rule
	}
	for _, filters := range m.LabelFilterss {
		for _, f := range filters {
			if f.Label != "__name__" && !f.IsNegative && f.Value != "" {
				found = append(found, c.label(r, f.Label))
			}
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

// label returns why a metric cannot have a label, or "".
func (c *Checker) label(r counters.Request, label string) string {
	for _, known := range entityLabels {
		if label != known && strings.EqualFold(label, known) && !slices.Contains(entityLabels, label) {
			return fmt.Sprintf("%s has no label %s; did you mean %s?", r.Name, label, known)
		}
	}
	own := []string{}
	switch {
	case r.Family != nil:
		own = r.Family.Labels
	case r.Named.Entry.ID == catalog.XIDErrors:
		own = xidLabels
	}
	if !c.special[label] || slices.Contains(own, label) {
		return ""
	}
	if len(own) > 0 {
		return fmt.Sprintf("%s has no label %s; it has %s", r.Name, label, strings.Join(own, ", "))
	}
	return fmt.Sprintf("%s has no label %s", r.Name, label)
}

// Functions whose argument must be a counter, and functions whose argument can be a gauge.
var (
	ofCounters = []string{"rate", "irate", "increase", "resets"}
	ofChanges  = []string{"changes", "delta", "idelta", "deriv"}
)

// function checks whether a function suits the type of its metric.
func (c *Checker) function(f *metricsql.FuncExpr) string {
	name := strings.ToLower(f.Name)
	if !slices.Contains(ofCounters, name) && !slices.Contains(ofChanges, name) || len(f.Args) == 0 {
		return ""
	}
	m, window := selectorOf(f.Args[0])
	if m == nil {
		return ""
	}
	r, known, _ := c.lookup(nameOf(m))
	switch {
	case !known:
		return ""
	case r.Family == nil && r.Named.Entry.ID == catalog.XIDErrors:
		return fmt.Sprintf("%s(%s) never sees an XID, because each one is a new series with another err_code; "+
			"use increase(%s[%s]) > 0, or %s > 0", name, r.Name, catalog.XIDErrorsTotal, window, r.Name)
	case slices.Contains(ofChanges, name) || r.IsMonotonic():
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

// selectorOf returns the selector and the window of a range vector.
func selectorOf(e metricsql.Expr) (m *metricsql.MetricExpr, window string) {
	rollup, ok := e.(*metricsql.RollupExpr)
	if !ok {
		return nil, ""
	}
	m, _ = rollup.Expr.(*metricsql.MetricExpr)
	window = "5m"
	if rollup.Window != nil {
		window = string(rollup.Window.AppendString(nil))
	}
	return m, window
}

// unit checks whether nanoseconds are divided as if they were microseconds: an increase cannot exceed its window, so a
// quotient of about a thousand is off by the factor between them.
func (c *Checker) unit(b *metricsql.BinaryOpExpr) string {
	divisor, ok := b.Right.(*metricsql.NumberExpr)
	f, isFunc := b.Left.(*metricsql.FuncExpr)
	if b.Op != "/" || !ok || !isFunc || len(f.Args) == 0 {
		return ""
	}
	m, window := selectorOf(f.Args[0])
	if m == nil {
		return ""
	}
	r, known, _ := c.lookup(nameOf(m))
	if !known || r.Named.Unit != catalog.Nanoseconds || divisor.N == 0 || !strings.EqualFold(f.Name, "increase") {
		return ""
	}
	seconds := float64(f.Args[0].(*metricsql.RollupExpr).Window.Duration(0)) / 1e3
	most := seconds * 1e9 / divisor.N
	if most < 500 || most > 5000 {
		return ""
	}
	return fmt.Sprintf("%s is in nanoseconds, so increase(%s[%s]) / %s can reach %.0f instead of 1; divide by %.0fe9",
		r.Name, r.Name, window, divisor.AppendString(nil), most, seconds)
}
