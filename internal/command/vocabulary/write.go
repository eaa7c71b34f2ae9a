package vocabulary

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A patch replaces bytes of a document.
type patch struct {
	start, end int
	text       []byte
	of         *node
}

// replaceTexts returns a document with other texts in some of its nodes and every other byte as it
// was, and which nodes have theirs. What it returns parses to exactly that; a text that is written
// in a way that it cannot keep (folded, over several lines) stays. It returns nil where none is
// written.
func replaceTexts(data []byte, docs []*node, edits map[*node]string) ([]byte, map[*node]bool) {
	// A new text may need quotes where the old one needed none.
	for _, quote := range []bool{false, true} {
		patches := patchesOf(data, edits, quote)
		if len(patches) == 0 {
			return nil, nil
		}
		out, written := apply(data, patches)
		after, err := parseTree(out)
		if err == nil && slices.EqualFunc(docs, after, func(a, b *node) bool { return a.equals(b, edits, written) }) {
			return out, written
		}
	}
	return nil, nil
}

func patchesOf(data []byte, edits map[*node]string, quote bool) []patch {
	var list []patch
	for n, text := range edits {
		if p, ok := n.patch(data, text, quote); ok {
			p.of = n
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b patch) int { return cmp.Compare(a.start, b.start) })
	return list
}

func apply(data []byte, patches []patch) ([]byte, map[*node]bool) {
	written := map[*node]bool{}
	var out []byte
	at := 0
	for _, p := range patches {
		out = append(append(out, data[at:p.start]...), p.text...)
		at = p.end
		written[p.of] = true
	}
	return append(out, data[at:]...), written
}

// equals reports whether b is n, with the new texts in the nodes that have them.
func (n *node) equals(b *node, edits map[*node]string, written map[*node]bool) bool {
	text := n.text
	if written[n] {
		text = edits[n]
	}
	return text == b.text && n.str == b.str &&
		slices.EqualFunc(n.list, b.list, func(x, y *node) bool { return x.equals(y, edits, written) }) &&
		slices.EqualFunc(n.keys, b.keys, func(x, y member) bool { return x.key == y.key && x.value.equals(y.value, edits, written) })
}

// patch returns what to replace so that the node has another text.
func (n *node) patch(data []byte, text string, quote bool) (patch, bool) {
	if n.end > 0 {
		// The byte order mark is no part of what the offsets count.
		mark := len(data) - len(bytes.TrimPrefix(data, []byte("\ufeff")))
		return patch{start: mark + n.start, end: mark + n.end, text: jsonString(text)}, true
	}
	if n.column == 0 {
		return patch{}, false
	}
	if n.literal {
		return n.literalPatch(data, text)
	}
	start, ok := offset(data, n.line, n.column)
	if !ok {
		return patch{}, false
	}
	written := func(old string, with []byte) (patch, bool) {
		return patch{start: start, end: start + len(old), text: with}, bytes.HasPrefix(data[start:], []byte(old))
	}
	switch {
	case n.style&yaml.DoubleQuotedStyle != 0:
		end := closingQuote(data, start)
		return patch{start: start, end: end, text: jsonString(text)}, end > 0
	case n.style&yaml.SingleQuotedStyle != 0:
		return written(singleQuoted(n.text), []byte(singleQuoted(text)))
	case n.style&yaml.FoldedStyle != 0 || strings.Contains(n.text+text, "\n"):
		return patch{}, false
	case quote:
		return written(n.text, []byte(singleQuoted(text)))
	default:
		return written(n.text, []byte(text))
	}
}

// literalPatch replaces the lines of a block scalar that are others in the new text.
func (n *node) literalPatch(data []byte, text string) (patch, bool) {
	trimmed := func(s string) string { return strings.TrimRight(s, "\n") }
	if text[len(trimmed(text)):] != n.text[len(trimmed(n.text)):] {
		return patch{}, false // its header says how it ends
	}
	start, ok := offset(data, n.line, 1)
	if !ok {
		return patch{}, false
	}
	indent, end := "", start
	for i, line := range strings.Split(trimmed(n.text), "\n") {
		if i > 0 {
			end++ // the line break
		}
		if end > len(data) {
			return patch{}, false
		}
		raw, _, _ := strings.Cut(string(data[end:]), "\n")
		if line != "" && indent == "" {
			indent = raw[:max(len(raw)-len(line), 0)]
			if strings.Trim(indent, " ") != "" {
				return patch{}, false
			}
		}
		if line != "" && raw != indent+line || line == "" && strings.Trim(raw, " ") != "" {
			return patch{}, false
		}
		end += len(raw)
	}
	var out []string
	for _, line := range strings.Split(trimmed(text), "\n") {
		if line != "" {
			line = indent + line
		}
		out = append(out, line)
	}
	return patch{start: start, end: end, text: []byte(strings.Join(out, "\n"))}, true
}

// offset returns where a character of a line is.
func offset(data []byte, line, column int) (int, bool) {
	at := 0
	for range line - 1 {
		next := bytes.IndexByte(data[at:], '\n')
		if next < 0 {
			return 0, false
		}
		at += next + 1
	}
	if line == 1 && bytes.HasPrefix(data, []byte("\ufeff")) {
		at += len("\ufeff")
	}
	for range column - 1 {
		if at >= len(data) || data[at] == '\n' {
			return 0, false
		}
		_, size := utf8.DecodeRune(data[at:])
		at += size
	}
	return at, true
}

// closingQuote returns the end of a double-quoted text that begins at start and stands on one line,
// 0 where there is none.
func closingQuote(data []byte, start int) int {
	if start >= len(data) || data[start] != '"' {
		return 0
	}
	for i := start + 1; i < len(data) && data[i] != '\n'; i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

func singleQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// jsonString returns a text as JSON and YAML have it between double quotes.
func jsonString(text string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // of a string, into memory
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// ReplaceFile writes a file whole or not at all, with the mode that it has. Behind a link it is the
// file that the link leads to.
func ReplaceFile(name string, content []byte) (err error) {
	path, err := filepath.EvalSymlinks(name)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // half a file is none
		}
	}()
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
