package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// runRelease runs the command and returns its output.
func runRelease(t *testing.T, in string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, strings.NewReader(in), &out); err != nil {
		t.Fatalf("release %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

const changelog = `# Changelog

## Unreleased

- [FEATURE] Later.

## 0.2.0 / 2026-12-01

- [BUGFIX] Second.

## 0.1.0 / 2026-11-22

- [FEATURE] First.
`

func TestNotes(t *testing.T) {
	for version, want := range map[string]string{"v0.2.0": "- [BUGFIX] Second.\n", "0.1.0": "- [FEATURE] First.\n"} {
		if got := runRelease(t, changelog, "notes", version); got != want {
			t.Errorf("notes of %s = %q, want %q", version, got, want)
		}
	}
	runRelease(t, folder.Read(t, "../../CHANGELOG.md"), "notes", "v0.1.0") // must find the section
	for _, version := range []string{"v0.3.0", "Unreleased", ""} {
		if err := run([]string{"notes", version}, strings.NewReader(changelog), &bytes.Buffer{}); err == nil ||
			!strings.Contains(err.Error(), `["0.2.0" "0.1.0"]`) {
			t.Errorf("notes of %q: error %v, want one that names the releases", version, err)
		}
	}
	if err := run([]string{"notes", "v1.0.0"},
		strings.NewReader("## 1.0.0 / 2026-01-01\n\n## 0.9.0 / 2025-01-01\n- x\n"), &bytes.Buffer{}); err == nil {
		t.Error("notes of an empty section succeeded, want an error")
	}
}

// schema compiles the CycloneDX schema, which is part of the cyclonedx-go module.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/CycloneDX/cyclonedx-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	schemas := filepath.Join(strings.TrimSpace(string(out)), "schema")
	c := jsonschema.NewCompiler()
	for url, name := range map[string]string{
		"http://cyclonedx.org/schema/bom-1.6.schema.json":  "bom-1.6.schema.json",
		"http://cyclonedx.org/schema/spdx.schema.json":     "spdx.schema.json",
		"http://cyclonedx.org/schema/jsf-0.82.schema.json": "jsf-0.82.schemax.json",
	} {
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(folder.Read(t, schemas, name)))
		if err == nil {
			err = c.AddResource(url, document)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("http://cyclonedx.org/schema/bom-1.6.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type bom struct {
	SerialNumber string
	Components   []struct{ Name, Version, Purl string }
}

func sbomOf(t *testing.T, from string) bom {
	t.Helper()
	args := []string{"sbom", "--name", "dcgm-exporter", "--version", "v0.1.0", "--date", "2026-11-22T00:00:00Z", from}
	text := runRelease(t, "", args...)
	if again := runRelease(t, "", args...); again != text {
		t.Error("two SBOMs of the same program differ, want equal ones")
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema(t).Validate(document); err != nil {
		t.Errorf("SBOM does not match the CycloneDX 1.6 schema: %v", err)
	}
	var b bom
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// The SBOM of a program lists every module that "go version -m" prints.
func TestSBOMOfAProgram(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := sbomOf(t, program)
	out, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "dep" {
			continue
		}
		modules++
		if !slices.ContainsFunc(b.Components, func(c struct{ Name, Version, Purl string }) bool {
			return c.Name == words[1] && c.Version == words[2] &&
				c.Purl == "pkg:golang/"+strings.ToLower(words[1])+"@"+words[2]
		}) {
			t.Errorf("SBOM does not have module %s %s", words[1], words[2])
		}
	}
	if modules < 2 {
		t.Errorf("go version -m lists %d modules, want at least 2", modules)
	}
}

func TestSBOMRejectsInvalidLayouts(t *testing.T) {
	layout := folder.Of(t, map[string]string{"index.json": `{"manifests":[{"digest":"sha256:../../etc/passwd"}]}`})
	for _, from := range []string{"oci:" + layout, "oci:" + t.TempDir(), "/etc/hostname"} {
		if err := run([]string{"sbom", "--name", "x", from}, nil, &bytes.Buffer{}); err == nil {
			t.Errorf("SBOM of %s succeeded, want an error", from)
		}
	}
}

// Helm can load the packed chart. Its version and appVersion, which is the default image tag, are those of the release.
// Symbolic links are replaced by their content.
func TestPackedChartHasReleaseVersion(t *testing.T) {
	into := t.TempDir()
	runRelease(t, "", "chart", "../../deployment/chart", "v1.2.3", into)
	c, err := loader.LoadFile(filepath.Join(into, "dcgm-exporter-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != "v1.2.3" || len(c.Templates) == 0 {
		t.Errorf("packed chart has metadata %+v and %d templates, want version 1.2.3 and some templates", c.Metadata,
			len(c.Templates))
	}
	// in the repository, these are symbolic links
	for _, name := range []string{
		"files/rules/alerts-gpu.yml", "files/rules/compat/opencost.yml", "files/dashboards/fleet.json",
		"files/default-counters.csv", "files/alertmanager.yml",
	} {
		if !slices.ContainsFunc(c.Files, func(f *chart.File) bool { return f.Name == name && len(f.Data) > 500 }) {
			t.Errorf("packed chart lacks %s", name)
		}
	}
	if err := run([]string{"chart", "../../deployment/chart", "vX", t.TempDir()}, nil, &bytes.Buffer{}); err == nil {
		t.Error("packing with an invalid version succeeded, want an error")
	}
}

func TestPackageEntry(t *testing.T) {
	c, err := packageComponent([]byte("Package: libc6\nArchitecture: arm64\nVersion: 2.36-9+deb12u14\nDescription: " +
		"GNU C Library\n Version: 9\n"))
	if err != nil || c.Name != "libc6" || c.PackageURL != "pkg:deb/debian/libc6@2.36-9+deb12u14?arch=arm64" {
		t.Errorf("packageComponent = %+v, %v; want libc6 with its package URL", c, err)
	}
	if _, err := packageComponent([]byte("Package: libc6\n")); err == nil {
		t.Error("an entry without a version was accepted, want an error")
	}
}

func TestProvenanceNamesEveryFileByItsDigest(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.tar.gz")
	folder.Write(t, file, "abc")
	var s statement
	text := runRelease(t, "", "provenance", "--version", "v0.1.0", "--revision", "0123", file)
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	// SHA-256 of "abc", from FIPS 180-2, appendix B.1
	const digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" ||
		len(s.Subject) != 1 || s.Subject[0].Name != "a.tar.gz" || s.Subject[0].Digest["sha256"] != digest {
		t.Errorf("statement has a wrong type or subject, want a.tar.gz with its digest: %s", text)
	}
	if d := s.Predicate.BuildDefinition.ResolvedDependencies; len(d) != 1 || d[0].Digest["gitCommit"] != "0123" {
		t.Errorf("statement has a wrong commit, want 0123: %s", text)
	}
}
