package completion_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/commandtest"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command/completion"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// says runs the subcommand.
func says(args ...string) (out, errs string, code int) {
	w := &commandtest.World{}
	code = completion.Command{Process: w.Process(args...)}.Run()
	return w.Out.String(), w.Err.String(), code
}

// prints returns the script of a shell.
func prints(t *testing.T, shell string) string {
	t.Helper()
	out, errs, code := says(shell)
	if code != command.OK || errs != "" {
		t.Fatalf("%s: code %d: %s", shell, code, errs)
	}
	return out
}

// tool skips the test where a program is not there.
func tool(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		material.Skip(t, name+"-absent", err)
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args     string
		code     int
		out, err string // parts
	}{
		{"--help", command.OK, "source <(dcgm-exporter completion bash)", ""},
		{"", command.Unable, "", "expected one shell, found 0 arguments; it is one of bash, zsh, fish"},
		{"bash zsh", command.Unable, "", "found 2 arguments"},
		{"bsh", command.Unable, "", `"bsh" is no shell that is known, did you mean "bash"?`},
		{"powershell", command.Unable, "", `"powershell" is no shell that is known; expected bash, zsh, fish`},
	} {
		out, errs, code := says(strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.err) || (tt.err == "") != (errs == "") || (tt.out == "") != (out == "") {
			t.Errorf("completion %s: code %d, %q, %q", tt.args, code, out, errs)
		}
	}
}

func TestBashCompletes(t *testing.T) {
	tool(t, "bash")
	script := filepath.Join(t.TempDir(), "completion.bash")
	if err := os.WriteFile(script, []byte(prints(t, "bash")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		words []string // the last one is being typed
		want  []string
	}{
		{[]string{"do"}, []string{"doctor"}},
		{[]string{"ver"}, []string{"version"}},
		{[]string{"completion", ""}, []string{"bash", "fish", "zsh"}},
		{[]string{"--sourc"}, []string{"--source"}},
		{[]string{"--source", ""}, []string{"auto", "dcgm", "nvml", "sim"}},
		{[]string{"--source", "=", "s"}, []string{"sim"}},
		{[]string{"--collectors", "/etc/pass"}, []string{"/etc/passwd", "/etc/passwd-"}},
		{[]string{"--collect-interval", ""}, nil},
		{[]string{"once", "--vocab"}, []string{"--vocabulary"}},
	} {
		line := `source "$1"; shift; COMP_WORDS=(dcgm-exporter "$@"); COMP_CWORD=$#; _dcgm_exporter; printf '%s\n' "${COMPREPLY[@]}"`
		out, err := exec.Command("bash", append([]string{"--norc", "-euc", line, "-", script}, tt.words...)...).CombinedOutput()
		got := strings.Fields(string(out))
		slices.Sort(got)
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%q completes to %q (%v), want %q", tt.words, got, err, tt.want)
		}
	}
}

func TestShellsTakeTheCompletions(t *testing.T) {
	for _, shell := range completion.Shells() {
		t.Run(shell, func(t *testing.T) {
			text := prints(t, shell)
			for _, s := range config.Settings() {
				if len(s.Flags) > 0 && !strings.Contains(text, strings.TrimLeft(s.Flags[0], "-")) {
					t.Errorf("%s is not completed", s.Flags[0])
				}
			}
			tool(t, shell)
			cmd := exec.Command(shell, "-n")
			cmd.Stdin = strings.NewReader(text)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s -n: %v\n%s", shell, err, out)
			}
		})
	}
}
