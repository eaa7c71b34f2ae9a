package values

import (
	"bytes"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// TestChoicesAreUnderstood expects that choices.yaml uses only known fields, keys of the chart and features. A
// misspelled name would be missing from plans without an error.
func TestChoicesAreUnderstood(t *testing.T) {
	strict := yaml.NewDecoder(bytes.NewReader(choicesText))
	strict.KnownFields(true)
	read := choices()
	if err := strict.Decode(&read); err != nil {
		t.Fatal(err)
	}
	key := func(path string) {
		table := chart.Load()
		if status := table.Lookup(table.Latest(), chart.ParsePath(path)).Status; path != "" && (status == chart.Unknown || status == chart.Misspelled) {
			t.Errorf("choices.yaml uses the key %s, which is unknown or misspelled", path)
		}
	}
	named := func(name string) {
		if name != "" && !slices.ContainsFunc(read.Features, func(f choice) bool { return f.Name == name }) {
			t.Errorf("choices.yaml refers to the feature %q, but does not define it", name)
		}
	}
	var all []addition
	for _, p := range read.Platforms {
		all = append(all, p.addition)
		for _, feature := range p.Features {
			named(feature)
		}
	}
	for _, f := range read.Features {
		all = append(all, f.addition)
		for other := range f.Excludes {
			named(other)
		}
		for argument, a := range f.With {
			all = append(all, a)
			if argument != "" && argument != f.Argument {
				t.Errorf("%s=%s has values, but the argument is %q", f.Name, argument, f.Argument)
			}
		}
	}
	for _, a := range all {
		for _, v := range a.Values {
			key(v.Path)
			key(v.Has)
			key(v.Lacks)
			named(v.Without)
		}
		for _, s := range slices.Concat(a.Before, a.After) {
			key(s.Has)
			key(s.Lacks)
			named(s.Without)
		}
	}
}
