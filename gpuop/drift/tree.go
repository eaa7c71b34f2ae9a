package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// leaves calls visit with each value that is no group, in the order of the names. Lists are leaves. An empty group
// says nothing.
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

// pruned is the value without empty parts, which the API server leaves out, or without which an object means the same;
// nil where nothing is left.
func pruned(value any) any {
	switch v := value.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		if len(v) == 0 {
			return nil
		}
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = pruned(inner)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, inner := range v {
			if kept := pruned(inner); kept != nil {
				out[name] = kept
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	}
	return value
}

func empty(value any) bool { return pruned(value) == nil }

// same reports whether two values mean the same, whatever Go's types of their numbers are.
func same(a, b any) bool {
	x, errX := json.Marshal(pruned(a))
	y, errY := json.Marshal(pruned(b))
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// maxShown bounds the part of a value that a sentence shows, in bytes.
const maxShown = 160

// secret is the name of a password.
var secret = regexp.MustCompile(`(?i)(password|passwd|token|api_?key)$`)

// shown is a value as a sentence names it: JSON, with passwords masked. The path may say that it is one.
func shown(path chart.Path, value any) string {
	s, isText := value.(string)
	switch {
	case s != "" && secret.MatchString(path[len(path)-1]):
		return "***"
	case empty(value) && !isText:
		return "nothing"
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	out := masked(string(data))
	if len(out) > maxShown {
		out = strings.ToValidUTF8(out[:maxShown], "") + "…"
	}
	return report.OneLine(out)
}

// user is the user's part of a URL, as a proxy has one.
var user = regexp.MustCompile(`://[^/"' ,]*@`)

// masked is JSON text without passwords.
func masked(s string) string { return user.ReplaceAllString(report.Mask(s), "://***@") }
