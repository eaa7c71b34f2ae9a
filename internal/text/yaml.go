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

// DecodeYAML decodes the single YAML document of a file into the struct that out points to, and returns the root of the
// document. The key of a field is its `yaml` tag or else its name in lower case. Unknown and repeated keys, and values
// that are empty or of the wrong type, are errors, each a *SyntaxError. A float is of the wrong type for an integer,
// even without a fraction. The struct consists of structs, slices and scalars; maps are not supported.
func DecodeYAML(file string, data []byte, out any) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, &SyntaxError{File: file, Msg: "the file is empty: expected keys and values"}
	} else if err != nil {
		return nil, YAMLError(file, err)
	}
	c := &yamlChecker{file: file}
	root := doc.Content[0]
	c.check(root, "", reflect.TypeOf(out))
	if err := decoder.Decode(&second); err == nil {
		c.fail(second.Line, "second document: expected only one")
	} else if !errors.Is(err, io.EOF) {
		return nil, YAMLError(file, err)
	}
	if c.errs != nil {
		return nil, errors.Join(c.errs...)
	}
	if err := root.Decode(out); err != nil {
		return nil, YAMLError(file, err)
	}
	return root, nil
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
	errs []error
}

func (c *yamlChecker) fail(line int, format string, args ...any) {
	c.errs = append(c.errs, &SyntaxError{File: c.file, Line: line, Msg: fmt.Sprintf(format, args...)})
}

// anyValue is the type of values that are not checked.
var anyValue = reflect.TypeFor[yaml.Node]()

// check checks the value n at a path, which will be decoded into t.
func (c *yamlChecker) check(n *yaml.Node, path string, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	line := n.Line
	n = resolve(n)
	switch {
	case !fits(n, t):
		c.fail(line, "%s is %s: expected %s", cmp.Or(path, "the file"), Describe(n), expected(t))
	case t == anyValue:
	case n.Kind == yaml.MappingNode:
		c.checkKeys(n, path, t)
	case n.Kind == yaml.SequenceNode:
		for i, element := range n.Content {
			c.check(element, path+"["+strconv.Itoa(i)+"]", t.Elem())
		}
	}
}

// checkKeys checks the keys of a mapping and their values. t is a struct.
func (c *yamlChecker) checkKeys(n *yaml.Node, path string, t reflect.Type) {
	known := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		if key := cmp.Or(f.Tag.Get("yaml"), strings.ToLower(f.Name)); f.IsExported() && key != "-" {
			known[key] = f.Type
		}
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		line, name := n.Content[i].Line, resolve(n.Content[i]).Value
		at := strings.TrimPrefix(path+"."+name, ".")
		if first, twice := lines[name]; twice {
			c.fail(line, "duplicate key %s, first on line %d", at, first)
			continue
		}
		lines[name] = line
		if typ, ok := known[name]; ok {
			c.check(n.Content[i+1], at, typ)
		} else {
			c.fail(line, "unknown key %s: %s", at, Suggest(name, slices.Collect(maps.Keys(known))))
		}
	}
}

// fits reports whether a node can be decoded into t, apart from the values of a mapping or list.
func fits(n *yaml.Node, t reflect.Type) bool {
	switch tag := n.ShortTag(); {
	case tag == "!!null", tag == "!!binary":
		return false
	case t == anyValue:
		return true
	case t.Kind() == reflect.Struct:
		return n.Kind == yaml.MappingNode
	case t.Kind() == reflect.Slice:
		return n.Kind == yaml.SequenceNode
	case tag == "!!float" && reflect.Int <= t.Kind() && t.Kind() <= reflect.Uint64:
		return false // the YAML package converts it: 1.5 becomes 1
	}
	return !errors.As(n.Decode(reflect.New(t).Interface()), new(*yaml.TypeError))
}

// expected describes the values of a type.
func expected(t reflect.Type) string {
	if t == reflect.TypeFor[time.Duration]() {
		return "a duration such as 90s or 5m"
	}
	switch kind := t.Kind(); {
	case t == anyValue:
		return "a value"
	case kind == reflect.Struct:
		return "keys and values"
	case kind == reflect.Slice:
		return "a list"
	case kind == reflect.Bool:
		return "true or false"
	case reflect.Int <= kind && kind <= reflect.Int64:
		return "an integer"
	case reflect.Uint <= kind && kind <= reflect.Uint64:
		return "an integer of at least 0"
	case kind == reflect.Float64:
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
