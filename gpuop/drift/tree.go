package drift

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// A Values is a tree of the chart's values in JSON's types.
type Values map[string]any

// Merge puts other over v, as Helm puts a later file over an earlier one: groups are merged, all else
// is replaced, and a null stays as a null.
func (v Values) Merge(other map[string]any) {
	for name, value := range other {
		inner, isMap := value.(map[string]any)
		have, both := v[name].(map[string]any)
		if isMap && both {
			Values(have).Merge(inner)
			continue
		}
		v[name] = value
	}
}

// Set puts a value at a path, and makes the groups that lead to it.
func (v Values) Set(path chart.Path, value any) {
	m := map[string]any(v)
	for _, name := range path[:len(path)-1] {
		inner, isMap := m[name].(map[string]any)
		if !isMap {
			inner = map[string]any{}
			m[name] = inner
		}
		m = inner
	}
	m[path[len(path)-1]] = value
}

// get returns the value at a path, and whether there is one.
func get(tree map[string]any, path ...string) (any, bool) {
	var at any = tree
	for _, name := range path {
		m, isMap := at.(map[string]any)
		if !isMap {
			return nil, false
		}
		if at, isMap = m[name]; !isMap {
			return nil, false
		}
	}
	return at, true
}

// text returns the text at a path; "" where there is none.
func text(tree map[string]any, path ...string) string {
	value, _ := get(tree, path...)
	s, _ := value.(string)
	return s
}

// leaves calls visit with what is no group, in the order of the names. Lists are leaves. A group that
// is empty says nothing.
func leaves(tree map[string]any, path chart.Path, visit func(chart.Path, any)) {
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		at := append(path[:len(path):len(path)], name)
		if inner, isMap := tree[name].(map[string]any); isMap {
			leaves(inner, at, visit)
			continue
		}
		visit(at, tree[name])
	}
}

// empty reports whether a value says nothing: the API server leaves such a field out, or an object
// without it means the same.
func empty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, inner := range v {
			if !empty(inner) {
				return false
			}
		}
		return true
	}
	return false
}

// pruned is the value without what says nothing.
func pruned(value any) any {
	switch v := value.(type) {
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = pruned(inner)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, inner := range v {
			if !empty(inner) {
				out[name] = pruned(inner)
			}
		}
		return out
	}
	return value
}

// same reports whether two values mean the same, whatever Go's types of their numbers are.
func same(a, b any) bool {
	if empty(a) && empty(b) {
		return true
	}
	x, errX := json.Marshal(pruned(a))
	y, errY := json.Marshal(pruned(b))
	return errX == nil && errY == nil && string(x) == string(y)
}

// maxShown bounds how much of a value a sentence shows, in bytes.
const maxShown = 160

// show is a value as a sentence names it: JSON, with passwords masked.
func show(value any) string {
	if _, isText := value.(string); empty(value) && !isText {
		return "nothing"
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	out := masked(string(data))
	if len(out) > maxShown {
		cut := maxShown
		for !strings.HasPrefix(strings.ToValidUTF8(out[:cut], ""), out[:cut]) {
			cut--
		}
		out = out[:cut] + "…"
	}
	return report.OneLine(out)
}

// masked is JSON text without passwords: those that lint masks in a script, and the user's part of a
// URL, as a proxy's is.
func masked(s string) string {
	s = lint.Mask(s)
	for from := 0; ; {
		i := strings.Index(s[from:], "://")
		if i < 0 {
			return s
		}
		begin := from + i + len("://")
		end := begin
		for end < len(s) && !strings.ContainsRune(`/"' ,`, rune(s[end])) {
			end++
		}
		if at := strings.LastIndexByte(s[begin:end], '@'); at >= 0 {
			s = s[:begin] + "***" + s[begin+at:]
		}
		from = begin
	}
}

// secret reports whether a value below the path is a password by its name.
func secret(path chart.Path) bool {
	name := strings.ToLower(path[len(path)-1])
	return slices.ContainsFunc([]string{"password", "passwd", "token", "apikey", "api_key"}, func(s string) bool { return strings.HasSuffix(name, s) })
}

// shown is show, with a value masked whose name says that it is a password.
func shown(path chart.Path, value any) string {
	if s, isText := value.(string); isText && s != "" && secret(path) {
		return "***"
	}
	return show(value)
}
