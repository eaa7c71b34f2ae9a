package fields

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// The rules that a Reader reports under.
const (
	RuleSyntax    = "yaml-syntax"
	RuleEllipsis  = "yaml-ellipsis"
	RuleUnknown   = "unknown-key"
	RuleDuplicate = "duplicate-key"
	RuleType      = "wrong-type"
	RuleAliases   = "yaml-aliases"
)

// Reader collects findings about one file. The zero value is ready to use.
type Reader struct {
	Findings []report.Row
	// Unknown is the sentence for an unknown key, which says what happens to it.
	Unknown string
}

// Add appends a finding of the given rule at the node's line; a nil node means the whole file.
func (r *Reader) Add(rule report.ID, s report.State, n *yaml.Node, subject, reason, fix string) {
	f := report.Row{ID: rule, State: s, Subject: subject, Reason: reason, Fix: fix}
	if n != nil {
		f.Line, f.Column = n.Line, n.Column
	}
	r.Findings = append(r.Findings, f)
}

// maxExpanded bounds what a document may become once its aliases are followed. A document without
// aliases is bounded by its size.
const maxExpanded = 100_000

// Expanded returns how many nodes a tree has once its aliases are followed, as far as maxExpanded,
// and 0 for one without aliases.
func Expanded(root *yaml.Node) int {
	sizes := map[*yaml.Node]int{}
	aliases := 0
	var size func(n *yaml.Node) int
	size = func(n *yaml.Node) int {
		if known, ok := sizes[n]; ok {
			return known
		}
		sizes[n] = maxExpanded + 1 // while it is open: an alias to what is around it has no end
		total := 1
		for _, c := range n.Content {
			total = min(total+size(c), maxExpanded+1)
		}
		if n.Alias != nil {
			aliases++
			total = min(total+size(n.Alias), maxExpanded+1)
		}
		sizes[n] = total
		return total
	}
	total := size(root)
	if aliases == 0 {
		return 0
	}
	return total
}

var ellipsis = regexp.MustCompile(`^\s+(\.\.\.|…)\s*$`)

// Document parses the file and returns the one mapping at its root. Where there is none it has
// collected the finding that says why and returns nil.
func (r *Reader) Document(data []byte) *yaml.Node {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		r.syntax(data, err)
		return nil
	}
	if doc.Kind == 0 || len(doc.Content) == 0 || IsNull(doc.Content[0]) {
		r.Add(RuleSyntax, report.Failed, nil, "", "the file is empty", "")
		return nil
	}
	if Expanded(&doc) > maxExpanded {
		r.Add(RuleAliases, report.Failed, nil, "", fmt.Sprintf("aliases make more than %d values of the file, or have no end, so it is not judged", maxExpanded), "write the values out")
		return nil
	}
	root := Resolve(doc.Content[0])
	if root.Kind != yaml.MappingNode {
		r.Add(RuleType, report.Failed, root, "", "the file holds "+describe(root)+", want a mapping of keys to values", "")
		return nil
	}
	return root
}

// syntax reports a parse error, or the copied ellipsis that causes it.
func (r *Reader) syntax(data []byte, err error) {
	for i, line := range strings.Split(string(data), "\n") {
		if ellipsis.MatchString(line) {
			r.Findings = append(r.Findings, report.Row{
				ID: RuleEllipsis, State: report.Failed, Line: i + 1, Subject: "...",
				Reason: `the "..." that an article puts for "and so on" was copied with the example, and the file does not parse`,
				Fix:    "delete the line",
			})
			return
		}
	}
	e := text.YAMLError("", err)
	r.Findings = append(r.Findings, report.Row{ID: RuleSyntax, State: report.Failed, Line: e.Line, Reason: e.Msg})
}

// Resolve follows aliases to the node that they stand for. An alias to itself, which YAML allows to
// be written, becomes an empty node.
func Resolve(n *yaml.Node) *yaml.Node {
	for range 16 {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
}

// Field is one key of a mapping with its value.
type Field struct {
	Name       string
	Key, Value *yaml.Node
}

// Mapping returns the fields of the mapping n by file order. Path names the mapping in findings (""
// at the root). With known names, a field of another name is reported with the nearest and left
// out. A field that is written twice is reported, and the last one counts, as it does for
// Kubernetes.
func (r *Reader) Mapping(n *yaml.Node, path string, known ...string) []Field {
	n = Resolve(n)
	if IsNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.Add(RuleType, report.Failed, n, path, "found "+describe(n)+", want a mapping of keys to values", "")
		return nil
	}
	var fields []Field
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := Resolve(n.Content[i]), Resolve(n.Content[i+1])
		if key.Tag == "!!merge" {
			fields = r.merge(fields, value, path, known)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			r.Add(RuleType, report.Failed, key, path, "found "+describe(key)+" as a key, want a word", "")
			continue
		}
		if at := index(fields, key.Value); at >= 0 {
			r.Add(RuleDuplicate, report.Failed, key, join(path, key.Value),
				fmt.Sprintf("the key is written twice, first on line %d; only the last one counts", fields[at].Key.Line), "keep one")
			fields = slices.Delete(fields, at, at+1)
		}
		if len(known) > 0 && !slices.Contains(known, key.Value) {
			r.unknown(key, path, known)
			continue
		}
		fields = append(fields, Field{Name: key.Value, Key: key, Value: value})
	}
	return fields
}

// merge adds what a "<<" key brings in, one level deep: fields that the mapping writes itself win.
func (r *Reader) merge(fields []Field, value *yaml.Node, path string, known []string) []Field {
	if value.Kind != yaml.MappingNode {
		r.Add(RuleType, report.Failed, value, join(path, "<<"), "found "+describe(value)+", want a mapping to merge", "")
		return fields
	}
	for i := 0; i+1 < len(value.Content); i += 2 {
		key := Resolve(value.Content[i])
		if index(fields, key.Value) >= 0 || key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			continue
		}
		if len(known) > 0 && !slices.Contains(known, key.Value) {
			r.unknown(key, path, known)
			continue
		}
		fields = append(fields, Field{Name: key.Value, Key: key, Value: Resolve(value.Content[i+1])})
	}
	return fields
}

func index(fields []Field, name string) int {
	return slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
}

func (r *Reader) unknown(key *yaml.Node, path string, known []string) {
	fix := "known here: " + strings.Join(known, ", ")
	if near := report.Nearest(key.Value, known); near != "" {
		fix = "write " + near
	}
	r.Add(RuleUnknown, report.Failed, key, join(path, key.Value), cmp.Or(r.Unknown, "no such key; it is ignored or refused, depending on the version"), fix)
}

// List returns the elements of the sequence n.
func (r *Reader) List(n *yaml.Node, path string) []*yaml.Node {
	n = Resolve(n)
	if IsNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.Add(RuleType, report.Failed, n, path, "found "+describe(n)+", want a list", "")
		return nil
	}
	elements := make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		elements[i] = Resolve(c)
	}
	return elements
}

// Bool reads true or false. Quoted words are refused, as the programs that read these files do.
func (r *Reader) Bool(n *yaml.Node, path string) (value, ok bool) {
	n = Resolve(n)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&value) != nil {
		r.Add(RuleType, report.Failed, n, path, "found "+describe(n)+", want true or false", Unquote(n, "!!bool"))
		return false, false
	}
	return value, true
}

// Int reads a whole number.
func (r *Reader) Int(n *yaml.Node, path string) (value int, ok bool) {
	n = Resolve(n)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&value) != nil {
		r.Add(RuleType, report.Failed, n, path, "found "+describe(n)+", want a whole number", Unquote(n, "!!int"))
		return 0, false
	}
	return value, true
}

// Text reads a string. A number or true, which YAML does not take for a string, is refused.
func (r *Reader) Text(n *yaml.Node, path string) (value string, ok bool) {
	n = Resolve(n)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		fix := ""
		if n.Kind == yaml.ScalarNode && !IsNull(n) {
			fix = "write " + strconv.Quote(n.Value)
		}
		r.Add(RuleType, report.Failed, n, path, "found "+describe(n)+", want a string", fix)
		return "", false
	}
	return n.Value, true
}

// Unquote is the fix for a text that is of one of the tags without its quotes, or "".
func Unquote(n *yaml.Node, tags ...string) string {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		return ""
	}
	var plain yaml.Node
	if yaml.Unmarshal([]byte(n.Value), &plain) == nil && len(plain.Content) == 1 && slices.Contains(tags, plain.Content[0].Tag) {
		return "write " + n.Value + " without quotes"
	}
	return ""
}

func IsNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func describe(n *yaml.Node) string {
	switch {
	case IsNull(n):
		return "nothing"
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!str" && Plain(n.Value):
		return "the string " + strconv.Quote(n.Value)
	case n.Tag == "!!str":
		return "a string"
	}
	return n.Value
}

// plain are words that are often written for a switch or for nothing.
var plain = []string{"", "true", "false", "yes", "no", "on", "off", "y", "n", "enable", "disable", "enabled", "disabled", "null", "none", "nil", "default", "auto"}

// reference is a text that another program replaces: $NAME, ${NAME}, {{ … }}, <name>.
var reference = regexp.MustCompile(`^(\$\{?[A-Za-z_][\w.]*\}?|\$\(.*\)|[^{}]*\{\{.*\}\}[^{}]*|<[\w .-]+>)$`)

// Plain reports whether a text is a number, an amount, a switch or a reference, which a message may repeat.
// Any other text of an input may be a secret.
func Plain(text string) bool {
	if reference.MatchString(text) {
		return true
	}
	const most = 12 // 4194304Mi
	return slices.Contains(plain, strings.ToLower(strings.TrimSpace(text))) || len(text) <= most && text != "" && strings.ContainsRune("0123456789-+.", rune(text[0])) && strings.Trim(text, "0123456789-+.eEkKmMgGtTiBbsh%") == ""
}

// Of returns the fields of a mapping without judging them, and none of anything else.
func Of(n *yaml.Node) []Field {
	var ignored Reader
	if n = Resolve(n); n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	return ignored.Mapping(n, "")
}

// Get returns the value at the names inside a mapping, or nil.
func Get(n *yaml.Node, names ...string) *yaml.Node {
next:
	for _, name := range names {
		for _, f := range Of(n) {
			if f.Name == name {
				n = f.Value
				continue next
			}
		}
		return nil
	}
	return Resolve(n)
}

// Text returns the scalar at the names inside a mapping, or "".
func Text(n *yaml.Node, names ...string) string {
	if n = Get(n, names...); n != nil && n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return n.Value
	}
	return ""
}

// Items returns the elements of a list without judging them, and none of anything else.
func Items(n *yaml.Node) []*yaml.Node {
	if n = Resolve(n); n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]*yaml.Node, len(n.Content))
	for i, c := range n.Content {
		out[i] = Resolve(c)
	}
	return out
}
