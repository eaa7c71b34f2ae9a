package lint

import (
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// rewriteDocuments corrects the values in here-documents of the script, word by word: a misspelled
// key, a wrong value, a text without quotes. A line never goes, since a group without keys is null
// and takes the chart's defaults away. What stays as it is becomes Result.Left.
func (r *run) rewriteDocuments(in *installation) {
	seen := map[*setting]int{} // where a setting stands in r.left, or -1
	for _, m := range in.mistakes {
		for _, s := range m.settings {
			if s.node == nil || !s.edited() && s.tree == nil {
				continue
			}
			at, again := seen[s]
			switch {
			case again && at >= 0:
				r.left[at].Fix = m.Fix // the last rule had the last word
			case again:
			case s.script > 0 && r.rewrite(s):
				seen[s] = -1
			default:
				seen[s] = len(r.left)
				r.left = append(r.left, Left{Subject: s.name(), File: s.file, Line: s.line, Fix: m.Fix})
			}
		}
	}
}

// rewrite corrects one setting of a here-document, and reports whether it could.
func (r *run) rewrite(s *setting) bool {
	if s.dropped || len(s.added) > 0 {
		return false
	}
	done := false
	if s.renamed != nil {
		at := -1
		for i := range s.renamed {
			if len(s.renamed) != len(s.Path) || i >= len(s.keys) || s.renamed[i] != s.Path[i] && at >= 0 {
				return false
			}
			if s.renamed[i] != s.Path[i] {
				at = i
			}
		}
		if at < 0 || !r.replaceScalar(s, s.keys[at], s.renamed[at]) {
			return false
		}
		done = true
	}
	if s.changed != nil {
		return r.replaceScalar(s, s.node, *s.changed)
	}
	if s.tree != nil {
		return r.requote(s, s.node, s.tree)
	}
	return done
}

// requote writes the scalars in quotes that are texts in the corrected copy of a value.
func (r *run) requote(s *setting, is, want *yaml.Node) bool {
	if is.Kind != want.Kind || len(is.Content) != len(want.Content) {
		return false // a text that holds a group of keys
	}
	if is.Kind == yaml.ScalarNode && is.Style != want.Style {
		return r.replaceScalar(s, is, `"`+is.Value+`"`)
	}
	for i := range is.Content {
		if !r.requote(s, is.Content[i], want.Content[i]) {
			return false
		}
	}
	return true
}

// replaceScalar writes another word in the place of a scalar, if the script has the scalar there.
func (r *run) replaceScalar(s *setting, n *yaml.Node, word string) bool {
	was := n.Value
	switch n.Style {
	case 0:
	case yaml.DoubleQuotedStyle:
		was = `"` + was + `"`
	case yaml.SingleQuotedStyle:
		was = "'" + was + "'"
	default:
		return false
	}
	start := r.lineStart(n.Line + s.script)
	for range n.Column - 1 {
		if start < 0 || start >= len(r.source) || r.source[start] == '\n' {
			return false
		}
		_, size := utf8.DecodeRuneInString(r.source[start:])
		start += size
	}
	if start < 0 || was == "" || !strings.HasPrefix(r.source[start:], was) {
		return false
	}
	end := start + len(was)
	if end < len(r.source) && !strings.ContainsRune(" \t\r\n:,]}", rune(r.source[end])) {
		return false
	}
	r.corrections = append(r.corrections, correction{start, end, word})
	return true
}

// lineStart is the offset at which a line of the script begins, or -1.
func (r *run) lineStart(line int) int {
	offset := 0
	for range line - 1 {
		next := strings.IndexByte(r.source[offset:], '\n')
		if next < 0 {
			return -1
		}
		offset += next + 1
	}
	return offset
}
