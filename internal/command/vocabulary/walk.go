package vocabulary

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A Finding is a place in a file that changes under the other vocabulary.
type Finding struct {
	File  string `json:"file"`
	Line  int    `json:"line"`
	Place string `json:"place"`
	// What says what is written there: expression, variable, legend, template, relabeling or text.
	What    string   `json:"what"`
	To      string   `json:"to"`
	Old     string   `json:"old"`
	New     string   `json:"new,omitempty"` // empty where nothing is rewritten
	Changes []Change `json:"changes,omitempty"`
	ByHand  []string `json:"byHand,omitempty"`
	// Written: the file has the new text now.
	Written bool `json:"written,omitempty"`
}

// A walker looks through one file.
type walker struct {
	rewriter
	file     string
	findings []Finding
	edited   []*node          // by finding: the node that gets a new text, nil for none
	errs     []*fileError     // what cannot be read; the rest is
	known    bool             // something in the file is of a kind that is read
	edits    map[*node]string // the new texts
	depth    int              // in how many texts the file stands
}

// A frame is what a walker knows of where it is.
type frame struct {
	place    string
	parent   string // the key under which the value stands
	variable bool   // in a dashboard's variable
	rules    bool   // in a rule, whose expressions must parse
	data     bool   // in the data of a ConfigMap or Secret
	ours     bool   // the panel's query next to it is about the exporter
}

// words are what can be a metric's or a label's name.
var words = regexp.MustCompile(`[A-Za-z_:][A-Za-z0-9_:]*`)

// direction returns the vocabulary that a file is not in: the current one for a file with classic
// names, and for one without any names.
func direction(data []byte) catalog.Vocabulary {
	older := false
	for _, word := range words.FindAllString(string(data), -1) {
		if _, _, ok := catalog.Rename(word, catalog.Current); ok {
			return catalog.Current
		}
		_, _, ok := catalog.Rename(word, catalog.Classic)
		older = older || ok
	}
	if older {
		return catalog.Classic
	}
	return catalog.Current
}

// A fileError says what is wrong with a file.
type fileError struct {
	file  string
	line  int
	place string
	what  string
	// foreign: nothing in the file names a metric of the exporter.
	foreign bool
}

func (e *fileError) Error() string {
	place := e.place
	if place != "" {
		place += ": "
	}
	return fmt.Sprintf("%s:%d: %s%s", e.file, e.line, place, e.what)
}

// errOtherKind: a file that is none of those that are read.
var errOtherKind = errors.New("no dashboard (panels, rows, templating), rule file (groups), scrape configuration or Kubernetes manifest")

// rewriteDocument returns what changes in a file, and what of it cannot be read. With write it
// returns the file with the changes too, nil where there are none or none can be written.
func rewriteDocument(file string, data []byte, r rewriter, write bool) (findings []Finding, rewritten []byte, err error) {
	docs, err := parseTree(data)
	if err != nil {
		var syntax *text.SyntaxError
		if errors.As(err, &syntax) {
			line := max(syntax.Line, 1)
			return nil, nil, &fileError{file: file, line: line, what: syntax.Msg + hint(data, line), foreign: !aboutUs(string(data))}
		}
		return nil, nil, err
	}
	w := &walker{rewriter: r, file: file, edits: map[*node]string{}}
	w.documents(docs, frame{})
	if !w.known {
		return nil, nil, fmt.Errorf("%s:1: %w", file, errOtherKind)
	}
	if write {
		var written map[*node]bool
		rewritten, written = replaceTexts(data, docs, w.edits)
		w.mark(written)
	}
	errs := make([]error, len(w.errs))
	for i, e := range w.errs {
		errs[i] = e
	}
	return w.findings, rewritten, errors.Join(errs...)
}

func (w *walker) report(f Finding, edited *node) {
	w.findings, w.edited = append(w.findings, f), append(w.edited, edited)
}

// mark says of the findings whether their texts were written.
func (w *walker) mark(written map[*node]bool) {
	for i, n := range w.edited {
		w.findings[i].Written = n != nil && written[n]
	}
}

// hint is for who hands over a chart's templates instead of what they make.
func hint(data []byte, line int) string {
	lines := strings.Split(string(data), "\n")
	if strings.Contains(lines[min(max(line, 1), len(lines))-1], "{{") {
		return "; a Helm template is read once it is rendered (helm template)"
	}
	return ""
}

// documents looks through the documents of a file.
func (w *walker) documents(docs []*node, f frame) {
	for _, doc := range docs {
		inner := f
		if doc.manifest() {
			inner.place = join(f.place, objectName(doc))
		}
		w.node(doc, inner)
	}
}

// node looks through a value.
func (w *walker) node(n *node, f frame) {
	for i, child := range n.list {
		inner := f
		if child.str {
			w.string(child, f.parent, inner)
			continue
		}
		inner.place = placeOf(child, f, i)
		inner.variable = f.variable || f.parent == "list" && strings.HasSuffix(f.place, "templating")
		inner.rules = f.rules || f.parent == "rules" && (child.get("alert") != nil || child.get("record") != nil)
		w.node(child, inner)
	}
	w.known = w.known || n.kind()
	if w.relabeling(n, f) {
		return
	}
	if expr := n.string("expr"); expr != "" {
		f.ours = aboutUs(expr)
	}
	for i := range n.keys {
		m := &n.keys[i]
		inner := f
		inner.parent = m.key
		inner.data = f.data || (m.key == "data" || m.key == "stringData") && n.manifest()
		switch {
		case m.key == "templating", m.key == "annotations" && n.get("list") == nil && m.value.get("list") != nil:
			inner.place = join(f.place, m.key)
		}
		w.key(m, f)
		if m.value.str {
			w.string(m.value, m.key, inner)
		} else {
			w.node(m.value, inner)
		}
	}
}

func join(parts ...string) string {
	var list []string
	for _, p := range parts {
		if p != "" {
			list = append(list, p)
		}
	}
	return strings.Join(list, ", ")
}

// placeOf names an element of a list the way its reader knows it.
func placeOf(n *node, f frame, i int) string {
	outer := strings.TrimSuffix(strings.TrimSuffix(f.place, "templating"), "annotations")
	outer = strings.TrimSuffix(outer, ", ")
	title := func(kind string, keys ...string) string {
		for _, key := range keys {
			if text := n.string(key); text != "" {
				return join(outer, fmt.Sprintf("%s %q", kind, text))
			}
		}
		return join(outer, fmt.Sprintf("%s %d", kind, i+1))
	}
	switch {
	case f.parent == "panels":
		return title("panel", "title")
	case f.parent == "rows":
		return title("row", "title")
	case f.parent == "list" && strings.HasSuffix(f.place, "templating"):
		return title("variable", "name")
	case f.parent == "list" && strings.HasSuffix(f.place, "annotations"):
		return title("annotation", "name")
	case f.parent == "groups":
		return title("group", "name")
	case f.parent == "rules":
		return title("rule", "alert", "record", "title")
	case f.parent == "items":
		return join(outer, objectName(n))
	case f.parent == "endpoints" || f.parent == "podMetricsEndpoints":
		return title("endpoint", "port")
	case f.parent == "scrape_configs":
		return title("job", "job_name")
	default:
		return f.place
	}
}

// aboutUs reports whether a text names a metric of the exporter.
func aboutUs(expr string) bool {
	for _, word := range words.FindAllString(expr, -1) {
		if ours(word) {
			return true
		}
	}
	return false
}

// add notes a finding if there is anything in it.
func (w *walker) add(n *node, f frame, what, old string, r rewriting) {
	if len(r.changes) == 0 && len(r.byHand) == 0 {
		return
	}
	found := Finding{
		File: w.file, Line: n.line, Place: f.place, What: what, To: w.to.String(),
		Old: old, Changes: r.changes, ByHand: r.byHand,
	}
	var edited *node
	if r.text != old {
		found.New = r.text
		if n.text == old {
			w.edits[n], edited = r.text, n
		}
	}
	w.report(found, edited)
}

// string looks at a string under a key.
func (w *walker) string(n *node, key string, f frame) {
	if f.data {
		f.place = join(f.place, key)
	}
	switch {
	case f.data && (countersFile(key) || w.embedded(n, f) || isDocument(key) && w.unreadable(n, f)):
	case key == "expr":
		w.query(n, f, values)
	case f.variable && (key == "query" || key == "definition"):
		w.variable(n, f)
	case key == "legendFormat" || key == "titleFormat" || key == "textFormat":
		w.add(n, f, "legend", n.text, w.legend(n.text, f.ours))
	case f.rules:
		w.add(n, f, "template", n.text, w.template(n.text, f.ours))
	case prose(key), w.embedded(n, f):
	default:
		w.leftovers(n, f)
	}
}

// prose reports whether the text under a key is for people.
func prose(key string) bool {
	switch key {
	case "title", "description", "content", "name", "text", "uid", "record", "alert", "job_name", "summary", "label":
		return true
	default:
		return false
	}
}

// query rewrites an expression.
func (w *walker) query(n *node, f frame, s scope) {
	r, err := w.expression(n.text, s)
	switch {
	case err == nil:
		w.add(n, f, "expression", n.text, r)
	case f.rules:
		w.errs = append(w.errs, &fileError{file: w.file, line: n.line, place: f.place, what: fmt.Sprintf("not PromQL: %v", err)})
	default:
		// A dashboard can query other data sources, in other languages.
		w.unread(n, f, "expression", err)
	}
}

// unread leaves a note to be resolved by hand where a text that is no PromQL names something that
// changes.
func (w *walker) unread(n *node, f frame, what string, err error) {
	if list := w.named(n.text); len(list) > 0 {
		w.add(n, f, what, n.text, rewriting{text: n.text, byHand: []string{fmt.Sprintf("not read as PromQL (%v), and names %s", err, examples(list))}})
	}
}

// named returns the changing names in a text.
func (w *walker) named(text string) []Change {
	var list []Change
	seen := map[string]bool{}
	for _, word := range words.FindAllString(text, -1) {
		if seen[word] {
			continue
		}
		seen[word] = true
		if c, _, ok := w.metric(word); ok {
			list = append(list, c)
		} else if c, ok := w.label(word, false); ok {
			list = append(list, c)
		}
	}
	return list
}

// leftover leaves a note to be resolved by hand where a name that changes stands in a text of
// another kind: a transformation, an override, a threshold.
func (w *walker) leftover(n *node, text string, f frame) {
	if list := w.named(text); len(list) > 0 {
		w.add(n, f, "text", text, rewriting{text: text, byHand: []string{"names " + examples(list)}})
	}
}

// leftovers is leftover for each line of a text.
func (w *walker) leftovers(n *node, f frame) {
	if !strings.Contains(strings.TrimRight(n.text, "\n"), "\n") {
		w.leftover(n, n.text, f)
		return
	}
	number := 0
	for line := range strings.Lines(n.text) {
		number++
		at, inner := &node{}, f
		at.line, inner.place = n.at(number, f.place)
		w.leftover(at, strings.TrimRight(line, "\r\n"), inner)
	}
}

// key looks at the key of an object: transformations name series by them.
func (w *walker) key(m *member, f frame) {
	w.leftover(&node{line: m.line}, m.key, f)
}

var (
	legendLabel   = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	templateLabel = regexp.MustCompile(`(?:\$labels|\.Labels)\.(\w+)`)
)

// legend rewrites the labels of a legend.
func (w *walker) legend(text string, exporters bool) rewriting {
	return w.rewriteLabels(text, legendLabel, exporters)
}

// template rewrites the labels of a rule's annotation; queries in it are for a person.
func (w *walker) template(text string, exporters bool) rewriting {
	r := w.rewriteLabels(text, templateLabel, exporters)
	if !strings.Contains(text, "{{") {
		return rewriting{text: text}
	}
	for _, action := range regexp.MustCompile(`\{\{[^}]*\}\}`).FindAllString(text, -1) {
		if strings.Contains(action, "query") {
			if list := w.named(action); len(list) > 0 {
				r.byHand = append(r.byHand, "a query in the template names "+examples(list))
			}
		}
	}
	return r
}

// rewriteLabels rewrites the labels that the first group of a pattern finds, but for those whose
// new name is there too: such a text takes whichever the series have.
func (w *walker) rewriteLabels(text string, pattern *regexp.Regexp, exporters bool) rewriting {
	var r rewriting
	var out strings.Builder
	at := 0
	var names []string
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	for _, m := range pattern.FindAllStringSubmatchIndex(text, -1) {
		if c, ok := w.label(text[m[2]:m[3]], exporters); ok && !slices.Contains(names, c.New) {
			out.WriteString(text[at:m[2]] + c.New)
			at = m[3]
			r.changes = append(r.changes, c)
		}
	}
	out.WriteString(text[at:])
	r.text = out.String()
	return r
}

var variableCall = regexp.MustCompile(`(?s)^\s*(label_values|label_names|query_result|metrics)\s*\((.*)\)\s*$`)

// variable rewrites the query of a dashboard's variable.
func (w *walker) variable(n *node, f frame) {
	m := variableCall.FindStringSubmatchIndex(n.text)
	if m == nil {
		w.leftover(n, n.text, f)
		return
	}
	function, argument := n.text[m[2]:m[3]], n.text[m[4]:m[5]]
	put := func(r rewriting) {
		r.text = n.text[:m[4]] + r.text + n.text[m[5]:]
		w.add(n, f, "variable", n.text, r)
	}
	switch function {
	case "query_result":
		r, err := w.expression(argument, values)
		if err != nil {
			w.unread(n, f, "variable", err)
			return
		}
		put(r)
	case "metrics":
		put(w.pattern(argument, false))
	case "label_names":
		w.leftover(n, n.text, f)
	default: // label_values(label) or label_values(selector, label)
		comma := strings.LastIndexByte(argument, ',')
		label := argument[comma+1:]
		r := rewriting{text: ""}
		mine := true
		if comma >= 0 {
			var err error
			if r, err = w.expression(argument[:comma], series); err != nil {
				w.unread(n, f, "variable", err)
				return
			}
			mine = aboutUs(argument[:comma])
			r.text += ","
		}
		name := strings.TrimSpace(label)
		if c, ok := w.label(name, mine && comma >= 0); ok {
			label = strings.Replace(label, name, c.New, 1)
			r.changes = append(r.changes, c)
		} else if comma < 0 && name == w.hostOld && name != "" {
			r.byHand = append(r.byHand, fmt.Sprintf("selects by the label %s of any series; the exporter's have %s", name, w.hostNew))
		}
		r.text += label
		put(r)
	}
}

// pattern rewrites a regular expression over metrics' names: an alternation of names becomes one of
// the new names, everything else that loses names is for a person. Anchored ones match whole names.
func (w *walker) pattern(text string, anchored bool) rewriting {
	r := rewriting{text: text}
	expr := text
	if anchored {
		expr = "^(?s:" + text + ")$"
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return r
	}
	lost := w.lost(re.MatchString)
	if len(lost) == 0 {
		return r
	}
	if !plainNames.MatchString(text) {
		r.byHand = []string{fmt.Sprintf("%q matches %s", text, examples(lost))}
		return r
	}
	names := strings.Split(text, "|")
	for i, name := range names {
		if c, _, ok := w.metric(name); ok {
			names[i] = c.New
			r.changes = append(r.changes, c)
		}
	}
	r.text = strings.Join(names, "|")
	return r
}
