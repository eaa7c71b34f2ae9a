package text

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Documents returns the documents of a YAML file in order, or none if it is empty. The error is a *SyntaxError, with a
// line if the parser reports one.
func Documents(file string, data []byte) ([]*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var docs []*yaml.Node
	for {
		var doc yaml.Node
		switch err := decoder.Decode(&doc); {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, YAMLError(file, err)
		}
		docs = append(docs, &doc)
	}
}

// yamlLine matches the line number in an error message of the YAML package, which has no typed error.
var yamlLine = regexp.MustCompile(`^line (\d+): `)

// YAMLError converts an error of the YAML parser, separating the line from the message.
func YAMLError(file string, err error) *SyntaxError {
	e := &SyntaxError{File: file}
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		e.Line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	e.Msg = "not YAML: " + msg
	return e
}

// A YAML reads a file. Each error has the line, the value and the expected form. Errors are collected, so that
// one reading finds all.
type YAML struct {
	file string
	errs []error
}

// ParseYAML returns the root of a file's single document and the YAML that reads its nodes. It fails if the file is
// empty or not valid YAML. expected completes the error about an empty file.
func ParseYAML(file string, data []byte, expected string) (*YAML, *yaml.Node, error) {
	docs, err := Documents(file, data)
	if err != nil {
		return nil, nil, err
	}
	if len(docs) == 0 {
		return nil, nil, &SyntaxError{File: file, Msg: "the file is empty: expected " + expected}
	}
	y := &YAML{file: file}
	if len(docs) > 1 {
		y.Fail(docs[1], "second document: expected only one")
	}
	return y, docs[0].Content[0], nil
}

// Err returns all errors so far, each a *SyntaxError on its own line, or nil if there are none.
func (y *YAML) Err() error { return errors.Join(y.errs...) }

// Fail adds an error about a node.
func (y *YAML) Fail(n *yaml.Node, format string, args ...any) { y.FailLine(n.Line, format, args...) }

// FailLine adds an error about a line.
func (y *YAML) FailLine(line int, format string, args ...any) {
	y.errs = append(y.errs, &SyntaxError{File: y.file, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// ValueOf returns the value of a key of n, or nil if n does not have it.
func ValueOf(n *yaml.Node, key string) *yaml.Node {
	if n = Resolve(n); n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if Resolve(n.Content[i]).Value == key {
			return Resolve(n.Content[i+1])
		}
	}
	return nil
}

// Keys maps each key of a mapping to its reader.
type Keys map[string]func(*yaml.Node)

// Mapping passes each value of n to the reader of its key, and reports whether n is a mapping. where is the path of n
// in errors, "" for the whole file. Unknown and repeated keys are errors.
func (y *YAML) Mapping(n *yaml.Node, where string, keys Keys) bool {
	n = Resolve(n)
	if n.Kind != yaml.MappingNode {
		if where == "" {
			where = "the file"
		}
		y.Fail(n, "%s is %s: expected keys and values", where, Describe(n))
		return false
	}
	known := slices.Collect(maps.Keys(keys))
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := Resolve(n.Content[i]), Resolve(n.Content[i+1])
		full := join(where, key.Value)
		read, ok := keys[key.Value]
		switch line, dup := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || !ok:
			y.Fail(n.Content[i], "unknown key %s: %s", within(Describe(key), where), Suggest(key.Value, known))
		case dup:
			y.Fail(n.Content[i], "duplicate key %s, first on line %d", full, line)
		default:
			seen[key.Value] = n.Content[i].Line
			read(value)
		}
	}
	return true
}

// join returns the path of a key within a mapping.
func join(where, key string) string { return strings.TrimPrefix(where+"."+key, ".") }

func within(key, where string) string {
	if where == "" {
		return key
	}
	return key + " in " + where
}

// Sequence passes each element of n, a non-empty list, to each. where names n in errors.
func (y *YAML) Sequence(n *yaml.Node, where string, each func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		y.Fail(n, "%s is %s: expected a list", where, Describe(n))
		return
	}
	for _, element := range n.Content {
		each(Resolve(element))
	}
}

// Text returns the text of n, a non-empty scalar, or "" after an error.
func (y *YAML) Text(n *yaml.Node, where string) string {
	if n.Kind != yaml.ScalarNode || n.Value == "" || !isText(n.ShortTag()) {
		y.Fail(n, "%s is %s: expected a string", where, Describe(n))
		return ""
	}
	return n.Value
}

// Resolve returns the target of an alias, and other nodes unchanged.
func Resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Describe returns the kind of a node or its quoted value, for a message.
func Describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode && len(n.Content) == 0:
		return "an empty list"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null" || n.Value == "":
		return "empty"
	default:
		return strconv.Quote(n.Value)
	}
}

// isText reports whether a scalar with this tag stands for its text: a string, or an unquoted number or similar.
func isText(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return true
	default:
		return false
	}
}
