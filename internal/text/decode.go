package text

import (
	"io"
	"math"
	"reflect"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Line is a line number, from 1. DecodeYAML sets struct fields of this type to the line on which the struct begins.
type Line int

// DecodeYAML decodes the single YAML document of r into the struct that out points to, by `yaml` tags. Unknown and
// repeated keys, values of the wrong type, and aliases are errors, each a *SyntaxError. After errors, the struct holds
// the valid values.
func DecodeYAML(r io.Reader, file string, out any) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	y, root, err := ParseYAML(file, data, "keys and values")
	if err != nil {
		return err
	}
	if y.refuseAliases(root); y.Err() == nil {
		y.decode(root, reflect.ValueOf(out).Elem(), "")
	}
	return y.Err()
}

// refuseAliases rejects aliases: a few of them can expand to more values than fit in memory.
func (y *YAML) refuseAliases(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		y.Fail(n, "the alias *%s: expected its value, written out", n.Value)
	}
	for _, c := range n.Content {
		y.refuseAliases(c)
	}
}

// Decode decodes n into the struct that out points to, as DecodeYAML does, and reports success. where is the path of n
// in errors. A *yaml.Node accepts any value.
func (y *YAML) Decode(n *yaml.Node, out any, where string) bool {
	before := len(y.errs)
	y.decode(n, reflect.ValueOf(out).Elem(), where)
	return len(y.errs) == before
}

func (y *YAML) decode(n *yaml.Node, v reflect.Value, where string) {
	n = Resolve(n)
	if v.Type() == reflect.TypeFor[*yaml.Node]() {
		v.Set(reflect.ValueOf(n))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		y.decode(n, v.Elem(), where)
	case reflect.Struct:
		y.Mapping(n, where, y.keysOf(n, v, where))
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			y.Fail(n, "%s is %s: expected a list", where, Describe(n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, element := range n.Content {
			y.decode(element, v.Index(i), where+"["+strconv.Itoa(i)+"]")
		}
	default:
		if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || !setScalar(n, v) {
			y.Fail(n, "%s is %s: expected %s", where, Describe(n), expected(v))
		}
	}
}

// keysOf returns a reader for each key of a struct, and sets its Line fields.
func (y *YAML) keysOf(n *yaml.Node, v reflect.Value, where string) Keys {
	keys := Keys{}
	for i := range v.NumField() {
		field := v.Field(i)
		if field.Type() == reflect.TypeFor[Line]() {
			field.SetInt(int64(n.Line))
		} else if key := v.Type().Field(i).Tag.Get("yaml"); key != "" {
			keys[key] = func(n *yaml.Node) { y.decode(n, field, join(where, key)) }
		}
	}
	return keys
}

// setScalar sets v to the value of n, and reports whether the type fits.
func setScalar(n *yaml.Node, v reflect.Value) bool {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(n.Value)
		v.SetInt(int64(d))
		return err == nil
	case v.Kind() == reflect.String:
		v.SetString(n.Value)
		return true
	case v.Kind() == reflect.Bool:
		var b bool
		err := n.Decode(&b)
		v.SetBool(b)
		return err == nil
	case v.CanInt():
		i, err := strconv.ParseInt(n.Value, 0, v.Type().Bits())
		v.SetInt(i)
		return err == nil
	case v.CanUint():
		u, err := strconv.ParseUint(n.Value, 0, v.Type().Bits())
		v.SetUint(u)
		return err == nil
	default:
		var f float64
		err := n.Decode(&f)
		v.SetFloat(f)
		return err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
}

// expected describes the values of a scalar's type.
func expected(v reflect.Value) string {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return "a duration such as 90s or 5m"
	case v.Kind() == reflect.String:
		return "a string"
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
