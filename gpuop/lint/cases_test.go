package lint_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// TestCases lints the inputs in testdata/cases. A case begins with "== NAME", and its parts begin with "-- ". The first
// part is the input: a command or a file, with an optional release. It is followed by files that the input refers to,
// the findings and, in some cases, the corrected command. -update writes the findings and the corrected commands.
func TestCases(t *testing.T) {
	for _, file := range folder.Files(t, "testdata", "cases", "*.txt") {
		var all []string
		for want := range strings.SplitSeq(strings.TrimSuffix(folder.Read(t, file), "\n"), "\n== ") {
			name, _, _ := strings.Cut(strings.TrimPrefix(want, "== "), "\n")
			t.Run(name, func(t *testing.T) {
				got := lintCase(t, want)
				all = append(all, got)
				if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" && !*update {
					t.Errorf("%s (-want +got):\n%s", file, diff)
				}
			})
		}
		if *update {
			folder.Write(t, file, strings.Join(all, "\n== ")+"\n")
		}
	}
}

// lintCase lints the input of a case, and returns the case with the findings.
func lintCase(t *testing.T, text string) string {
	t.Helper()
	beside := map[string]string{}
	options := lint.Options{Read: func(_, name string) ([]byte, error) {
		if text, ok := beside[name]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	}}
	got, rest, _ := strings.Cut(text, "\n-- ")
	corrected := false
	for i, part := range strings.Split(rest, "\n-- ") {
		head, content, _ := strings.Cut(part, "\n")
		name, argument, _ := strings.Cut(head, " ")
		switch {
		case i == 0 && name == "command":
			options.Version, options.Command = argument, content+"\n"
		case i == 0:
			input := lint.Input{Name: name, Data: []byte(content + "\n"), Script: strings.HasSuffix(name, ".sh")}
			options.Version, options.Files = argument, []lint.Input{input}
		case name == "beside":
			beside[argument] = content + "\n"
		default:
			corrected = corrected || name == "corrected"
			continue
		}
		got += "\n-- " + part
	}
	result := judge(t, options)
	got += "\n-- findings"
	if result.Judged == 0 {
		got += ", nothing checked"
	}
	for _, line := range brief(result.Report) {
		got += "\n" + line
	}
	if corrected {
		got += "\n-- corrected\n" + strings.TrimSuffix(result.Corrected, "\n")
	}
	return got
}

// Objects with the name of a kind that lint uses for files are unknown objects.
func TestKindsOfObjects(t *testing.T) {
	for _, kind := range []string{"chart values", "device plugin config", "mig-parted config", "pod", "GitHub workflow",
		"values inside another tool's file", "umbrella chart values", "nvidia-device-plugin values"} {
		text := "object\n-- o.yaml\napiVersion: v1\nkind: " + kind + "\ndriver: {enabled: 1}\n"
		if got, want := lintCase(t, text), text+"\n-- findings, nothing checked"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
