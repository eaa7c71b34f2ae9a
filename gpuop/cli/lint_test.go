package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

func TestJSONAndSARIFAreValid(t *testing.T) {
	args := []string{"lint", "--command", "-", "-o"}
	for _, format := range []string{"json", "sarif"} {
		code, out, _ := call(folder.Read(t, example("install.sh")), append(args, format)...)
		var v map[string]any
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != 1 {
			t.Errorf("-o %s: exit %d, error %v; want 1 and valid JSON\n%s", format, code, err, out)
		}
		if format == "json" {
			findings, _ := v["findings"].([]any)
			first, _ := findings[0].(map[string]any)
			for _, field := range []string{"id", "severity", "line", "reason", "fix", "source"} {
				if first[field] == nil {
					t.Errorf("finding lacks %s: %v", field, first)
				}
			}
		}
	}
}

func TestColorOnlyOnATerminal(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var out, errOut bytes.Buffer
		Run(context.Background(), []string{"gpuop", "lint", "--command", "helm template g nvidia/gpu-operator --set drivr=1"}, "v0", Streams{In: strings.NewReader(""), Out: &out, Err: &errOut, Terminal: terminal})
		if got := strings.Contains(out.String(), "\x1b["); got != terminal {
			t.Errorf("terminal %t: color = %t, want %t", terminal, got, terminal)
		}
	}
	path := filepath.Join(t.TempDir(), "out")
	var out, errOut bytes.Buffer
	Run(context.Background(), []string{"gpuop", "lint", "--command", "helm template g nvidia/gpu-operator --set drivr=1", "--out", path}, "v0", Streams{In: strings.NewReader(""), Out: &out, Err: &errOut, Terminal: true})
	if written := folder.Read(t, path); strings.Contains(written, "\x1b[") || !strings.Contains(written, "drivr") || out.Len() > 0 {
		t.Errorf("--out: file = %q, want the finding without color; standard output = %q, want none", written, out.String())
	}
	// the file may contain the script's secrets
	if info, err := os.Stat(path); err != nil {
		t.Error(err)
	} else if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("--out: mode %v, want 0600", got)
	}
}

func TestKubectlPlugin(t *testing.T) {
	var out bytes.Buffer
	code := Run(context.Background(), []string{"/usr/local/bin/kubectl-gpuop", "lint", "--help"}, "v0", Streams{In: strings.NewReader(""), Out: &out, Err: &out})
	if code != 0 || !strings.Contains(out.String(), "kubectl gpuop lint") {
		t.Errorf("exit %d, want 0 and help that names kubectl gpuop lint\n%s", code, out.String())
	}
}

func TestLintOfGeneratedValues(t *testing.T) {
	path := filepath.Join(t.TempDir(), "values.yaml")
	if code, _, errOut := call("", "values", "gen", "rke2", "mig-mixed", "gds", "--out", path); code != 0 {
		t.Fatalf("values gen: exit %d, want 0: %s", code, errOut)
	}
	if code, out, _ := call("", "lint", path); code != 0 || !strings.Contains(out, "no findings") {
		t.Errorf("lint of the values: exit %d, want 0 and no findings\n%s", code, out)
	}
	if text := folder.Read(t, path); !strings.Contains(text, "--values "+path) {
		t.Errorf("helm command at the top lacks --values %s:\n%s", path, text)
	}
}

// An input in which nothing can be checked is an error only if no other input was checked.
func TestInputsWithNothingToCheck(t *testing.T) {
	const foreign = "apiVersion: v1\nkind: Service\nmetadata: {name: x}\n"
	dir := folder.Of(t, map[string]string{
		"clean.yaml": "mig: {strategy: mixed}\n", "wrong.yaml": "drivr: {enabled: false}\n", "service.yaml": foreign,
		"unknown.yaml": "some: {thing: else}\n", "empty.yaml": "# nothing\n", "other.sh": "ls -l\n",
		"mixed/clean.yaml": "mig: {strategy: mixed}\ntoolkit: {enabled: true}\n", "mixed/service.yaml": foreign,
	})
	at := func(name string) string { return filepath.Join(dir, name) }
	clean, wrong, service := at("clean.yaml"), at("wrong.yaml"), at("service.yaml")
	unknown, empty, script := at("unknown.yaml"), at("empty.yaml"), at("other.sh")
	for _, tt := range []struct {
		name  string
		args  []string
		want  int
		names []string
	}{
		{"alone", []string{service}, 2, []string{service}},
		{"alone, with --fail-on never", []string{service, "--fail-on", "never"}, 2, []string{service}},
		{"after a clean one", []string{clean, service}, 0, []string{service}},
		{"before a clean one", []string{service, clean}, 0, []string{service}},
		{"unknown kind", []string{clean, unknown}, 0, []string{unknown}},
		{"empty", []string{clean, empty}, 0, []string{empty}},
		{"a script", []string{clean, script}, 0, []string{script}},
		{"a script to correct", []string{"--fix", script}, 2, []string{script}},
		{"a command", []string{clean, "--command", "ls -l"}, 0, []string{"command"}},
		{"two", []string{unknown, clean, service}, 0, []string{unknown, service}},
		{"with --fail-on never", []string{clean, service, "--fail-on", "never"}, 0, []string{service}},
		{"after a file with an error", []string{wrong, service}, 1, []string{service}},
		{"folder with one relevant file", []string{at("mixed")}, 0, nil},
		{"none", []string{clean}, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := call("", append([]string{"lint"}, tt.args...)...)
			if code != tt.want {
				t.Errorf("exit %d, want %d\n%s%s", code, tt.want, out, errOut)
			}
			for _, name := range tt.names {
				if !strings.Contains(errOut, "skipped") && !strings.Contains(errOut, "nothing to check") || !strings.Contains(errOut, name) {
					t.Errorf("standard error = %q, want a note that %s was skipped", errOut, name)
				}
			}
			if tt.names == nil && errOut != "" {
				t.Errorf("standard error = %q, want none", errOut)
			}
		})
	}
}

// The subcommand lint checks all scripts, values and templates in a folder, and skips the files of other programs. The
// kind of a template is given by the extension before its last, such as .yaml in values.yaml.j2. --fix rejects a folder
// with two scripts.
func TestFolder(t *testing.T) {
	const install = "helm install gpu-operator nvidia/gpu-operator -n gpu-operator --version v26.7.0 --set "
	dir := folder.Of(t, map[string]string{
		"a.sh":                   install + "drivr.enabled=false\n",
		"b.sh":                   "kubectl -n gpu-operator label node n nvidia.com/mig.confg=all-1g.10gb --overwrite\n",
		"Chart.yaml":             "apiVersion: v2\nname: a\nversion: 1.0.0\n",
		"tasks.yaml":             "- name: a\n",
		"values.yaml":            "toolkit:\n  enabled: false\n",
		"b.json":                 `{"mig": {"strategy": "mixd"}, "migManager": {"enabled": true}}`,
		"c.txt":                  "drivr: 1\n",
		"sub/values.yaml.gotmpl": "toolkit:\n  enabled: {{ .Values.toolkit }}\ndcgm: {enabled: true}\ngfdd: {}\n",
		"sub/values.yml.j2":      "migManager: {enabled: true}\n{% if gpus %}\ntoolkit: {enabled: false}\n{% endif %}\n",
		"install.sh.tpl":         install + "cdii.enabled=${cdi}\n",
		"policy.json.tftpl":      "{\"a\": [%{ for x in y }\"${x}\",%{ endfor }]}\n",
		"_helpers.tpl":           "{{- define \"x\" }}\n",
		"templates/pod.yaml":     "{{- if .Values.nvidia }}\na: b\n{{- end }}\n",
		"notes.md.j2":            "# {{ title }}\n",
	})
	code, out, errOut := call("", "lint", dir)
	for _, want := range []string{"a.sh", "drivr", "b.sh", "nvidia.com/mig.confg", "mixd", "gfdd", "cdii", "5 errors"} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q:\n%s", want, out)
		}
	}
	if code != 1 || errOut != "" || regexp.MustCompile(`_helpers|pod\.yaml|notes\.md`).MatchString(out) {
		t.Errorf("exit %d, stderr %q; want exit 1, empty stderr, and no mention of _helpers, pod.yaml or notes.md\n%s", code, errOut, out)
	}
	if code, _, stderr := call("", "lint", "--fix", dir); code != 2 || !strings.Contains(stderr, "one script at a time") {
		t.Errorf("--fix: exit %d, standard error %q; want 2 and \"one script at a time\"", code, stderr)
	}
	if code, _, stderr := call("", "lint", filepath.Join(dir, "Chart.yaml")); code != 2 {
		t.Errorf("lint Chart.yaml: exit %d, want 2: %s", code, stderr)
	}
}

// A file that cannot be read yields one finding, and the other files are checked. The first file is a symbolic link to
// itself, and the second is too large.
func TestInputsThatCannotBeRead(t *testing.T) {
	dir := folder.Of(t, map[string]string{
		"a.yaml":     "drivr: {enabled: false}\ntoolkit: {enabled: true}\ndcgm: {enabled: true}\n",
		"large.yaml": strings.Repeat("#", maxInput+1),
	})
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Symlink(path("loop"), path("loop")); err != nil {
		t.Fatal(err)
	}
	code, out, errOut := call("", "lint", path("loop"), path("large.yaml"), path("a.yaml"))
	for _, want := range []string{"too many levels of symbolic links", "more than 8 MiB", "drivr"} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("output lacks %q:\n%s%s", want, out, errOut)
		}
	}
	if code != exitFindings {
		t.Errorf("exit %d, want 1", code)
	}
	// in a folder, a file that is too large is only a note
	if code, out, _ := call("", "lint", "--fail-on", "note", "-o", "json", dir); code != exitFindings || !strings.Contains(out, "drivr") || strings.Count(out, `"not-read"`) != 1 {
		t.Errorf("folder: exit %d, want 1, drivr and one finding not-read\n%s", code, out)
	}
	for stdin, name := range map[string]string{"": path("large.yaml"), strings.Repeat("#", maxInput+1): "-"} {
		if code, out, _ := call(stdin, "lint", name); code != exitBadInput || !strings.Contains(out, "too large") {
			t.Errorf("lint %s: exit %d, want 2 and a finding that it is too large\n%s", name, code, out)
		}
	}
}

// lint does not print files outside the input's folder, even if the input refers to them. It does not print secrets in
// the input either.
func TestLintPrintsNoOtherFiles(t *testing.T) {
	const secret = "s3cretValueOfSomeone"
	top := folder.Of(t, map[string]string{"outside": secret + "\n", "repository/own": secret})
	outside, dir := filepath.Join(top, "outside"), filepath.Join(top, "repository")
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	const install = "helm install -n gpu-operator gpu-operator nvidia/gpu-operator --version v26.7.0 "
	for name, text := range map[string]string{
		"above.sh":     install + "-f ../outside",
		"absolute.sh":  install + "-f " + outside,
		"link.sh":      install + "-f link",
		"setfile.sh":   install + "--set-file toolkit.enabled=../outside",
		"own.sh":       install + "-f own",
		"above.tf":     "resource \"helm_release\" \"g\" {\n  name = \"g\"\n  chart = \"gpu-operator\"\n  repository = \"https://helm.ngc.nvidia.com/nvidia\"\n  values = [file(\"../outside\")]\n}\n",
		"sensitive.tf": "resource \"helm_release\" \"g\" {\n  name = \"g\"\n  chart = \"gpu-operator\"\n  repository = \"https://helm.ngc.nvidia.com/nvidia\"\n  set_sensitive {\n    name = \"toolkit.enabled\"\n    value = \"" + secret + "\"\n  }\n}\n",
		"pair.sh":      install + "--set toolkit.env[0].name=API_TOKEN --set toolkit.env[0].value=" + secret + " --set toolkit.enabled=" + secret,
		"export.sh":    "export NGC_API_KEY=" + secret + "\nhelm repo add nvidia https://u:" + secret + "@helm.example.com --password " + secret + "\n" + install + "--set drivr.enabled=$NGC_API_KEY --set toolkit.enabled=$NGC_API_KEY --kube-token " + secret,
	} {
		path := filepath.Join(dir, name)
		folder.Write(t, path, text)
		for _, format := range []string{"text", "json", "sarif"} {
			for _, extra := range [][]string{nil, {"--fix"}} {
				if extra != nil && !strings.HasSuffix(name, ".sh") {
					continue
				}
				_, out, errOut := call("", append([]string{"lint", "-o", format, path}, extra...)...)
				if strings.Contains(out+errOut, secret) {
					t.Errorf("%s %s %v: output contains the secret:\n%s%s", name, format, extra, out, errOut)
				}
			}
		}
	}
	if _, out, _ := call("", "lint", filepath.Join(dir, "own.sh")); !strings.Contains(out, "found a string") {
		t.Errorf("output lacks a finding about the values file \"own\":\n%s", out)
	}
}

// An interrupted command ends even if it is blocked by a read from a pipe.
func TestInterruptedCommandEnds(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	pipe := filepath.Join(t.TempDir(), "pipe.yaml") // nothing writes to the pipe
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"-", pipe} {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		begun := time.Now()
		code := Run(ctx, []string{"gpuop", "lint", name}, "v0", Streams{In: in, Out: io.Discard, Err: io.Discard})
		if took := time.Since(begun); code != exitBadInput || took > 2*time.Second {
			t.Errorf("lint %s: exit %d after %s, want 2 within 2s", name, code, took)
		}
	}
}

// lint ends on inputs that expand or nest deeply, and on a large script. If its work is not bounded, the test times
// out.
func TestLintIsBounded(t *testing.T) {
	const install = "helm install -n gpu-operator g nvidia/gpu-operator --version v26.7.0 "
	for name, text := range map[string]string{
		"a variable that doubles": "A=aaaaaaaaaaaaaaaa\n" + strings.Repeat("A=\"$A$A\"\n", 40) + install + "--set a=$A",
		"brackets":                strings.Repeat("(", 200_000) + install,
		"substitutions":           strings.Repeat("$(", 200_000) + install,
		"conditions":              strings.Repeat("if ", 200_000) + install,
		"a large script":          install + "\n" + strings.Repeat("# a comment\n", 100_000),
	} {
		if code, out, _ := call(text, "lint", "-c", "-"); code == exitClean && name != "a variable that doubles" && name != "a large script" {
			t.Errorf("%s: exit 0, want findings: %s", name, out)
		}
	}
}

// BenchmarkLintFlags lints commands with many flags. The time should grow in proportion to their number.
func BenchmarkLintFlags(b *testing.B) {
	for _, n := range []int{500, 5000} {
		for name, flag := range map[string]string{
			"unknown": " --set foo.bar%d=1", "repeated": " --set driver.enabled=true%.0d", "elements": " --set toolkit.env[%d].name=a",
		} {
			var text strings.Builder
			text.WriteString("helm install g nvidia/gpu-operator -n gpu-operator --version v26.7.0")
			for i := range n {
				fmt.Fprintf(&text, flag, i)
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					if code, _, errOut := call(text.String(), "lint", "-c", "-"); code == exitBadInput {
						b.Fatal(errOut)
					}
				}
			})
		}
	}
}

// BenchmarkLintFolder lints a folder with 1,000 copies of published files.
func BenchmarkLintFolder(b *testing.B) {
	published, dir := material.Path(b, "data/published-inputs"), b.TempDir()
	entries, err := os.ReadDir(published)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 1000 {
		name := entries[i%len(entries)].Name()
		text := folder.Read(b, filepath.Join(published, name))
		folder.Write(b, filepath.Join(dir, fmt.Sprintf("%d-%s", i, strings.TrimSuffix(name, ".md"))), text)
	}
	for b.Loop() {
		if code, out, _ := call("", "lint", dir); code != exitFindings || !strings.Contains(out, "errors") {
			b.Fatalf("exit %d\n%.2000s", code, out)
		}
	}
	b.ReportMetric(1000*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}
