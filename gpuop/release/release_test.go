package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/release"
)

// small is a chart with every kind of entry that the package reads.
var small = map[string]string{
	"Chart.yaml":  "name: gpu-operator\nversion: v27.1.0\nappVersion: v27.1.0\n",
	"values.yaml": "driver:\n  enabled: true\n  version: 700.1.1\n  repository: nvcr.io/nvidia\n  image: driver\nnode-feature-discovery:\n  worker: {tolerations: [{key: a}]}\n",
	"templates/a.yaml": "{{- $d := .Values.driver -}}\n{{- if .Values.driver.enabled }}\nimage: {{ .Values.driver.image }}\nversion: {{ $d.version | quote }}\n" +
		"{{- with .Values.operator.nodeSelector }}\n{{ toYaml . }}\n{{- end }}\n{{- with .Values.extra }}{{ .name }}{{- end }}{{- range .Values.list }}{{ .x }}{{- end }}\n{{- end }}\n" +
		"v: {{ .Values.validator.version | default .Chart.AppVersion }}\n{{ if hasKey .Values.mig \"strategy\" }}x{{ end }}\n",
	"crds/a.yaml": "kind: CustomResourceDefinition\nspec:\n  names: {kind: ClusterPolicy}\n  versions:\n    - schema:\n        openAPIV3Schema:\n          properties:\n" +
		"            spec:\n              type: object\n              required: [driver]\n              properties:\n                driver: {type: object, properties: {enabled: {type: boolean, default: true}, env: {type: array, items: {type: object, required: [name], properties: {name: {type: string}}}}}}\n",
	"charts/node-feature-discovery/Chart.yaml":       "name: node-feature-discovery\nversion: 0.20.0\nappVersion: v0.20.0\n",
	"charts/node-feature-discovery/values.yaml":      "worker: {tolerations: [], port: 8080}\n",
	"charts/node-feature-discovery/templates/w.yaml": "{{ .Values.worker.port }}\n",
	"README.md": "not read",
}

func write(t *testing.T, dir string) string {
	t.Helper()
	for name, text := range small {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// pack archives a folder like helm package does.
func pack(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	archive := tar.NewWriter(zipped)
	err := fs.WalkDir(os.DirFS(dir), ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, p))
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: "gpu-operator/" + p, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			return err
		}
		_, err = archive.Write(data)
		return err
	})
	if err = errors.Join(err, archive.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestFolderAndArchiveAreEqual(t *testing.T) {
	dir := write(t, t.TempDir())
	packed := pack(t, dir)
	file := filepath.Join(t.TempDir(), "gpu-operator-v27.1.0.tgz")
	if err := os.WriteFile(file, packed, 0o644); err != nil {
		t.Fatal(err)
	}
	want := &chart.Release{
		AppVersion: "v27.1.0", Discovery: "v0.20.0",
		Values: map[string]any{
			"driver.enabled": true, "driver.version": "700.1.1", "driver.repository": "nvcr.io/nvidia", "driver.image": "driver",
			"node-feature-discovery.worker.tolerations": []any{map[string]any{"key": "a"}}, "node-feature-discovery.worker.port": 8080.0,
		},
		Reads: map[string]chart.Use{
			"driver": chart.Printed, "driver.enabled": chart.Tested, "driver.image": chart.Printed, "driver.version": chart.Printed, "operator.nodeSelector": chart.Copied,
			"extra": chart.Tested, "extra.name": chart.Printed, "list": chart.Copied, "validator.version": chart.Printed, "mig.strategy": chart.Tested,
			"node-feature-discovery.worker.port": chart.Printed,
		},
		Fields: map[chart.Parent][]*chart.Field{
			{Kind: "ClusterPolicy"}: {{Path: "spec", Type: "object"}}, {Kind: "ClusterPolicy", Path: "spec"}: {{Path: "spec.driver", Type: "object", Required: true}},
			{Kind: "ClusterPolicy", Path: "spec.driver"}:       {{Path: "spec.driver.enabled", Type: "boolean", Default: true}, {Path: "spec.driver.env", Type: "array"}},
			{Kind: "ClusterPolicy", Path: "spec.driver.env"}:   {{Path: "spec.driver.env[]", Type: "object"}},
			{Kind: "ClusterPolicy", Path: "spec.driver.env[]"}: {{Path: "spec.driver.env[].name", Type: "string", Required: true}},
		},
	}
	want.Version, _ = chart.ParseVersion("v27.1.0")
	partly := write(t, t.TempDir())
	part := filepath.Join(partly, "charts", "node-feature-discovery")
	err := os.WriteFile(part+"-0.20.0.tgz", pack(t, part), 0o644)
	if err = errors.Join(err, os.RemoveAll(part)); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"folder": dir, "archive": file, "folder with a packed subchart": partly} {
		got, err := release.Open(path)
		if err != nil {
			t.Errorf("%s: error = %v, want none", name, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(chart.Release{})); diff != "" {
			t.Errorf("%s: release (-want +got):\n%s", name, diff)
		}
	}
}

func TestNotAChart(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "text": "hello", "other.yaml": "a: 1\n", "broken.tgz": "\x1f\x8b\x08 broken", "values.yaml": "driver: [\n"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := release.Open(path); !errors.Is(err, release.ErrChart) {
			t.Errorf("%s: error = %v, want ErrChart", name, err)
		}
	}
	if _, err := release.Open(dir); !errors.Is(err, release.ErrChart) {
		t.Errorf("a folder without a chart: error = %v, want ErrChart", err)
	}
	other := write(t, t.TempDir())
	if err := os.WriteFile(filepath.Join(other, "Chart.yaml"), []byte("name: network-operator\nversion: 1.0.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := release.Open(other); !errors.Is(err, release.ErrChart) {
		t.Errorf("another chart: error = %v, want ErrChart", err)
	}
	invalid := write(t, t.TempDir())
	crd := strings.Replace(small["crds/a.yaml"], "name: {type: string}", "name: {type: string, pattern: '('}", 1)
	if err := os.WriteFile(filepath.Join(invalid, "crds", "a.yaml"), []byte(crd), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := release.Open(invalid); !errors.Is(err, release.ErrChart) || !strings.Contains(err.Error(), "env[].name") {
		t.Errorf("an invalid pattern: error = %v, want ErrChart for the field env[].name", err)
	}
}
