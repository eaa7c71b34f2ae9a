package sim

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// parseFields resolves the names of fields in either vocabulary, patterns of them such as
// DCGM_FI_PROF_*, and numbers; and the value that they are given.
func (f *fault) parseFields(s *faultSpec) error {
	f.fields = map[gpu.FieldID]gpu.Unit{}
	if f.kind == faultSet && (s.Value == nil) == (s.Text == nil) {
		return errors.New("fault set needs one of the keys \"value\" and \"text\"")
	}
	if s.Text != nil {
		if f.text = *s.Text; f.text == "" {
			return errors.New("text is empty, fault absent plays that")
		}
	}
	for _, name := range s.Fields {
		named, err := fieldsNamed(name)
		if err != nil {
			return err
		}
		for i := range named {
			if err := f.fits(&named[i]); err != nil {
				return err
			}
			f.fields[named[i].Entry.ID] = named[i].Unit
			if base := named[i].Entry.BaseOf; base != 0 {
				f.fields[base] = named[i].Unit
			}
		}
	}
	return nil
}

// fits reports what is wrong with giving the fault's value to a field.
func (f *fault) fits(n *catalog.Named) error {
	if f.kind != faultSet {
		return nil
	}
	isText := n.Entry.Type == catalog.Text
	switch {
	case isText && f.value != nil:
		return fmt.Errorf("field %s has texts, expected the key \"text\" instead of \"value\"", n.Name)
	case !isText && f.value == nil:
		return fmt.Errorf("field %s has numbers, expected the key \"value\" instead of \"text\"", n.Name)
	}
	return nil
}

// fieldsNamed returns the fields of a name, a pattern or a number.
func fieldsNamed(name string) ([]catalog.Named, error) {
	if id, err := strconv.ParseUint(name, 10, 16); err == nil {
		e, ok := catalog.ByID(gpu.FieldID(id))
		if !ok {
			return nil, fmt.Errorf("unknown field id %d", id)
		}
		return []catalog.Named{{Name: e.Name, Entry: e, Unit: e.Unit, Scale: 1}}, nil
	}
	if strings.ContainsAny(name, "*?[") {
		return fieldsLike(name)
	}
	named, ok := catalog.Lookup(name)
	if !ok {
		hint := ""
		if near := catalog.Nearest(name); near != "" {
			hint = fmt.Sprintf(", did you mean %s?", near)
		}
		return nil, fmt.Errorf("unknown field %q%s", strings.TrimSpace(name), hint)
	}
	return []catalog.Named{named}, nil
}

// fieldsLike returns the fields of which one name is like the pattern.
func fieldsLike(pattern string) ([]catalog.Named, error) {
	var list []catalog.Named
	for e := range catalog.All() {
		if !e.Exportable() {
			continue
		}
		for _, name := range []string{e.Classic, e.Current, e.Name} {
			like, err := path.Match(pattern, name)
			if err != nil {
				return nil, fmt.Errorf("pattern %q of fields: %w", pattern, err)
			}
			if named, ok := catalog.Lookup(name); like && ok {
				list = append(list, named)
				break
			}
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no field is like %q", pattern)
	}
	return list, nil
}

// unitOf returns the unit in which the scenario gives the value of a field.
func (f *fault) unitOf(field *gpu.Field) gpu.Unit {
	if unit, ok := f.fields[field.ID]; ok {
		return unit
	}
	if e, ok := catalog.ByID(field.ID); ok && e.BaseOf != 0 {
		return f.fields[e.BaseOf]
	}
	return field.Unit
}

// given returns the value that the fault gives to a field, in the unit that the plan requests.
func (f *fault) given(field *gpu.Field, unit gpu.Unit) gpu.Value {
	if f.value == nil {
		return gpu.Text(f.text)
	}
	v := gpu.Float(*f.value)
	if factor, ok := catalog.Conversion(unit, field.Unit); ok && factor != 1 {
		v = v.Scale(factor)
	}
	if n, _ := v.Number(); n == float64(int64(n)) {
		return gpu.Int(int64(n))
	}
	return v
}
