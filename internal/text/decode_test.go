package text_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

type machine struct {
	Line  text.Line
	Name  string         `yaml:"name"`
	Every *time.Duration `yaml:"every"`
	Parts []part         `yaml:"parts"`
}

type part struct {
	Line  text.Line
	Count uint32   `yaml:"count"`
	Words []string `yaml:"words"`
}

func TestDecodeYAML(t *testing.T) {
	const file = "# a machine\nname: 1\nevery: 5m\nparts:\n- {count: 0x10}\n- words: [a, b]\n"
	var got machine
	if err := text.DecodeYAML(strings.NewReader(file), "m.yaml", &got); err != nil {
		t.Fatal(err)
	}
	every := 5 * time.Minute
	want := machine{Line: 2, Name: "1", Every: &every, Parts: []part{{Line: 5, Count: 16}, {Line: 6, Words: []string{"a", "b"}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDecodeYAMLReportsEveryError(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"nmae: a\nparts:\n- {count: -1}\n- {count: 1, count: 2}\nevery: soon\n", `m.yaml:1: unknown key "nmae": did you mean "name"?
m.yaml:3: parts[0].count is "-1": expected an integer of at least 0
m.yaml:4: duplicate key parts[1].count, first on line 4
m.yaml:5: every is "soon": expected a duration such as 90s or 5m`},
		{"name: &n a\nparts:\n- words: [*n, *n]\n", `m.yaml:3: the alias *n: expected its value, written out
m.yaml:3: the alias *n: expected its value, written out`},
		{"name: a\nparts: [\n", "m.yaml:2: not YAML: did not find expected node content"},
		{"name: a\n---\nname: b\n", "m.yaml:2: second document: expected only one"},
		{"", "m.yaml: the file is empty: expected keys and values"},
	} {
		err := text.DecodeYAML(strings.NewReader(test.file), "m.yaml", &machine{})
		var syntax *text.SyntaxError
		if !errors.As(err, &syntax) || err.Error() != test.want {
			t.Errorf("%q\n got %v\nwant %s", test.file, err, test.want)
		}
	}
}

func TestDocuments(t *testing.T) {
	docs, err := text.Documents("", []byte("a: 1\n---\n- b\n"))
	if err != nil || len(docs) != 2 || docs[1].Content[0].Line != 3 {
		t.Errorf("%d documents, %v", len(docs), err)
	}
	_, err = text.Documents("", []byte("a: 1\n---\nb: [\n"))
	if err == nil || err.Error() != "line 3: not YAML: did not find expected node content" {
		t.Errorf("a broken second document: %v", err)
	}
}
