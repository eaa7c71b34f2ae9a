// Package fields is a strict reader of small YAML files that keeps the line of every value.
//
// It reports keys that are unknown, duplicate or of the wrong type, and suggests the nearest known key. It also
// recognizes mistakes from copying, such as the "..." that articles use for "and so on". The package knows no file
// format. A Reader is for one file and one goroutine.
package fields

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Reader collects findings about one file. The zero value is ready to use.
type Reader struct {
	Findings []check.Finding
	// Unknown is the reason of findings about unknown keys. If it is empty, a general reason is used.
	Unknown string
}

// Add adds a finding with the node's line and column. A nil node means the whole file.
func (r *Reader) Add(rule *check.Check, s check.Severity, n *yaml.Node, subject, reason, fix string) {
	f := check.Finding{Check: rule, Severity: s, Subject: subject, Reason: reason, Fix: fix}
	if n != nil {
		f.Line, f.Column = n.Line, n.Column
	}
	r.Findings = append(r.Findings, f)
}

// maxExpanded is the maximum number of nodes after aliases are resolved. It applies only to documents with aliases.
const maxExpanded = 100_000

// tooLarge reports whether a document with aliases expands to more than maxExpanded nodes.
func tooLarge(root *yaml.Node) bool {
	sizes, hasAlias := map[*yaml.Node]int{}, false
	var size func(n *yaml.Node) int
	size = func(n *yaml.Node) int {
		if n == nil || sizes[n] > 0 {
			return sizes[n]
		}
		sizes[n] = maxExpanded + 1 // in progress: an alias to a parent would recurse forever
		hasAlias = hasAlias || n.Alias != nil
		total := 1 + size(n.Alias)
		for _, c := range n.Content {
			total = min(total+size(c), maxExpanded+1)
		}
		sizes[n] = total
		return total
	}
	return size(root) > maxExpanded && hasAlias
}

var ellipsis = regexp.MustCompile(`(?m)^[ \t]+(\.\.\.|…)[ \t\r]*$`)

// Document parses the file and returns the mapping at its root. If the file cannot be parsed or has no such mapping,
// Document adds a finding and returns nil.
func (r *Reader) Document(data []byte) *yaml.Node {
	var doc yaml.Node
	err := yaml.Unmarshal(data, &doc)
	switch {
	case err != nil:
		r.syntax(data, err)
	case len(doc.Content) == 0 || IsNull(doc.Content[0]):
		r.Add(Syntax, check.Error, nil, "", "the file is empty", "")
	case tooLarge(&doc):
		reason := fmt.Sprintf("aliases expand to more than %d values or refer to themselves; skipped", maxExpanded)
		r.Add(Aliases, check.Error, nil, "", reason, "write the values out")
	case Resolve(doc.Content[0]).Kind != yaml.MappingNode:
		r.wrong(Resolve(doc.Content[0]), "", "a mapping of keys to values")
	default:
		return Resolve(doc.Content[0])
	}
	return nil
}

// syntax reports a parse error. If a line contains only an ellipsis, it reports that line instead: the file was copied
// from a shortened example.
func (r *Reader) syntax(data []byte, err error) {
	e := text.YAMLError("", err)
	if at := ellipsis.FindIndex(data); at != nil {
		r.Add(Ellipsis, check.Error, &yaml.Node{Line: 1 + bytes.Count(data[:at[0]], []byte("\n"))}, "...",
			`"..." is left over from a shortened example: the file is not valid YAML`,
			"replace it with the missing lines, or delete it")
	} else {
		r.Add(Syntax, check.Error, &yaml.Node{Line: e.Line}, "", e.Msg, "")
	}
}

// wrong reports a value that has none of the tags.
func (r *Reader) wrong(n *yaml.Node, path, expected string, tags ...string) {
	r.Add(WrongType, check.Error, n, path, "found "+Describe(n)+", expected "+expected, Retype(n, tags...))
}

// Resolve returns the node that an alias refers to. It follows up to 16 aliases and then returns a null node, because
// YAML allows an alias that refers to itself.
func Resolve(n *yaml.Node) *yaml.Node {
	for range 16 {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
}

// Field is a key of a mapping with its value.
type Field struct {
	Name       string
	Key, Value *yaml.Node
}

// Mapping returns the fields of a mapping in file order. path names the mapping in findings ("" is the root). If known
// names are given, other fields are reported and omitted. Duplicate fields are reported, and the last one wins, as in
// Kubernetes.
func (r *Reader) Mapping(n *yaml.Node, path string, known ...string) []Field {
	n = Resolve(n)
	if IsNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.wrong(n, path, "a mapping of keys to values")
		return nil
	}
	var fields []Field
	content, own := n.Content, len(n.Content)
	for i := 0; i+1 < len(content); i += 2 {
		key, value := Resolve(content[i]), Resolve(content[i+1])
		at := index(fields, key.Value)
		switch subject := strings.TrimPrefix(path+"."+key.Value, "."); {
		case key.Tag == "!!merge" && merged(value) != nil:
			if i < own { // merge keys are followed one level deep, and the mapping's own keys win
				content = slices.Concat(content, merged(value))
			}
		case key.Tag == "!!merge" || key.Kind != yaml.ScalarNode:
			r.Add(WrongType, check.Error, key, path, "found "+Describe(key)+" as a key, expected a string", "")
		case at >= 0 && i < own:
			also := fields[at].Key.Line
			reason := fmt.Sprintf("duplicate key, also set on line %d; only the last value is used", also)
			r.Add(Duplicate, check.Error, key, subject, reason, "keep one")
			fields = append(slices.Delete(fields, at, at+1), Field{key.Value, key, value})
		case at >= 0:
		case len(known) > 0 && !slices.Contains(known, key.Value):
			fix := check.Suggest(key.Value, known, "known here: "+strings.Join(known, ", "))
			reason := cmp.Or(r.Unknown, "unknown key; depending on the version it is ignored or rejected")
			r.Add(UnknownKey, check.Error, key, subject, reason, fix)
		default:
			fields = append(fields, Field{key.Value, key, value})
		}
	}
	return fields
}

// merged returns the keys and values that a merge key adds. The value is a mapping, or a list of mappings in which the
// first wins. For other values, merged returns nil.
func merged(value *yaml.Node) []*yaml.Node {
	all := []*yaml.Node{}
	switch value.Kind {
	case yaml.MappingNode:
		return append(all, value.Content...)
	case yaml.SequenceNode:
		for _, item := range Items(value) {
			if item.Kind != yaml.MappingNode {
				return nil
			}
			all = append(all, item.Content...)
		}
		return all
	}
	return nil
}

func index(fields []Field, name string) int {
	return slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
}

// List returns the elements of a sequence. Other values, except null, are reported.
func (r *Reader) List(n *yaml.Node, path string) []*yaml.Node {
	if n = Resolve(n); !IsNull(n) && n.Kind != yaml.SequenceNode {
		r.wrong(n, path, "a list")
	}
	return Items(n)
}

// Bool reads true or false. Other values are reported, including quoted words, and ok is false.
func (r *Reader) Bool(n *yaml.Node, path string) (value, ok bool) {
	ok = r.scalar(n, path, "!!bool", "true or false", &value)
	return value, ok
}

// Int reads an integer. Other values are reported, and ok is false.
func (r *Reader) Int(n *yaml.Node, path string) (value int, ok bool) {
	ok = r.scalar(n, path, "!!int", "a whole number", &value)
	return value, ok
}

// Text reads a string. It reports any other value, such as an unquoted number or true, and returns false.
func (r *Reader) Text(n *yaml.Node, path string) (value string, ok bool) {
	ok = r.scalar(n, path, "!!str", "a string", &value)
	return value, ok
}

func (r *Reader) scalar(n *yaml.Node, path, tag, expected string, into any) bool {
	n = Resolve(n)
	if n.Kind == yaml.ScalarNode && n.Tag == tag && n.Decode(into) == nil {
		return true
	}
	r.wrong(n, path, expected, tag)
	return false
}

// Retype suggests how to write a scalar so that it has one of the tags: with quotes or without. It returns "" if it has
// no suggestion.
func Retype(n *yaml.Node, tags ...string) string {
	var plain yaml.Node
	switch {
	case n.Kind == yaml.ScalarNode && !IsNull(n) && slices.Contains(tags, "!!str"):
		return "write " + strconv.Quote(n.Value)
	case n.Tag == "!!str" && yaml.Unmarshal([]byte(n.Value), &plain) == nil && len(plain.Content) == 1 &&
		slices.Contains(tags, plain.Content[0].Tag):
		return "write " + n.Value + " without quotes"
	}
	return ""
}

// IsNull reports whether the node is empty or null.
func IsNull(n *yaml.Node) bool { return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// Describe describes the value of a node for messages. It does not quote strings that may be secret.
func Describe(n *yaml.Node) string {
	switch {
	case IsNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!str" && plain.MatchString(n.Value):
		return "the string " + strconv.Quote(n.Value)
	case n.Tag == "!!str":
		return "a string"
	}
	return n.Value
}

// plain matches texts that messages may repeat: short words, such as a switch or a misspelled true, numbers and
// quantities, such as 4194304Mi or 60s, and texts that another program replaces: $NAME, ${NAME}, {{ … }}, <name>. Other
// texts may be secret.
var plain = regexp.MustCompile(`^(\s*[A-Za-z]{0,12}\s*|[0-9+.-][0-9+.eEkKmMgGtTiBbsh%-]{0,11}` +
	`|\$\{?[A-Za-z_][\w.]*\}?|\$\(.*\)|[^{}]*\{\{.*\}\}[^{}]*|<[\w .-]+>)$`)

// Of returns the fields of a mapping, or nil for other nodes. Unlike Mapping, it reports no findings.
func Of(n *yaml.Node) []Field {
	var ignored Reader
	return ignored.Mapping(n, "")
}

// Get follows a path of names through mappings. It returns nil if a name is missing.
func Get(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		in := Of(n)
		at := index(in, name)
		if at < 0 {
			return nil
		}
		n = in[at].Value
	}
	return Resolve(n)
}

// Text returns the scalar at a path of names, or "" if there is none.
func Text(n *yaml.Node, names ...string) string {
	if n = Get(n, names...); n != nil && n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return n.Value
	}
	return ""
}

// LinesBefore returns the number of lines before the text of a scalar.
func LinesBefore(n *yaml.Node) int {
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return n.Line
	}
	return n.Line - 1
}

// Items returns the elements of a sequence, or nil for other nodes. Unlike List, it reports no findings.
func Items(n *yaml.Node) (out []*yaml.Node) {
	if n = Resolve(n); n != nil && n.Kind == yaml.SequenceNode {
		for _, c := range n.Content {
			out = append(out, Resolve(c))
		}
	}
	return out
}
