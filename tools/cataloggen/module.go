package main

import (
	"bufio"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// field is a DCGM field. An ID that only marks the start or end of a range is a field too.
type field struct {
	id      int
	name    string   // current name in go-dcgm
	legacy  []string // previous upper-case names
	lower   []string // lower-case names of dcgm-exporter 1.x
	markers []string // names that only mark the start or end of a range
	base    string   // name of the same measurement in a base unit, if that has its own ID
	later   string   // base-unit name that exists only in newer DCGM releases
	baseOf  int      // for a base-unit ID, the ID that it replaces

	typ, unit, levels, kind string
	min, max                string
	flags, help             string
}

// readModule returns the fields of go-dcgm in the order of their IDs.
func readModule(dir string) ([]*field, error) {
	current, legacy, err := readMaps(filepath.Join(dir, "const_fields.go"))
	if err != nil {
		return nil, err
	}
	byID := make(map[int]*field)
	byName := make(map[string]*field)
	for name, id := range current {
		f := byID[id]
		if f == nil {
			f = &field{id: id}
			byID[id] = f
		}
		if isMarker(name) {
			f.markers = append(f.markers, name)
		} else {
			f.name = name
		}
		byName[name] = f
	}
	for name, id := range legacy {
		f := byID[id]
		if f == nil {
			return nil, fmt.Errorf("%s is an alias of the unknown id %d", name, id)
		}
		if name == strings.ToLower(name) {
			f.lower = append(f.lower, name)
		} else {
			f.legacy = append(f.legacy, name)
		}
	}
	if err := readReplacements(filepath.Join(dir, "dcgm_fields.h"), byName); err != nil {
		return nil, err
	}
	fields := make([]*field, 0, len(byID))
	for _, f := range byID {
		slices.Sort(f.legacy)
		slices.Sort(f.lower)
		slices.Sort(f.markers)
		if f.name == "" { // the id is only a range marker
			f.name, f.markers = f.markers[0], f.markers[1:]
		}
		fields = append(fields, f)
	}
	slices.SortFunc(fields, func(a, b *field) int { return cmp.Compare(a.id, b.id) })
	return fields, nil
}

// isMarker reports whether name is not a real field: it marks the start or end of a range of IDs, or is the placeholder
// for an unknown field.
func isMarker(name string) bool {
	return strings.HasSuffix(name, "_FIELD_ID") || strings.Contains(name, "INTERNAL_FIELDS_0_") ||
		name == "DCGM_FI_SYSTEM_FIELD_UNKNOWN"
}

// readMaps returns the two maps from name to ID in const_fields.go, which go-dcgm's GetFieldID uses.
func readMaps(path string) (current, legacy map[string]int, err error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, nil, err
	}
	maps := map[string]map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.CompositeLit)
		if !ok {
			return true
		}
		ids := make(map[string]int, len(literal.Elts))
		for _, element := range literal.Elts {
			pair, ok := element.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			key, okKey := pair.Key.(*ast.BasicLit)
			value, okValue := pair.Value.(*ast.BasicLit)
			if !okKey || !okValue {
				continue
			}
			name, errName := strconv.Unquote(key.Value)
			id, errID := strconv.Atoi(value.Value)
			if errName != nil || errID != nil {
				err = fmt.Errorf("%s: unexpected entry %s: %s", path, key.Value, value.Value)
				return false
			}
			ids[name] = id
		}
		maps[spec.Names[0].Name] = ids
		return false
	})
	if err != nil {
		return nil, nil, err
	}
	current, legacy = maps["dcgmFields"], maps["legacyDCGMFields"]
	if len(current) == 0 || len(legacy) == 0 {
		return nil, nil, fmt.Errorf("%s: maps dcgmFields and legacyDCGMFields not found", path)
	}
	return current, legacy, nil
}

var (
	replacement = regexp.MustCompile(`Deprecated: Use (DCGM_FI_\w+) instead`)
	definition  = regexp.MustCompile(`^#define\s+(DCGM_FI_\w+)\s+(\d+)`)
)

// readReplacements links fields to their replacements in base units, whose IDs begin at 1600. The comment of the old
// field in the header names the replacement.
func readReplacements(path string, byName map[string]*field) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	const firstBase = 1600
	pairs, successor := 0, ""
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		line := scanner.Text()
		switch m := replacement.FindStringSubmatch(line); {
		case m != nil:
			successor = m[1]
		case strings.HasPrefix(line, "#define"):
			if d := definition.FindStringSubmatch(line); d != nil && successor != "" {
				from, to := byName[d[1]], byName[successor]
				if from != nil && to != nil && to.id >= firstBase {
					from.base, to.baseOf = to.name, from.id
					pairs++
				}
			}
			successor = ""
		}
	}
	if err := scanner.Err(); err != nil {
		return err
	}
	if pairs == 0 {
		return fmt.Errorf("%s names no base-unit fields", path)
	}
	return nil
}
