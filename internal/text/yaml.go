package text

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// DecodeYAML decodes the single YAML document of a file into the struct that out points to, by `yaml` tags, and returns
// the root of the document. Unknown and repeated keys, and values that are empty or of the wrong type, are errors, each
// a *SyntaxError. A float is of the wrong type for an integer, even without a fraction.
func DecodeYAML(file string, data []byte, out any) (*yaml.Node, error) {
	docs, err := Documents(file, data)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, &SyntaxError{File: file, Msg: "the file is empty: expected keys and values"}
	}
	root := docs[0].Content[0]
	e := &yamlErrors{file: file}
	e.addPlaces(root, "", reflect.TypeOf(out))
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	var wrong *yaml.TypeError
	switch err := decoder.Decode(out); {
	case errors.As(err, &wrong):
		for _, message := range wrong.Errors {
			e.translate(message)
		}
	case err != nil:
		return nil, YAMLError(file, err)
	}
	e.addFloats()
	if len(docs) > 1 {
		e.fail(docs[1].Line, "second document: expected only one")
	}
	return root, e.join()
}

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

// NotText returns an error for UnmarshalYAML if n is not a scalar with text: a string, or an unquoted number or
// similar.
func NotText(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp":
		if n.Value != "" {
			return nil
		}
	}
	value := ""
	if n.Kind == yaml.ScalarNode {
		value = " `" + n.Value + "`"
	}
	message := fmt.Sprintf("line %d: cannot unmarshal %s%s into string", n.Line, n.ShortTag(), value)
	return &yaml.TypeError{Errors: []string{message}}
}

// A yamlErrors turns the messages of the YAML package, which name Go types, into messages for users.
type yamlErrors struct {
	file   string
	errs   []*SyntaxError
	places []*place
}

// A place is a key or a value of a document.
type place struct {
	node   *yaml.Node
	path   string       // of the value; for a key, of its mapping
	typ    reflect.Type // into which the value is decoded; for a key, its mapping; nil if unknown
	isKey  bool
	isUsed bool // an error already names it
}

// keysOf returns the type of each key of a struct. There are none for another type.
func keysOf(t reflect.Type) map[string]reflect.Type {
	keys := map[string]reflect.Type{}
	for i := 0; t != nil && t.Kind() == reflect.Struct && i < t.NumField(); i++ {
		if key := t.Field(i).Tag.Get("yaml"); key != "" && key != "-" {
			keys[key] = t.Field(i).Type
		}
	}
	return keys
}

// addPlaces adds n, which is decoded into t, and all keys and values below it. It reports empty values and merge keys,
// which the YAML package accepts. It does not follow aliases.
func (e *yamlErrors) addPlaces(n *yaml.Node, path string, t reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	e.places = append(e.places, &place{node: n, path: path, typ: t})
	switch n.Kind {
	case yaml.MappingNode:
		keys := keysOf(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.ShortTag() == "!!merge" {
				e.fail(key.Line, "merge key %s is not supported: write out the keys", within("<<", path))
			}
			e.places = append(e.places, &place{node: key, path: path, typ: t, isKey: true})
			e.addPlaces(n.Content[i+1], join(path, key.Value), keys[key.Value])
		}
	case yaml.SequenceNode:
		var element reflect.Type
		if t != nil && t.Kind() == reflect.Slice {
			element = t.Elem()
		}
		for i := range n.Content {
			e.addPlaces(n.Content[i], path+"["+strconv.Itoa(i)+"]", element)
		}
	case yaml.ScalarNode:
		switch {
		case n.ShortTag() != "!!null":
		case path == "":
			e.fail(n.Line, "the file is empty: expected keys and values")
		default:
			e.fail(n.Line, "%s is empty: expected a value", path)
		}
	}
}

// The messages of the YAML package.
var (
	unknownKey   = regexp.MustCompile(`(?s)^line (\d+): field (.*) not found in type (.*)$`)
	duplicateKey = regexp.MustCompile(`(?s)^line (\d+): mapping key (".*") already defined at line (\d+)$`)
	wrongType    = regexp.MustCompile("(?s)^line (\\d+): cannot unmarshal (!!\\w+)(?: `(.*)`)? into (.*)$")
)

// translate adds the error of a message.
func (e *yamlErrors) translate(message string) {
	if m := unknownKey.FindStringSubmatch(message); m != nil {
		p := e.find(m[1], m[3], func(p *place) bool { return p.isKey && p.node.Value == m[2] })
		known := slices.Collect(maps.Keys(keysOf(p.typ)))
		e.fail(p.node.Line, "unknown key %s: %s", within(strconv.Quote(m[2]), p.path), Suggest(m[2], known))
		return
	}
	if m := duplicateKey.FindStringSubmatch(message); m != nil {
		name, _ := strconv.Unquote(m[2])
		p := e.find(m[1], "", func(p *place) bool { return p.isKey && p.node.Value == name })
		e.fail(p.node.Line, "duplicate key %s, first on line %s", join(p.path, name), m[3])
		return
	}
	if m := wrongType.FindStringSubmatch(message); m != nil {
		start := strings.TrimSuffix(m[3], "...") // long values are cut
		p := e.find(m[1], m[4], func(p *place) bool {
			return !p.isKey && p.node.ShortTag() == m[2] && strings.HasPrefix(p.node.Value, start)
		})
		e.fail(p.node.Line, "%s is %s: expected %s",
			cmp.Or(p.path, "the file"), Describe(resolve(p.node)), expected(p.typ))
		return
	}
	e.errs = append(e.errs, YAMLError(e.file, errors.New(message)))
}

// addFloats reports the remaining floats in place of integers. The YAML package converts them: 1.5 becomes 1.
func (e *yamlErrors) addFloats() {
	for _, p := range e.places {
		if p.isUsed || p.isKey || p.typ == nil || p.node.ShortTag() != "!!float" {
			continue
		}
		if kind := p.typ.Kind(); reflect.Int <= kind && kind <= reflect.Uint64 {
			e.fail(p.node.Line, "%s is %s: expected %s", p.path, Describe(resolve(p.node)), expected(p.typ))
		}
	}
}

// find returns the first unused place on a line for which is returns true, and marks it as used. It prefers a place of
// the named type. If there is no such place, it returns a new one.
func (e *yamlErrors) find(line, typeName string, is func(*place) bool) *place {
	n, _ := strconv.Atoi(line)
	found := &place{node: &yaml.Node{Line: n}}
	for _, p := range slices.Backward(e.places) {
		if p.isUsed || p.node.Line != n || !is(p) {
			continue
		}
		if p.hasType(typeName) || !found.hasType(typeName) {
			found = p
		}
	}
	found.isUsed = true
	return found
}

// hasType reports whether the place has the named type.
func (p *place) hasType(typeName string) bool { return p.typ != nil && p.typ.String() == typeName }

func (e *yamlErrors) fail(line int, format string, args ...any) {
	e.errs = append(e.errs, &SyntaxError{File: e.file, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// join returns the errors in the order of their lines, or nil if there are none.
func (e *yamlErrors) join() error {
	slices.SortStableFunc(e.errs, func(a, b *SyntaxError) int { return a.Line - b.Line })
	var errs []error
	for _, err := range e.errs {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// expected describes the values of a type.
func expected(t reflect.Type) string {
	switch {
	case t == nil:
		return "another value"
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s or 5m"
	case reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]()):
		return "a string" // see NotText
	}
	switch t.Kind() {
	case reflect.Struct:
		return "keys and values"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "an integer of at least 0"
	case reflect.Float32, reflect.Float64:
		return "a finite number"
	default:
		return "a string"
	}
}

// NodeAt returns the value at a path of keys below n, or nil if there is none.
func NodeAt(n *yaml.Node, path ...string) *yaml.Node {
	n = resolve(n)
	if len(path) == 0 {
		return n
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if resolve(n.Content[i]).Value == path[0] {
			return NodeAt(n.Content[i+1], path[1:]...)
		}
	}
	return nil
}

// Lines returns the lines of the elements of the list at a path of keys below n.
func Lines(n *yaml.Node, path ...string) (lines []int) {
	if list := NodeAt(n, path...); list != nil {
		for _, element := range list.Content {
			lines = append(lines, resolve(element).Line)
		}
	}
	return lines
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

// resolve returns the target of an alias, and other nodes unchanged.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// join returns the path of a key within a mapping.
func join(where, key string) string { return strings.TrimPrefix(where+"."+key, ".") }

func within(key, where string) string {
	if where == "" {
		return key
	}
	return key + " in " + where
}
