package model

import (
	"errors"
	"fmt"
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
		if list >= 0 {
			a.Element = a.Source[list:equals]
			alone, _ := parse("v" + a.Source[equals:])
			a.Value = alone["v"]
		}
		for len(tree) == 1 {
			var inner map[string]any
			for name, value := range tree {
				if name == "" {
					return out, fmt.Errorf("%w: %q has an empty name", errSet, a.Source)
				}
				a.Path = append(a.Path, name)
				if inner, _ = value.(map[string]any); inner == nil && list < 0 {
					a.Value = value
				}
			}
			tree = inner
		}
		if len(a.Path) == 0 {
			return out, fmt.Errorf("%w: %q has no name", errSet, a.Source)
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

// formatSet formats a path and value as a --set argument.
func formatSet(path chart.Path, value string) string {
	escaped := make([]string, len(path))
	for i, name := range path {
		escaped[i] = strings.NewReplacer(`\`, `\\`, `.`, `\.`, `,`, `\,`, `=`, `\=`, `[`, `\[`).Replace(name)
	}
	value = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(value)
	if strings.HasPrefix(value, "{") {
		value = `\` + value
	}
	return strings.Join(escaped, ".") + "=" + value
}
