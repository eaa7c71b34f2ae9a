package text_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

type machine struct {
	Name  string         `yaml:"name"`
	Every *time.Duration `yaml:"every"`
	Parts []part         `yaml:"parts"`
}

type part struct {
	Count uint32   `yaml:"count"`
	Words []string `yaml:"words"`
}

func TestDecodeYAML(t *testing.T) {
	const file = "# a machine\nname: 1\nevery: 5m\nparts:\n- &p {count: 0x10}\n- words: [a, b]\n- *p\n"
	var got machine
	root, err := text.DecodeYAML("m.yaml", []byte(file), &got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{5, 6, 5}, text.Lines(root, "parts")); diff != "" {
		t.Errorf("lines of parts (-want +got)\n%s", diff)
	}
	every := 5 * time.Minute
	want := machine{Name: "1", Every: &every, Parts: []part{{Count: 16}, {Words: []string{"a", "b"}}, {Count: 16}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDecodeYAMLReportsEveryError(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"nmae: a\nparts:\n- {count: -1}\n- {count: 1, count: 2}\nevery: soon\n",
			`m.yaml:1: unknown key nmae: did you mean "name"?
m.yaml:3: parts[0].count is "-1": expected an integer of at least 0
m.yaml:4: duplicate key parts[1].count, first on line 4
m.yaml:5: every is "soon": expected a duration such as 90s or 5m`},
		{"parts:\n- {counts: 1, words: a, of: 3}\n- some words that are longer\n",
			`m.yaml:2: unknown key parts[0].counts: did you mean "count"?
m.yaml:2: parts[0].words is "a": expected a list
m.yaml:2: unknown key parts[0].of: expected one of count, words
m.yaml:3: parts[1] is "some words that are longer": expected keys and values`},
		{"parts:\n- {count: -1}\n- {count: [-1], words: [{}, -1]}\n",
			`m.yaml:2: parts[0].count is "-1": expected an integer of at least 0
m.yaml:3: parts[1].count is a list: expected an integer of at least 0
m.yaml:3: parts[1].words[0] is a mapping: expected a string`},
		{"parts:\n- {count: 1.5}\n- {count: 2.0}\n- {count: -1.5}\n- {count: 1e30}\n- {count: .inf}\nevery: 1.5\n",
			`m.yaml:2: parts[0].count is "1.5": expected an integer of at least 0
m.yaml:3: parts[1].count is "2.0": expected an integer of at least 0
m.yaml:4: parts[2].count is "-1.5": expected an integer of at least 0
m.yaml:5: parts[3].count is "1e30": expected an integer of at least 0
m.yaml:6: parts[4].count is ".inf": expected an integer of at least 0
m.yaml:7: every is "1.5": expected a duration such as 90s or 5m`},
		{"parts:\n- words: [&half 0.5]\n- count: *half\n",
			`m.yaml:3: parts[1].count is "0.5": expected an integer of at least 0`},
		{"name:\nparts: [~]\n",
			"m.yaml:1: name is empty: expected a string\nm.yaml:2: parts[0] is empty: expected keys and values"},
		{"- name: a\n", "m.yaml:1: the file is a list: expected keys and values"},
		{"name\n", `m.yaml:1: the file is "name": expected keys and values`},
		{"name: a\n<<: {every: 5m}\n", "m.yaml:2: unknown key <<: expected one of every, name, parts"},
		{"parts: &a [*a]\n", "m.yaml:1: parts[0] is a list: expected keys and values"},
		{"name: a\n---\nname: [\n", "m.yaml:3: not YAML: did not find expected node content"},
		{"name: a\nparts: [\n", "m.yaml:2: not YAML: did not find expected node content"},
		{"name: a\n---\nname: b\n", "m.yaml:2: second document: expected only one"},
		{"", "m.yaml: the file is empty: expected keys and values"},
	} {
		_, err := text.DecodeYAML("m.yaml", []byte(test.file), &machine{})
		var syntax *text.SyntaxError
		if !errors.As(err, &syntax) || err.Error() != test.want {
			t.Errorf("%q\n got %v\nwant %s", test.file, err, test.want)
		}
	}
}

// A file is either rejected with its name, or each element of a list has a line.
func FuzzDecodeYAML(f *testing.F) {
	for _, file := range []string{
		"name: a\nparts: [{count: 1}, {words: [a]}]\n", "parts: &a [*a]\n", "<<: {parts: [{}]}\n",
		"parts: &a [{}]\nname: *a\n", "name: !!binary YQ==\nevery: !!str 5m\n", "? [a]\n: b\n",
		"a: &a [b]\nparts: *a\n", "parts: [~, ]\n", "name: \"\\n\"\n",
	} {
		f.Add([]byte(file))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var m machine
		root, err := text.DecodeYAML("m.yaml", file, &m)
		if err != nil {
			var syntax *text.SyntaxError
			if !errors.As(err, &syntax) || syntax.File != "m.yaml" {
				t.Errorf("error %v, want a SyntaxError that names m.yaml", err)
			}
			return
		}
		if lines := text.Lines(root, "parts"); len(lines) != len(m.Parts) {
			t.Errorf("%d lines for %d parts, want one for each part", len(lines), len(m.Parts))
		}
	})
}
