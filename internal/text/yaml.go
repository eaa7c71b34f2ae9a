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
// a *SyntaxError. A float is of the wrong type for an integer, even without a fraction. The struct consists of structs,
// slices and scalars; maps are not supported.
func DecodeYAML(file string, data []byte, out any) (*yaml.Node, error) {
	docs, err := documents(file, data)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, &SyntaxError{File: file, Msg: "the file is empty: expected keys and values"}
	}
	c := &yamlChecker{file: file}
	root := docs[0].Content[0]
	c.check(root, "", reflect.TypeOf(out))
	if len(docs) > 1 {
		c.fail(docs[1].Line, "second document: expected only one")
	}
	if c.errs != nil {
		slices.SortStableFunc(c.errs, func(a, b *SyntaxError) int { return a.Line - b.Line })
		var errs []error
		for _, err := range c.errs {
			errs = append(errs, err)
		}
		return nil, errors.Join(errs...)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	if err := decoder.Decode(out); err != nil {
		return nil, YAMLError(file, err)
	}
	return root, nil
}

// documents returns the documents of a YAML file in order, or none if it is empty. The error is a *SyntaxError, with a
// line if the parser reports one.
func documents(file string, data []byte) ([]*yaml.Node, error) {
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

// A yamlChecker finds what is wrong with a document before it is decoded. The errors of the YAML package would name Go
// types.
type yamlChecker struct {
	file string
	errs []*SyntaxError
}

func (c *yamlChecker) fail(line int, format string, args ...any) {
	c.errs = append(c.errs, &SyntaxError{File: c.file, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// check checks the value n at a path, which will be decoded into t. If t is nil, any value is accepted.
func (c *yamlChecker) check(n *yaml.Node, path string, t reflect.Type) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[yaml.Node]() {
		t = nil
	}
	line := n.Line
	if t != nil { // without a type, following aliases might not end
		n = resolve(n)
	}
	switch {
	case n.ShortTag() == "!!null" && path == "":
		c.fail(line, "the file is empty: expected keys and values")
		return
	case n.ShortTag() == "!!null":
		c.fail(line, "%s is empty: expected a value", path)
		return
	case t != nil && !fits(n, t):
		c.fail(line, "%s is %s: expected %s", cmp.Or(path, "the file"), Describe(n), expected(t))
		t = nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		c.checkKeys(n, path, t)
	case yaml.SequenceNode:
		var element reflect.Type
		if t != nil {
			element = t.Elem()
		}
		for i := range n.Content {
			c.check(n.Content[i], path+"["+strconv.Itoa(i)+"]", element)
		}
	}
}

// checkKeys checks the keys of a mapping and their values. t is a struct or nil.
func (c *yamlChecker) checkKeys(n *yaml.Node, path string, t reflect.Type) {
	known := keysOf(t)
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name := resolve(key).Value
		typ, ok := known[name]
		if key.ShortTag() == "!!merge" {
			c.fail(key.Line, "merge key %s is not supported: write out the keys", within("<<", path))
			continue
		}
		if first, twice := lines[name]; twice && t != nil {
			c.fail(key.Line, "duplicate key %s, first on line %d", join(path, name), first)
			continue
		}
		lines[name] = key.Line
		if !ok && t != nil {
			names := slices.Collect(maps.Keys(known))
			c.fail(key.Line, "unknown key %s: %s", within(strconv.Quote(name), path), Suggest(name, names))
		}
		c.check(value, join(path, name), typ)
	}
}

// keysOf returns the type of each key of a struct. There are none for a nil type.
func keysOf(t reflect.Type) map[string]reflect.Type {
	keys := map[string]reflect.Type{}
	for i := 0; t != nil && i < t.NumField(); i++ {
		if key := t.Field(i).Tag.Get("yaml"); key != "" && key != "-" {
			keys[key] = t.Field(i).Type
		}
	}
	return keys
}

// fits reports whether a node can be decoded into t, apart from the values of a mapping or list.
func fits(n *yaml.Node, t reflect.Type) bool {
	kind := t.Kind()
	switch {
	case kind == reflect.Struct:
		return n.Kind == yaml.MappingNode
	case kind == reflect.Slice:
		return n.Kind == yaml.SequenceNode
	case n.ShortTag() == "!!binary" || n.ShortTag() == "!!float" && reflect.Int <= kind && kind <= reflect.Uint64:
		return false // the YAML package converts it: 1.5 becomes 1
	}
	var wrong *yaml.TypeError
	return !errors.As(n.Decode(reflect.New(t).Interface()), &wrong)
}

// expected describes the values of a type.
func expected(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s or 5m"
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
