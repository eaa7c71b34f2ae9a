package vocabulary_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/vocabulary"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

func diffFolder(dir string, args ...string) (out, errs string, code int) {
	w := &commandtest.World{}
	p := w.Process(append([]string{"diff", dir}, args...)...)
	p.ReadFile = os.ReadFile
	code = vocabulary.Command{Process: p, List: vocabulary.Files}.Run()
	return strings.ReplaceAll(w.Out.String(), dir, "DIR"), strings.ReplaceAll(w.Err.String(), dir, "DIR"), code
}

// A folder is read whole, what else lies in it is not reported, and what should be readable and is
// not, is.
func TestFolder(t *testing.T) {
	dir := folder.Of(t, map[string]string{
		"b/rules.yaml":         rule("DCGM_FI_DEV_GPU_TEMP"),
		"a.json":               rule("DCGM_FI_DEV_FB_USED"),
		"b/c/alerts.rules":     rule("up"),
		"package.json":         `{"name": "other"}`,
		"values.yaml":          "a: b\n",
		"templates/other.yaml": "{{- if .Values.on }}\na: b\n{{ end }}\n",
		"notes.txt":            rule("DCGM_FI_DEV_GPU_TEMP"),
		".git/x.json":          rule("DCGM_FI_DEV_GPU_TEMP"),
		"..data/linked.yaml":   rule("DCGM_FI_DEV_GPU_TEMP"),
	})
	if err := os.Symlink(filepath.Join("..data", "linked.yaml"), filepath.Join(dir, "linked.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "broken.yaml")); err != nil {
		t.Fatal(err)
	}
	out, errs, code := diffFolder(dir)
	var heads []string
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, " ") {
			heads = append(heads, strings.TrimSpace(line))
		}
	}
	want := []string{"DIR/a.json, to current:", "DIR/b/rules.yaml, to current:", "DIR/linked.yaml, to current:",
		"3 to change, 0 to look at by hand, in 4 files"}
	if d := cmp.Diff(want, heads); d != "" || errs != "" || code != command.Faulty {
		t.Errorf("code %d, said %q (-want +got)\n%s", code, errs, d)
	}

	template := filepath.Join(dir, "templates", "alerts.yaml")
	if err := os.WriteFile(template, []byte("groups:\n{{- range .Values.x }}\n- expr: DCGM_FI_DEV_GPU_TEMP\n{{ end }}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs, code = diffFolder(dir)
	if code != command.Unable || !strings.Contains(errs, "DIR/templates/alerts.yaml:2: not YAML") || !strings.Contains(errs, "helm template") ||
		!strings.Contains(out, "DCGM_FI_DEV_FB_USED_BYTES") {
		t.Errorf("a template: code %d, said %q\n%s", code, errs, out)
	}
}

func TestFolderOfOthers(t *testing.T) {
	for name, files := range map[string]map[string]string{"others": {"a.json": "{}", "b.yaml": "x: y"}, "empty": nil} {
		if _, errs, code := diffFolder(folder.Of(t, files)); code != command.Unable || !strings.Contains(errs, "DIR: no dashboard") {
			t.Errorf("%s: code %d, said %q", name, code, errs)
		}
	}
	if _, errs, code := diffFolder(filepath.Join(t.TempDir(), "absent")); code != command.Unable || !strings.Contains(errs, "no such file") {
		t.Errorf("absent: code %d, said %q", code, errs)
	}
}
