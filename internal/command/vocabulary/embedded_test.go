package vocabulary_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/vocabulary"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// A wrapping puts a file into a ConfigMap.
type wrapping struct {
	name string
	wrap func(text string) string
	// expect returns what a finding in the file is in the ConfigMap.
	expect func(vocabulary.Finding, string) vocabulary.Finding
}

func wrappings() []wrapping {
	const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: n}\ndata:\n  f.json: |2"
	place := func(f vocabulary.Finding, first, last string) vocabulary.Finding {
		parts := []string{first}
		for _, part := range []string{f.Place, last} {
			if part != "" {
				parts = append(parts, part)
			}
		}
		f.Place = strings.Join(parts, ", ")
		return f
	}
	return []wrapping{
		{"block", func(text string) string {
			end := "-\n    "
			if strings.HasSuffix(text, "\n") {
				end = "+\n    "
			}
			return head + end + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
		}, func(f vocabulary.Finding, _ string) vocabulary.Finding {
			f.Line += strings.Count(head, "\n") + 1
			return place(f, "ConfigMap n/m, f.json", "")
		}},
		{"string", func(text string) string {
			quoted, _ := json.Marshal(text)
			return `{"apiVersion": "v1", "kind": "List", "items": [` + "\n" +
				`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"f.json": ` + string(quoted) + "}}\n]}"
		}, func(f vocabulary.Finding, text string) vocabulary.Finding {
			inner := ""
			if strings.Contains(strings.TrimRight(text, "\n"), "\n") {
				inner = fmt.Sprintf("line %d of the text", f.Line)
			}
			f.Line = 2
			return place(f, "ConfigMap m, f.json", inner)
		}},
	}
}

// list runs the subcommand over one text, and says whether it could be read.
func list(t *testing.T, text string) (found []vocabulary.Finding, ok bool) {
	t.Helper()
	w := &commandtest.World{Files: map[string]string{"f": text}}
	code := vocabulary.Command{Process: w.Process("diff", "--format=json", "--to=current", "f")}.Run()
	if err := json.Unmarshal(w.Out.Bytes(), &found); err != nil {
		t.Fatal(err)
	}
	return found, code != command.Unable
}

// checkWrapped holds that a file says the same in a ConfigMap as by itself, at the line where it
// stands there.
func checkWrapped(t *testing.T, text string) {
	t.Helper()
	found, ok := list(t, text)
	if !ok {
		return
	}
	for _, c := range wrappings() {
		var want []vocabulary.Finding
		for _, f := range found {
			want = append(want, c.expect(f, text))
		}
		got, ok := list(t, c.wrap(text))
		if d := cmp.Diff(want, got); d != "" && len(want)+len(got) > 0 || !ok {
			t.Fatalf("%s, read: %v (-by itself +wrapped)\n%s\n%s", c.name, ok, d, c.wrap(text))
		}
	}
}

// TestWrappedDashboards holds it for whole dashboards: those of the tests, and the reference's
// where it is at hand.
func TestWrappedDashboards(t *testing.T) {
	for _, path := range []string{"testdata/node.json", "testdata/dashboard.json", referenceDashboard} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			if path == referenceDashboard {
				path = material.Path(t, path)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if found, ok := list(t, string(text)); !ok || len(found) == 0 {
				t.Fatalf("read: %v, %d findings", ok, len(found))
			}
			checkWrapped(t, string(text))
		})
	}
}

// FuzzWrapped holds it for whatever can be read and can stand in a YAML block.
func FuzzWrapped(f *testing.F) {
	f.Add(rule("DCGM_FI_DEV_GPU_TEMP"))
	f.Add("{\"panels\": [\n\n  {\"title\": \"T\", \"targets\": [{\"expr\": \"DCGM_FI_DEV_FB_USED\"}]}\n]}\n\n")
	f.Add("\n\n{\"rows\": [{\"x\": \"a\\nDCGM_FI_DEV_GPU_TEMP\\n\"}]}")
	f.Add("groups:\n- name: g\n  rules:\n  - alert: A\n    expr: |\n      DCGM_FI_DEV_GPU_TEMP\n        > 5\n")
	f.Add("apiVersion: v1\nkind: ConfigMap\ndata:\n  a.json: >\n    {\"panels\": [\n    {\"expr\": \"DCGM_FI_DEV_GPU_TEMP\"}]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\u0085\u2028\u2029\ufeff") ||
			strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }) ||
			strings.TrimSpace(text) == "" || !strings.ContainsAny(text, "{\n") {
			t.Skip("no text of a YAML block, or of one line without a brace")
		}
		checkWrapped(t, text)
	})
}
