package fix_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fix"
)

func TestEverythingElseStays(t *testing.T) {
	drop := func(path string) fix.Edit { return fix.Edit{Path: chart.ParsePath(path), Drop: true} }
	move := func(path, to string) fix.Edit {
		return fix.Edit{Path: chart.ParsePath(path), Rename: chart.ParsePath(to)}
	}
	both := func(path, to, word string) fix.Edit {
		return fix.Edit{Path: chart.ParsePath(path), Rename: chart.ParsePath(to), Value: &word}
	}
	value := func(path, word string) fix.Edit { return fix.Edit{Path: chart.ParsePath(path), Value: &word} }
	for _, tt := range []struct {
		name, before string
		edit         fix.Edit
		after        string
	}{
		{"drop a setting between others", "a:\n    b: 1\n\n    c: 2   # two\n    d: 3\n", drop("a.c"), "a:\n    b: 1\n\n    d: 3\n"},
		{"drop a group with comments", "# all\na:\n  # of b\n  b:\n    # of c\n    c: 1\n  d: 2\n", drop("a.b"), "# all\na:\n  # of b\n  # of c\n  d: 2\n"},
		{"drop the only key of a group", "x: 1\na:\n  b:\n    c: 1\n# of z\nz: 2\n", drop("a.b.c"), "x: 1\n# of z\nz: 2\n"},
		{"drop the only setting of the file", "a: {b: 1}\n", drop("a.b"), "{}\n"},
		{"drop a group and its blank line", "a: 1\n\nb:\n  c: 1\n\nd: 1\n", drop("b.c"), "a: 1\n\nd: 1\n"},
		{"drop a list that is not indented", "a:\n- b\n- c\nd: 1\n", drop("a"), "d: 1\n"},
		{"drop a multi-line string", "a: |\n  # no comment\n\n  x\nd: 1\n", drop("a"), "d: 1\n"},
		{"drop a setting in a flow mapping", "a: {b: 1, c: 2} # here\nd: 1\n", drop("a.b"), "a: {c: 2} # here\nd: 1\n"},
		{"drop a group in a flow mapping", "{a: {b: 1}, c: 2}\n", drop("a.b"), "{c: 2}\n"},
		{"set a value", "a:\n  b: x # why\n  c: \"y\"\n", value("a.b", "false"), "a:\n  b: false # why\n  c: \"y\"\n"},
		{"set a string that looks like a number", "a: {b: x}\n", value("a.b", "580"), "a: {b: \"580\"}\n"},
		{"rename a key", "a:\n  \"b\": x\n  c: b\n", move("a.b", "a.d"), "a:\n  \"d\": x\n  c: b\n"},
		{"rename a key in a flow mapping", "a: {b: x}\n", move("a.b", "a.d"), "a: {d: x}\n"},
		{"rename a key to an existing one", "a:\n  b: x\n  d: y\n", move("a.b", "a.d"), "a:\n  d: x\n"},
		{"move into a new group", "a:\n  b: x # why\n  c: 1\nd:\n  e: 1\n", move("a.b", "d.f.g"), "a:\n  c: 1\nd:\n  e: 1\n  f:\n    g: x # why\n"},
		{"move into an empty group", "a:\n  b: x\nd:\n", move("a.b", "d.e"), "d:\n  e: x\n"},
		{"rename a key and set its value", "a:\n  b: x # why\nc: 1\n", both("a.b", "a.d", "open"), "a:\n  d: open # why\nc: 1\n"},
		{"drop a missing setting", "a: &a {b: 1}\nc: *a\n", drop("c.b"), "a: &a {b: 1}\nc: *a\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := fix.Apply([]byte(tt.before), nil, []fix.Edit{tt.edit})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.after, string(got)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			outer := tt.edit
			outer.Path = outer.Path[1:]
			if below, err := fix.Apply([]byte(tt.before), tt.edit.Path[:1], []fix.Edit{outer}); len(outer.Path) > 0 && outer.Rename == nil && (err != nil || string(below) != string(got)) {
				t.Errorf("edit below %s: error = %v, got\n%s\nwant\n%s", tt.edit.Path[:1], err, below, got)
			}
		})
	}
	for _, text := range []string{"a: &a 1\nb: *a\n", "a: 1\rb: 2\n", "- a\n"} {
		if got, err := fix.Apply([]byte(text), nil, []fix.Edit{drop("a")}); !errors.Is(err, fix.ErrEdit) {
			t.Errorf("Apply to %q = %q, error = %v, want ErrEdit", text, got, err)
		}
	}
}
