package fields

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

func summary(findings []check.Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %s: %s", f.Line, f.Check.ID, f.Subject, f.Fix)))
	}
	return out
}

func TestMapping(t *testing.T) {
	for name, tc := range map[string]struct {
		file           string
		fields, wanted []string
	}{
		"plain":           {"alpha: 1\nbeta: 2\n", []string{"alpha=1", "beta=2"}, nil},
		"misspelt":        {"alhpa: 1\n", nil, []string{"1 unknown-key alhpa: write alpha"}},
		"other case":      {"Camel_case: 1\n", nil, []string{"1 unknown-key Camel_case: write camelCase"}},
		"nothing near":    {"zzzzzz: 1\n", nil, []string{"1 unknown-key zzzzzz: known here: alpha, beta, camelCase"}},
		"twice":           {"alpha: 1\nbeta: 2\nalpha: 3\n", []string{"beta=2", "alpha=3"}, []string{"3 duplicate-key alpha: keep one"}},
		"merged":          {"alpha: &a {beta: 2, alpha: 0, gamma: 1}\n<<: *a\n", []string{"alpha=", "beta=2"}, []string{"1 unknown-key gamma: known here: alpha, beta, camelCase"}},
		"merge of itself": {"&a\nalpha: 1\n<<: *a\n", nil, []string{"0 yaml-aliases : write the values out"}},
		"merge of a word": {"<<: x\n", nil, []string{"1 wrong-type :"}},
		"a list as key":   {"[a]: 1\n", nil, []string{"1 wrong-type :"}},
		"ellipsis":        {"alpha:\n  - 1\n  ...\n", nil, []string{"3 yaml-ellipsis ...: replace it with the missing lines, or delete it"}},
		"syntax":          {"alpha: [\n", nil, []string{"1 yaml-syntax :"}},
		"empty":           {"# nothing\n", nil, []string{"0 yaml-syntax :"}},
		"a list":          {"- alpha\n", nil, []string{"1 wrong-type :"}},
	} {
		t.Run(name, func(t *testing.T) {
			var r Reader
			var got []string
			if root := r.Document([]byte(tc.file)); root != nil {
				for _, f := range r.Mapping(root, "", "alpha", "beta", "camelCase") {
					got = append(got, f.Name+"="+f.Value.Value)
				}
			}
			if diff := cmp.Diff(tc.fields, got); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wanted, summary(r.Findings)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestScalars(t *testing.T) {
	for value, want := range map[string][]string{
		"true":   {"bool", "1 wrong-type x:", `1 wrong-type x: write "true"`},
		"yes":    {"text", "1 wrong-type x:", "1 wrong-type x:"},
		`"true"`: {"text", "1 wrong-type x: write true without quotes", "1 wrong-type x:"},
		"7":      {"int", "1 wrong-type x:", `1 wrong-type x: write "7"`},
		`"7"`:    {"text", "1 wrong-type x:", "1 wrong-type x: write 7 without quotes"},
		"1.5":    {"", "1 wrong-type x:", "1 wrong-type x:", `1 wrong-type x: write "1.5"`},
		"[a]":    {"", "1 wrong-type x:", "1 wrong-type x:", "1 wrong-type x:"},
		"":       {"", "1 wrong-type x:", "1 wrong-type x:", "1 wrong-type x:"},
	} {
		var r Reader
		root := r.Document([]byte("x: " + value + "\n"))
		node := r.Mapping(root, "")[0].Value
		got := ""
		if _, ok := r.Bool(node, "x"); ok {
			got = "bool"
		}
		if _, ok := r.Int(node, "x"); ok {
			got = "int"
		}
		if _, ok := r.Text(node, "x"); ok {
			got = "text"
		}
		if diff := cmp.Diff(want, append([]string{got}, summary(r.Findings)...)); diff != "" {
			t.Errorf("%q: type and findings (-want +got):\n%s", value, diff)
		}
	}
}

// FuzzDocument expects a root or an error for every file, and every finding on a line of the file.
func FuzzDocument(f *testing.F) {
	f.Add([]byte("a: &a [*a]\nb: *a\n"))
	f.Add([]byte("a:\n  ...\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Reader
		root := r.Document(data)
		if root != nil {
			for _, field := range r.Mapping(root, "", "a", "b") {
				r.List(field.Value, field.Name)
				r.Bool(field.Value, field.Name)
			}
		} else if !slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return f.Severity == check.Error }) {
			t.Fatal("result has neither a root nor an error")
		}
		for _, f := range r.Findings {
			if f.Line > strings.Count(string(data), "\n")+strings.Count(string(data), "\r")+2 {
				t.Fatalf("finding %q is on line %d, which is not in the file %q", f.Reason, f.Line, data)
			}
		}
	})
}
