package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

func TestOutMustNotBeAnInput(t *testing.T) {
	const text = "mig: {strategy: mixed}\n"
	dir := folder.Of(t, map[string]string{"values.yaml": text})
	file := filepath.Join(dir, "values.yaml")
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{file, link, filepath.Join(dir, ".", "values.yaml")} {
		code, _, errOut := call("", "values", "migrate", file, "--from", "v25.3", "--out", out)
		if code != 2 || !strings.Contains(errOut, "would overwrite the input") {
			t.Errorf("--out %s: exit %d, standard error %q; want 2 and \"would overwrite the input\"", out, code, errOut)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Fatalf("input file after the call = %q, error %v; want %q", got, err, text)
		}
	}
	if code, _, errOut := call("", "values", "migrate", file, "--from", "v25.3", "--out", filepath.Join(dir, "new.yaml")); code != 0 {
		t.Errorf("--out new.yaml: exit %d, want 0: %s", code, errOut)
	}
}

// If the release of the chart is unknown, lint names the release that it checks against instead.
func TestLintNamesTheReleaseThatItAssumes(t *testing.T) {
	for release, used := range map[string]string{"v25.4.0": "v25.3.4", "v26.11.0": "v26.7.0"} {
		want := "checked against " + used
		dir := folder.Of(t, map[string]string{
			"Chart.yaml": "name: gpu-operator\nversion: " + release + "\n", "values.yaml": "cdi: {enabled: true}\n",
		})
		if code, out, _ := call("", "lint", filepath.Join(dir, "values.yaml")); code != 0 || !strings.Contains(out, "Chart.yaml") || !strings.Contains(out, want) {
			t.Errorf("values.yaml next to Chart.yaml of %s: exit %d, want 0 and %q\n%s", release, code, want, out)
		}
	}
}

// An unknown key of an unknown release is a note without --chart. With --chart, the release is checked like a known
// one.
func TestChartAddsARelease(t *testing.T) {
	values := "driver: {brandNew: 1, enabled: true}\n"
	code, out, _ := call(values, "lint", "-", "--version", "v27.1.0")
	if code != 0 || !strings.Contains(out, "note: driver.brandNew") || !strings.Contains(out, "unknown release") {
		t.Errorf("without --chart: exit %d, want 0 and a note about driver.brandNew\n%s", code, out)
	}
	dir := folder.Of(t, map[string]string{
		"Chart.yaml":  "name: gpu-operator\nversion: v27.1.0\nappVersion: v27.1.0\n",
		"values.yaml": "driver: {enabled: true, brandNew: 0, image: driver}\noperator: {image: gpu-operator}\n",
	})
	if code, out, _ = call(values, "lint", "-", "--chart", dir); code != 0 || !strings.Contains(out, "no findings") || !strings.Contains(out, "v27.1.0") {
		t.Errorf("with --chart: exit %d, want 0 and no findings for v27.1.0\n%s", code, out)
	}
	if code, out, _ = call("driver: {brandNw: 1}\n", "lint", "-", "--chart", dir); code != 1 || !strings.Contains(out, "did you mean driver.brandNew?") {
		t.Errorf("a misspelled key with --chart: exit %d, want 1 and the suggestion driver.brandNew\n%s", code, out)
	}
}
