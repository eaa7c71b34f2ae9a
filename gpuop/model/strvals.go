package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/strvals"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

var errSet = errors.New("unreadable --set")

// Assignments splits a --set argument with Helm's parser. If typed is false, as for --set-string and --set-file, all
// values are strings. After an error, it returns the settings parsed so far.
func Assignments(s string, typed bool) (out []*Setting, err error) {
	parse := strvals.ParseString
	if typed {
		parse = strvals.Parse
	}
	for s != "" {
		a := &Setting{Typed: typed}
		var list, equals int
		a.Source, s, list, equals = nextAssignment(s)
		tree, err := parse(a.Source)
		if err != nil {
			return out, fmt.Errorf("%w: %w", errSet, err)
		}
		for len(tree) == 1 {
			for name, value := range tree {
				a.Path, a.Value = append(a.Path, name), value
			}
			tree, _ = a.Value.(map[string]any)
		}
		if len(a.Path) == 0 || slices.Contains(a.Path, "") {
			return out, fmt.Errorf("%w: %q has no name, or an empty one", errSet, a.Source)
		}
		if list >= 0 {
			a.Element = a.Source[list:equals]
			alone, _ := parse("v" + a.Source[equals:])
			a.Value = alone["v"]
		}
		out = append(out, a)
	}
	return out, nil
}

// nextAssignment splits s at the first comma that separates assignments. list is the position of the first list index
// in the name, or -1. equals is the position of the equals sign, or -1.
func nextAssignment(s string) (text, rest string, list, equals int) {
	list, equals = -1, -1
	inList := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case equals < 0 && c == '=':
			equals = i
			inList = strings.HasPrefix(s[i+1:], "{")
		case equals < 0 && c == '[' && list < 0:
			list = i
		case inList && c == '}':
			inList = false
		case c == ',' && !inList:
			return s[:i], s[i+1:], list, equals
		}
	}
	return s, "", list, equals
}

// setName formats a path as the name of a --set argument.
func setName(path chart.Path) string {
	escaped := make([]string, len(path))
	for i, name := range path {
		escaped[i] = strings.NewReplacer(`\`, `\\`, `.`, `\.`, `,`, `\,`, `=`, `\=`, `[`, `\[`).Replace(name)
	}
	return strings.Join(escaped, ".")
}

// setValue formats the value of a --set argument.
func setValue(value string) string {
	value = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(value)
	if strings.HasPrefix(value, "{") {
		return `\` + value
	}
	return value
}
