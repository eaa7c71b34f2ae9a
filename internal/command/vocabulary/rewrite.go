package vocabulary

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"
	"github.com/prometheus/prometheus/util/strutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

// A Change is a name that is gone under the other vocabulary, and what stands in its place.
type Change struct {
	Kind string `json:"kind"` // metric or label
	Old  string `json:"old"`
	New  string `json:"new"`
	// OldUnit and NewUnit are the units of a metric's values where they differ.
	OldUnit string `json:"oldUnit,omitempty"`
	NewUnit string `json:"newUnit,omitempty"`
}

// The kinds of names.
const (
	kindMetric = "metric"
	kindLabel  = "label"
)

// A rewriter writes expressions for another vocabulary.
type rewriter struct {
	to catalog.Vocabulary
	// host is what the other name of the host label becomes; both are empty where both are served.
	hostOld, hostNew string
	parser           parser.Parser
}

func newRewriter(to catalog.Vocabulary, host string) rewriter {
	r := rewriter{to: to, parser: parser.NewParser(parser.Options{
		EnableExperimentalFunctions: true, ExperimentalDurationExpr: true,
		EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
	})}
	switch host {
	case "hostname":
		r.hostOld, r.hostNew = "Hostname", "hostname"
	case "Hostname":
		r.hostOld, r.hostNew = "hostname", "Hostname"
	}
	return r
}

// ours reports whether a name is of a metric that the exporter serves.
func ours(name string) bool {
	_, known := catalog.Lookup(name)
	return known || strings.HasPrefix(name, "DCGM_EXP_") || strings.HasPrefix(name, "dcgm_exporter_") || strings.HasPrefix(name, "dcgm_pod_")
}

// metric returns what becomes of a metric's name. A text is no metric: its name is a label's.
func (r rewriter) metric(name string) (change Change, scale factor, ok bool) {
	from, to, ok := catalog.Rename(name, r.to)
	if !ok || from.Entry.Type == catalog.Text {
		return Change{}, factor{}, false
	}
	change = Change{Kind: kindMetric, Old: name, New: to.Name}
	scale = factorOf(from.Scale, to.Scale)
	if !scale.one() {
		change.OldUnit, change.NewUnit = string(from.Unit), string(to.Unit)
	}
	return change, scale, true
}

// label returns what becomes of a label's name: a text of the catalog, or the host where the series
// is the exporter's.
func (r rewriter) label(name string, exporters bool) (Change, bool) {
	if name == r.hostOld && name != "" {
		return Change{Kind: kindLabel, Old: name, New: r.hostNew}, exporters
	}
	from, to, ok := catalog.Rename(name, r.to)
	if !ok || from.Entry.Type != catalog.Text {
		return Change{}, false
	}
	return Change{Kind: kindLabel, Old: name, New: to.Name}, true
}

// changing calls yield with every metric that changes, until it returns false.
func (r rewriter) changing(yield func(Change, factor) bool) {
	for e := range catalog.All() {
		if e.BaseOf != 0 || e.Type == catalog.Marker {
			continue
		}
		names := []string{e.Classic, e.Current, e.Name}
		for i, name := range names {
			if slices.Contains(names[:i], name) {
				continue
			}
			if c, f, ok := r.metric(name); ok && !yield(c, f) {
				return
			}
		}
	}
}

// lost returns the changing names that a pattern matches and whose new names it does not.
func (r rewriter) lost(matches func(string) bool) []Change {
	var list []Change
	r.changing(func(c Change, _ factor) bool {
		if matches(c.Old) && !matches(c.New) {
			list = append(list, c)
		}
		return true
	})
	return list
}

// rescaled returns the changing names that a pattern matches under both names and whose units
// differ.
func (r rewriter) rescaled(matches func(string) bool) []Change {
	var list []Change
	r.changing(func(c Change, f factor) bool {
		if !f.one() && matches(c.Old) && matches(c.New) {
			list = append(list, c)
		}
		return true
	})
	return list
}

// A rewriting is what became of an expression.
type rewriting struct {
	text    string
	changes []Change
	byHand  []string // what a person has to look at
}

// A scope says what of an expression counts.
type scope uint8

const (
	values scope = iota // values and labels
	series              // which series exist, and their labels
)

// expression rewrites a PromQL expression that may hold Grafana's variables. The error is the
// parser's.
func (r rewriter) expression(expr string, s scope) (rewriting, error) {
	var result rewriting
	var failed error
	if substitute(expr, func(h *substituted) bool {
		tree, err := r.parser.ParseExpr(h.text)
		if err != nil {
			if failed == nil {
				failed = err
			}
			return false
		}
		w := &work{rewriter: r, substituted: h, scope: s}
		w.lex()
		w.run(tree)
		result = rewriting{text: h.apply(w.edits), changes: w.changes, byHand: w.byHand}
		return true
	}) {
		return result, nil
	}
	return rewriting{}, failed
}

// A work is the rewriting of one expression.
type work struct {
	rewriter
	*substituted
	scope   scope
	items   []parser.Item
	edits   []edit
	changes []Change
	byHand  []string

	kept          []span // sides of an "or" whose other side has the new names
	ours, foreign bool   // whether metrics of the exporter, and others, are named
}

func (w *work) lex() {
	l := parser.Lex(w.text)
	for {
		var item parser.Item
		l.NextItem(&item)
		if item.Typ == parser.EOF || item.Typ == parser.ERROR {
			return
		}
		if item.Typ != parser.COMMENT {
			w.items = append(w.items, item)
		}
	}
}

func (w *work) run(tree parser.Expr) {
	parser.Inspect(tree, func(n parser.Node, path []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			w.selector(v, path)
		}
		return nil
	})
	w.grouping()
	parser.Inspect(tree, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			w.labelArguments(n)
		case *parser.AggregateExpr:
			if lit, ok := n.Param.(*parser.StringLiteral); ok {
				w.labelLiteral(lit)
			}
		}
		return nil
	})
}

func (w *work) changed(c Change) {
	if !slices.Contains(w.changes, c) {
		w.changes = append(w.changes, c)
	}
}

func (w *work) noteByHand(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(w.byHand, text) {
		w.byHand = append(w.byHand, text)
	}
}

// replace puts a new name in the place of an item: an identifier or a string.
func (w *work) replace(item parser.Item, c Change) {
	s := span{int(item.Pos), int(item.Pos) + len(item.Val)}
	text := c.New
	if item.Typ == parser.STRING {
		quote := item.Val[:1]
		text = quote + c.New + quote
	}
	w.edits = append(w.edits, edit{s, text})
	w.changed(c)
}

// A matcher is one of a selector's, with where it stands.
type matcher struct {
	name, value parser.Item // name is empty for a bare metric name in quotes
	op          parser.ItemType
}

// selector rewrites the name and the matchers of a selector, and wraps it, or the function of its
// range, where the unit changes.
func (w *work) selector(v *parser.VectorSelector, path []parser.Node) {
	if w.queriesBoth(v, path) {
		w.ours = true
		return
	}
	pos := v.PositionRange()
	bare, matchers := w.partsOf(pos)

	var scale factor
	mine, named := false, false
	if bare != nil {
		mine, named = w.name(*bare, bare.Val, &scale), true
	}
	for _, m := range matchers {
		if isName(m) {
			mine, named = w.nameMatcher(m, &scale, readsSelector(path)) || mine, true
		}
	}
	if !named || mine {
		w.ours = true
	} else {
		w.foreign = true
	}
	for _, m := range matchers {
		if isName(m) {
			continue
		}
		label := unquote(m.name)
		if c, ok := w.label(label, mine); ok {
			w.replace(m.name, c)
		} else if label == w.hostOld && label != "" && !named {
			w.noteByHand("%s selects by the label %s without a metric's name; the exporter's series have %s", w.original(span{int(pos.Start), int(pos.End)}), label, w.hostNew)
		}
	}
	if !scale.isSet() || scale.one() || w.scope == series {
		return
	}
	w.rescale(v, path, scale)
}

// partsOf returns what a selector consists of: its name before the braces, nil without one, and its
// matchers.
func (w *work) partsOf(pos posrange.PositionRange) (bare *parser.Item, matchers []matcher) {
	inBraces := false
	var m matcher
	for _, item := range w.items {
		if item.Pos < pos.Start || item.Pos >= pos.End {
			continue
		}
		switch {
		case item.Typ == parser.LEFT_BRACE:
			inBraces = true
		case item.Typ == parser.RIGHT_BRACE, inBraces && item.Typ == parser.COMMA:
			if m.value.Val == "" && m.name.Typ == parser.STRING {
				m.value, m.name, m.op = m.name, parser.Item{}, parser.EQL // {"name"}
			}
			if m.value.Val != "" {
				matchers = append(matchers, m)
			}
			m = matcher{}
			inBraces = item.Typ == parser.COMMA
		case !inBraces && bare == nil && item.Pos == pos.Start:
			name := item
			bare = &name
		case inBraces && m.name.Val == "":
			m.name = item
		case inBraces && m.op == 0:
			m.op = item.Typ
		case inBraces:
			m.value = item
		}
	}
	return bare, matchers
}

func isName(m matcher) bool { return m.name.Val == "" || unquote(m.name) == model.MetricNameLabel }

// unquote returns the text of an identifier or a string.
func unquote(item parser.Item) string {
	if item.Typ != parser.STRING {
		return item.Val
	}
	text, err := strutil.Unquote(item.Val)
	if err != nil {
		return ""
	}
	return text
}

// original returns a part of the held text as the author wrote it.
func (h *substituted) original(s span) string {
	part := &substituted{text: h.text[s.start:s.end]}
	for _, v := range h.vars {
		if v.start >= s.start && v.end <= s.end {
			part.vars = append(part.vars, variable{span{v.start - s.start, v.end - s.start}, v.original})
		}
	}
	return part.apply(nil)
}

// name rewrites the name of a metric and reports whether it is the exporter's.
func (w *work) name(item parser.Item, name string, scale *factor) bool {
	s := span{int(item.Pos), int(item.Pos) + len(item.Val)}
	if w.touches(s) {
		return w.partial(s)
	}
	if c, f, ok := w.metric(name); ok {
		*scale = f
		w.replace(item, c)
	} else if c, ok := w.label(name, false); ok {
		w.replace(item, c)
	}
	return ours(name)
}

// partial leaves a note to be resolved by hand where a variable is a part of a metric's name that
// can become one that changes.
func (w *work) partial(s span) bool {
	var pattern strings.Builder
	at := s.start
	for _, v := range w.vars {
		if v.overlaps(s) && v.start >= at {
			pattern.WriteString(regexp.QuoteMeta(w.text[at:v.start]))
			pattern.WriteString(`\w*`)
			at = v.end
		}
	}
	pattern.WriteString(regexp.QuoteMeta(w.text[at:max(at, s.end)]))
	text := strings.Trim(pattern.String(), `"'`+"`")
	if strings.Trim(strings.ReplaceAll(text, `\w*`, ""), "_") == "" {
		return false // the variable is the whole name, which is read where it is defined
	}
	re, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return false
	}
	isOurs := false
	for e := range catalog.All() {
		isOurs = isOurs || re.MatchString(e.Classic) || re.MatchString(e.Current)
	}
	if list := w.lost(re.MatchString); len(list) > 0 {
		w.noteByHand("the metric's name %s is made of a variable and can be %s", w.original(s), examples(list))
	}
	return isOurs
}

// examples names a few changes.
func examples(list []Change) string {
	const few = 3
	var names []string
	for _, c := range list[:min(few, len(list))] {
		names = append(names, c.Old+" (now "+c.New+")")
	}
	if len(list) > few {
		names = append(names, fmt.Sprintf("%d more", len(list)-few))
	}
	return strings.Join(names, ", ")
}

// nameMatcher rewrites a matcher of __name__ and reports whether it means a
// metric of the exporter. With counts set, values do not matter.
func (w *work) nameMatcher(m matcher, scale *factor, counts bool) bool {
	s := span{int(m.value.Pos), int(m.value.Pos) + len(m.value.Val)}
	text := unquote(m.value)
	switch {
	case w.touches(s):
		return w.partial(s)
	case m.op == parser.EQL:
		return w.name(m.value, text, scale)
	case m.op == parser.NEQ:
		var none factor
		w.name(m.value, text, &none)
		return false
	}
	re, err := regexp.Compile("^(?s:" + text + ")$")
	if err != nil {
		return false
	}
	lost := w.lost(re.MatchString)
	if len(lost) > 0 {
		if names, ok := w.alternatives(text); ok && m.op == parser.EQL_REGEX {
			w.edits = append(w.edits, edit{s, m.value.Val[:1] + names + m.value.Val[:1]})
			for _, c := range lost {
				w.changed(c)
			}
		} else {
			w.noteByHand("__name__%s%s matches %s", m.op, m.value.Val, examples(lost))
		}
	}
	if m.op == parser.NEQ_REGEX {
		return false
	}
	if w.scope == values && !counts {
		if list := w.rescaled(re.MatchString); len(list) > 0 {
			w.noteByHand("__name__%s%s matches old and new names in different units: %s", m.op, m.value.Val, examples(list))
		}
	}
	for e := range catalog.All() {
		if re.MatchString(e.Classic) || re.MatchString(e.Current) {
			return true
		}
	}
	return false
}

// plainNames is an alternation of whole names.
var plainNames = regexp.MustCompile(`^\w+(?:\|\w+)*$`)

// alternatives returns the names of an alternation in the other vocabulary, if
// it is one of whole names whose units stay: several metrics cannot be scaled
// in one selector, since the result would lose their names.
func (w *work) alternatives(text string) (string, bool) {
	if !plainNames.MatchString(text) {
		return "", false
	}
	names := strings.Split(text, "|")
	for i, name := range names {
		c, f, ok := w.metric(name)
		if !ok {
			continue
		}
		if !f.one() && w.scope == values {
			return "", false
		}
		names[i] = c.New
	}
	return strings.Join(names, "|"), true
}

// grouping rewrites the labels of by, without, on, ignoring, group_left and
// group_right.
func (w *work) grouping() {
	lists := []parser.ItemType{parser.BY, parser.WITHOUT, parser.ON, parser.IGNORING, parser.GROUP_LEFT, parser.GROUP_RIGHT}
	var list []parser.Item // the labels of the list that is being read
	in := false
	for i, item := range w.items {
		switch {
		case item.Typ == parser.LEFT_PAREN:
			in = i > 0 && slices.Contains(lists, w.items[i-1].Typ)
		case item.Typ == parser.RIGHT_PAREN && in:
			for _, label := range list {
				if !w.named(list, label) {
					w.groupLabel(label)
				}
			}
			list, in = nil, false
		case in && item.Typ != parser.COMMA:
			list = append(list, item)
		}
	}
}

// named reports whether a list of labels has the new name of a label too.
func (w *work) named(list []parser.Item, label parser.Item) bool {
	c, ok := w.label(unquote(label), true)
	return ok && slices.ContainsFunc(list, func(other parser.Item) bool { return unquote(other) == c.New })
}

func (w *work) groupLabel(item parser.Item) {
	if w.keeps(item) {
		return
	}
	name := unquote(item)
	c, ok := w.label(name, w.ours && !w.foreign)
	switch {
	case ok:
		w.replace(item, c)
	case name == w.hostOld && name != "" && w.ours:
		w.noteByHand("groups by %s, which the exporter's series call %s, and another metric's too", name, w.hostNew)
	}
}

// labelArguments rewrites the label names among a function's arguments.
func (w *work) labelArguments(c *parser.Call) {
	for i, arg := range c.Args {
		lit, ok := arg.(*parser.StringLiteral)
		if !ok {
			continue
		}
		switch c.Func.Name {
		case "label_replace": // v, dst, replacement, src, regex
			if i == 1 || i == 3 {
				w.labelLiteral(lit)
			}
		case "label_join": // v, dst, separator, src...
			if i != 2 {
				w.labelLiteral(lit)
			}
		case "sort_by_label", "sort_by_label_desc":
			w.labelLiteral(lit)
		}
	}
}

func (w *work) labelLiteral(lit *parser.StringLiteral) {
	for _, item := range w.items {
		if item.Pos == lit.PosRange.Start && item.Typ == parser.STRING {
			w.groupLabel(item)
		}
	}
}
