package sim

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// A SyntaxError says what is wrong with a line of a node, board, workload or
// scenario file.
type SyntaxError struct {
	File string
	Line int // 0 where the whole file is meant
	Msg  string
}

// Error returns "file:line: message".
func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Msg
	}
	return e.File + ":" + strconv.Itoa(e.Line) + ": " + e.Msg
}

// decode reads one YAML document into the struct that out points to. Unknown
// and repeated keys and values of another type are errors with their line.
// A struct field tagged `yaml:"line"` of type lineNumber receives the line on
// which its mapping begins.
func decode(r io.Reader, file string, out any) error {
	var doc yaml.Node
	dec := yaml.NewDecoder(r)
	if err := dec.Decode(&doc); err != nil {
		if err == io.EOF {
			return &SyntaxError{File: file, Msg: "the file is empty, expected a mapping"}
		}
		return &SyntaxError{File: file, Msg: strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	var more yaml.Node
	if err := dec.Decode(&more); err != io.EOF {
		return &SyntaxError{File: file, Line: more.Line, Msg: "a second document, expected one"}
	}
	d := strict{file: file}
	return d.value(doc.Content[0], reflect.ValueOf(out).Elem(), "the file")
}

type lineNumber int

type strict struct{ file string }

func (d strict) errorf(line int, format string, args ...any) error {
	return &SyntaxError{File: d.file, Line: line, Msg: fmt.Sprintf(format, args...)}
}

// value decodes n into v; what names the value in errors.
func (d strict) value(n *yaml.Node, v reflect.Value, what string) error {
	if n.Kind == yaml.AliasNode {
		return d.errorf(n.Line, "%s is an alias (*%s), which these files do not use", what, n.Value)
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(n, v.Elem(), what)
	case reflect.Struct:
		return d.mapping(n, v, what)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			return d.errorf(n.Line, "%s is %s, expected a list", what, shape(n))
		}
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			if err := d.value(item, list.Index(i), "an item of "+what); err != nil {
				return err
			}
		}
		v.Set(list)
		return nil
	default:
		return d.scalar(n, v, what)
	}
}

func (d strict) mapping(n *yaml.Node, v reflect.Value, what string) error {
	if n.Kind != yaml.MappingNode {
		return d.errorf(n.Line, "%s is %s, expected a mapping", what, shape(n))
	}
	fields := map[string]int{}
	names := []string{}
	for i := range v.NumField() {
		if v.Type().Field(i).Type == reflect.TypeFor[lineNumber]() {
			v.Field(i).SetInt(int64(n.Line))
		} else if tag := v.Type().Field(i).Tag.Get("yaml"); tag != "" {
			fields[tag] = i
			names = append(names, tag)
		}
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		at, known := fields[key.Value]
		if !known || key.Kind != yaml.ScalarNode {
			return d.errorf(key.Line, "unknown key %q in %s%s", key.Value, what, didYouMean(key.Value, names))
		}
		if first, dup := seen[key.Value]; dup {
			return d.errorf(key.Line, "key %q again, first on line %d", key.Value, first)
		}
		seen[key.Value] = key.Line
		if err := d.value(n.Content[i+1], v.Field(at), key.Value); err != nil {
			return err
		}
	}
	return nil
}

func (d strict) scalar(n *yaml.Node, v reflect.Value, what string) error {
	if n.Kind != yaml.ScalarNode {
		return d.errorf(n.Line, "%s is %s, expected %s", what, shape(n), kindName(v))
	}
	var err error
	switch {
	case n.Tag == "!!null":
		err = strconv.ErrSyntax
	case v.Type() == reflect.TypeFor[time.Duration]():
		var x time.Duration
		if x, err = time.ParseDuration(n.Value); err == nil {
			v.SetInt(int64(x))
		}
	case v.Kind() == reflect.String:
		v.SetString(n.Value)
	case v.Kind() == reflect.Bool:
		var x bool
		if err = n.Decode(&x); err == nil {
			v.SetBool(x)
		}
	case v.CanInt():
		var x int64
		if x, err = strconv.ParseInt(n.Value, 0, v.Type().Bits()); err == nil {
			v.SetInt(x)
		}
	case v.CanUint():
		var x uint64
		if x, err = strconv.ParseUint(n.Value, 0, v.Type().Bits()); err == nil {
			v.SetUint(x)
		}
	default:
		var x float64
		if err = n.Decode(&x); err == nil && (x != x || x-x != 0) {
			err = strconv.ErrRange
		}
		if err == nil {
			v.SetFloat(x)
		}
	}
	if err != nil {
		return d.errorf(n.Line, "%s is %s, expected %s", what, shape(n), kindName(v))
	}
	return nil
}

// shape describes what was found.
func shape(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	default:
		return strconv.Quote(n.Value)
	}
}

// kindName describes what was expected.
func kindName(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s or 5m"
	case v.Kind() == reflect.String:
		return "a text"
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.CanInt():
		return "an integer"
	case v.CanUint():
		return "an integer of at least 0"
	default:
		return "a finite number"
	}
}

// didYouMean returns the nearest of names in words, or all of them where none
// is near.
func didYouMean(got string, names []string) string {
	names = slices.Sorted(slices.Values(names))
	if best := text.Nearest(got, names); best != "" {
		return fmt.Sprintf(", did you mean %q?", best)
	}
	return ", expected one of " + strings.Join(names, ", ")
}
