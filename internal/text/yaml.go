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

// Documents returns the documents of a YAML file in their order, none where it is empty. Its error
// is a *SyntaxError, with the line where the parser names one.
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

// yamlLine finds the line in a message of the YAML package, which has no typed form of it.
var yamlLine = regexp.MustCompile(`^line (\d+): `)

// YAMLError returns an error of the YAML package's parser with its line apart from its message.
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

// A YAML reads a file strictly: every error names the line, the value and the expected form.
// It collects errors, so that one reading finds all of them.
type YAML struct {
	file string
	errs []error
}

// ParseYAML returns the root of the one document of a file, and the YAML that its nodes are read
// with. The error says that the file has none, or no YAML; expected ends the sentence about an
// empty one.
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
		y.Fail(docs[1], "a second document: expected one")
	}
	return y, docs[0].Content[0], nil
}

// Err returns every error so far, a *SyntaxError and a line each; nil if there is none.
func (y *YAML) Err() error { return errors.Join(y.errs...) }

// Fail adds an error about a node.
func (y *YAML) Fail(n *yaml.Node, format string, args ...any) { y.FailLine(n.Line, format, args...) }

// FailLine adds an error about a line.
func (y *YAML) FailLine(line int, format string, args ...any) {
	y.errs = append(y.errs, &SyntaxError{File: y.file, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// ValueOf returns the value of a key of n, nil where n has none.
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

// Keys has the reader of each key of a mapping.
type Keys map[string]func(*yaml.Node)

// Mapping hands each value of n to its key, and reports whether n is a mapping. Where is the path
// of n in errors, "" for the whole file. Keys that are unknown or repeated are errors.
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
			y.Fail(n.Content[i], "the key %s is there already, on line %d", full, line)
		default:
			seen[key.Value] = n.Content[i].Line
			read(value)
		}
	}
	return true
}

// join returns the path of a key of the mapping at a path.
func join(where, key string) string { return strings.TrimPrefix(where+"."+key, ".") }

func within(key, where string) string {
	if where == "" {
		return key
	}
	return key + " in " + where
}

// Sequence hands each element of n, a list that is not empty, to each. Where names n in errors.
func (y *YAML) Sequence(n *yaml.Node, where string, each func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		y.Fail(n, "%s is %s: expected a list", where, Describe(n))
		return
	}
	for _, element := range n.Content {
		each(Resolve(element))
	}
}

// Text returns the text of n, a scalar that is not empty, and "" after an error.
func (y *YAML) Text(n *yaml.Node, where string) string {
	if n.Kind != yaml.ScalarNode || n.Value == "" || !isText(n.ShortTag()) {
		y.Fail(n, "%s is %s: expected a text", where, Describe(n))
		return ""
	}
	return n.Value
}

// Resolve returns the node that an alias stands for, and any other as it is.
func Resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// Describe names the kind of a node, or quotes it, for a message.
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

// isText reports whether a scalar of this tag says what is written: a text, or a number and the
// like that was not quoted.
func isText(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		return true
	default:
		return false
	}
}
