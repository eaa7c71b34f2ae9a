package values

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// An Explanation says what is known about one key.
type Explanation struct {
	Path     string         `json:"path"`
	Text     string         `json:"text"`
	Group    string         `json:"group"`
	Reader   string         `json:"reader"`
	Since    chart.Version  `json:"since"`
	Until    chart.Version  `json:"until,omitzero"`
	Advice   string         `json:"advice,omitempty"`
	Template bool           `json:"templateOnly,omitempty"`
	Defaults []chart.Change `json:"defaults,omitempty"`
}

// Explain returns what is known about a key, or about all keys of a group. The error wraps
// ErrUnknown, with the nearest key in its message.
func Explain(table *chart.Table, word string) ([]Explanation, error) {
	path := chart.ParsePath(strings.TrimPrefix(strings.TrimPrefix(word, ".Values."), "."))
	var out []Explanation
	for _, k := range table.AllKeys() {
		if len(k.Path) < len(path) || !slices.Equal(k.Path[:len(path)], path) {
			continue
		}
		about, _ := table.About(k.Path)
		out = append(out, Explanation{
			Path: k.Path.String(), Text: about.Text, Group: about.Group, Reader: about.Reader, Since: k.Since(), Until: k.Until(),
			Advice: chart.Advice(k.Path), Template: k.Template(), Defaults: k.Defaults(),
		})
	}
	if len(out) > 0 {
		return out, nil
	}
	v := table.Judge(table.Latest(), path)
	switch {
	case v.Key != nil && v.Status != chart.Unknown:
		return nil, fmt.Errorf("%w key %q: %s is a single value or takes any key below it", ErrUnknown, word, v.Key.Path)
	case v.Nearest != nil:
		return nil, fmt.Errorf("%w key %q, did you mean %s?", ErrUnknown, word, v.Nearest)
	}
	var all []string
	for _, k := range table.AllKeys() {
		all = append(all, k.Path.String())
	}
	if near := report.Nearest(word, all); near != "" {
		return nil, fmt.Errorf("%w key %q, did you mean %s?", ErrUnknown, word, near)
	}
	return nil, fmt.Errorf("%w key %q: no version of the chart has it", ErrUnknown, word)
}
