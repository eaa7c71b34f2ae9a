package vocabulary

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// maxEmbedded bounds how deep files stand in files: a manifest in a ConfigMap that holds a
// dashboard is two.
const maxEmbedded = 4

// embedded looks through a text that is itself a file of a kind that is read, and reports whether
// it is one: a dashboard or rules in a ConfigMap, the json of a GrafanaDashboard, a scrape
// configuration in a Secret or in a chart's values.
func (w *walker) embedded(n *node, f frame) bool {
	if w.depth == maxEmbedded || !strings.ContainsAny(n.text, "{\n") {
		return false
	}
	docs, err := parseTree([]byte(n.text))
	if err != nil || !slices.ContainsFunc(docs, isRead) {
		return false
	}
	inner := &walker{rewriter: w.rewriter, file: w.file, depth: w.depth + 1, known: true, edits: map[*node]string{}}
	inner.documents(docs, frame{place: f.place})
	text, written := replaceTexts([]byte(n.text), docs, inner.edits)
	if text != nil {
		w.edits[n] = string(text)
	}
	inner.mark(written)
	for _, found := range inner.findings {
		found.Line, found.Place = n.at(found.Line, found.Place)
		var edited *node
		if found.Written { // once the text is that it stands in
			found.Written, edited = false, n
		}
		w.report(found, edited)
	}
	for _, e := range inner.errs {
		e.line, e.place = n.at(e.line, e.place)
		w.errs = append(w.errs, e)
	}
	return true
}

// at returns where a line of a text stands in the file. A text that is not written line by line, as
// a string of JSON is not, is one place; the line in it is then a part of the words.
func (n *node) at(line int, place string) (int, string) {
	if n.literal {
		return n.line + line - 1, place
	}
	if !strings.Contains(strings.TrimRight(n.text, "\n"), "\n") {
		return n.line, place
	}
	return n.line, join(place, fmt.Sprintf("line %d of the text", line))
}

// isRead reports whether a document is of a kind that is read, or contains one.
func isRead(n *node) bool {
	if n == nil {
		return false
	}
	return n.kind() || slices.ContainsFunc(n.list, isRead) ||
		slices.ContainsFunc(n.keys, func(m member) bool { return isRead(m.value) })
}

// kind reports whether a value is of a kind that is read.
func (n *node) kind() bool {
	for _, key := range []string{"panels", "rows", "templating", "groups", "scrape_configs"} {
		if v := n.get(key); v != nil && !v.str {
			return true
		}
	}
	return n.manifest()
}

// manifest reports whether a value is a Kubernetes object. Of most kinds there is nothing to say,
// but they stand between those of which there is.
func (n *node) manifest() bool { return n.string("apiVersion") != "" && n.string("kind") != "" }

// objectName names a Kubernetes object the way kubectl does.
func objectName(n *node) string {
	meta := n.get("metadata")
	if strings.HasSuffix(n.string("kind"), "List") && meta.string("name") == "" {
		return "" // what is in it has names
	}
	return strings.TrimSpace(n.string("kind") + " " + strings.TrimPrefix(meta.string("namespace")+"/"+meta.string("name"), "/"))
}

// countersFile reports whether the text under a key of a ConfigMap is a counters file: its names
// are requests, which are honored as they are written.
func countersFile(key string) bool { return key == "metrics" || strings.HasSuffix(key, ".csv") }

// unreadable leaves a note to be resolved by hand where a text that should be a file is none, and
// names something that changes. It reports whether the text is none.
func (w *walker) unreadable(n *node, f frame) bool {
	_, err := parseTree([]byte(strings.TrimRight(n.text, "\n")))
	var syntax *text.SyntaxError
	if !errors.As(err, &syntax) {
		return false
	}
	if list := w.named(n.text); len(list) > 0 {
		at := &node{}
		at.line, f.place = n.at(max(syntax.Line, 1), f.place)
		w.add(at, f, "text", "", rewriting{byHand: []string{fmt.Sprintf("%s, and names %s", syntax.Msg, examples(list))}})
	}
	return true
}
