package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// ErrUnknown is returned for a word that nobody knows.
var ErrUnknown = errors.New("unknown word")

// Lookup explains a word: by the glossary, as gpuop's own row, as the chart's key; else it explains the
// keys below it, for ".Values.driver" of those alone. ErrUnknown names the nearest words.
func Lookup(table *chart.Table, word string) ([]Entry, error) {
	entries := Find(word)
	for _, c := range report.Codes() {
		if string(c.ID) == word {
			entries = append(entries, Entry{Kind: "row of gpuop " + strings.Join(c.Commands, ", "), Words: []string{word}, Meaning: c.Meaning + " " + c.Next, Source: c.Source})
		}
	}
	path := chart.ParsePath(strings.TrimPrefix(strings.TrimPrefix(word, ".Values"), "."))
	if below := keys(table, path); len(entries) == 0 || len(below) == 1 {
		entries = append(entries, below...)
	}
	if len(entries) > 0 {
		return entries, nil
	}
	near := Nearest(word)
	switch v := table.Judge(table.Latest(), path); {
	case v.Key != nil && v.Status != chart.Unknown && v.Status != chart.Misspelt:
		return nil, fmt.Errorf("%w %q: %s is a single value or takes any key below it", ErrUnknown, word, v.Key.Path)
	case strings.Contains(word, ".") && v.Nearest != nil:
		near = []string{v.Nearest.String()}
	}
	hint := ""
	switch len(near) {
	case 0:
	case 1:
		hint = ": did you mean " + near[0] + "?"
	default:
		hint = ": did you mean one of: " + strings.Join(near, ", ") + "?"
	}
	return nil, fmt.Errorf("%w %q%s", ErrUnknown, word, hint)
}

// keys explains the key of the chart at the path, or all keys below it.
func keys(table *chart.Table, path chart.Path) []Entry {
	var out []Entry
	for _, k := range table.AllKeys() {
		if k.Group() || len(path) == 0 || len(k.Path) < len(path) || !slices.Equal(k.Path[:len(path)], path) {
			continue
		}
		about, _ := table.About(k.Path)
		e := Entry{Kind: "key of the chart", Words: []string{k.Path.String()}, Meaning: about.Text, Reader: about.Reader,
			Since: k.Since().String(), Instead: chart.Advice(k.Path)}
		if k.Until() != (chart.Version{}) {
			e.Since += ", last in " + k.Until().String()
		}
		for _, d := range k.Defaults() {
			value, _ := json.Marshal(d.Value) // of the chart's own, which always marshals
			e.Defaults = append(e.Defaults, fmt.Sprintf("%s from %s", value, d.From))
		}
		out = append(out, e)
	}
	return out
}
