package drift

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// walk calls visit for each value of two trees that is not a map in both or in the only tree that has it. Empty maps
// are skipped. wanted means that the first tree has the value.
func walk(path chart.Path, want, have map[string]any, visit func(path chart.Path, w, h any, wanted bool)) {
	names := slices.AppendSeq(slices.Collect(maps.Keys(want)), maps.Keys(have))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		at := append(path[:len(path):len(path)], name)
		w, wanted := want[name]
		h, is := have[name]
		wm, wIsMap := w.(map[string]any)
		hm, hIsMap := h.(map[string]any)
		if wIsMap && hIsMap || wIsMap && !is || hIsMap && !wanted {
			walk(at, wm, hm, visit)
		} else {
			visit(at, w, h, wanted)
		}
	}
}

// pruned returns the value without empty parts, which the API server drops or ignores. It returns nil if nothing is
// left.
func pruned(value any) any {
	switch v := value.(type) {
	case []any:
		out := make([]any, len(v))
		for i, inner := range v {
			out[i] = pruned(inner)
		}
		if len(out) > 0 {
			return out
		}
		return nil
	case map[string]any:
		out := map[string]any{}
		for name, inner := range v {
			if kept := pruned(inner); kept != nil {
				out[name] = kept
			}
		}
		if len(out) > 0 {
			return out
		}
		return nil
	}
	if value == "" {
		return nil
	}
	return value
}

func empty(value any) bool { return pruned(value) == nil }

// same reports whether two values are equal. The Go types of numbers and empty parts do not matter.
func same(a, b any) bool {
	x, errX := json.Marshal(pruned(a))
	y, errY := json.Marshal(pruned(b))
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// maxShown limits the length of a value in a sentence, in bytes.
const maxShown = 160

// nested returns a tree that has only the value, at the path.
func nested(path []string, value any) any {
	for _, name := range slices.Backward(path) {
		value = map[string]any{name: value}
	}
	return value
}

// shown formats the value at a path as JSON. It masks secrets before it shortens the text.
func (c *comparison) shown(path []string, value any) string {
	if _, isText := value.(string); empty(value) && !isText {
		return "nothing"
	}
	masked := check.MaskTree(nested(path, value))
	for _, name := range path {
		masked = masked.(map[string]any)[name]
	}
	data, err := json.Marshal(masked)
	if err != nil {
		return fmt.Sprint(value)
	}
	out := c.Hidden.Mask(string(data))
	if len(out) > maxShown {
		out = strings.ToValidUTF8(out[:maxShown], "") + "…"
	}
	return check.OneLine(out)
}
