package input_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
)

func TestScriptsAreReadAsTheShellReadsThem(t *testing.T) {
	type read struct {
		Words []string
		Stdin string
	}
	for _, tt := range []struct {
		name, text string
		want       []read
	}{
		{"continuation and quotes", "helm install \\\n  a 'b c' \"d\\\"e\" f\\ g", []read{{Words: []string{"helm", "install", "a", "b c", `d"e`, "f g"}}}},
		{"&& and ;", "helm repo update && kubectl get pods; kubectl version", []read{{Words: []string{"helm", "repo", "update"}}, {Words: []string{"kubectl", "get", "pods"}}, {Words: []string{"kubectl", "version"}}}},
		{"here-document in a pipe", "cat <<EOF | kubectl apply -f -\na: 1\nEOF\n", []read{{Words: []string{"cat"}, Stdin: "a: 1\n"}, {Words: []string{"kubectl", "apply", "-f", "-"}, Stdin: "a: 1\n"}}},
		{"subshell", "(cd x && helm list)", []read{{Words: []string{"cd", "x"}}, {Words: []string{"helm", "list"}}}},
		{"expansion", "helm install $NAME x", []read{{Words: []string{"helm", "install", "$NAME", "x"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := input.ParseScript(tt.text, 0)
			var got []read
			for _, c := range s.Commands {
				r := read{}
				for _, w := range c.Words {
					r.Words = append(r.Words, w.Value)
				}
				if c.Stdin != nil {
					r.Stdin = c.Stdin.Text
				}
				got = append(got, r)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(s.Findings) > 0 {
				t.Errorf("findings = %v, want none; commands (-want +got):\n%s", s.Findings, diff)
			}
		})
	}
	if s := input.ParseScript("helm install 'a", 0); len(s.Findings) != 1 || s.Findings[0].Check.ID != "shell-syntax" {
		t.Errorf("unterminated quote: findings = %v, want one of shell-syntax", s.Findings)
	}
	if s := input.ParseScript("cat <<EOF > /tmp/x\na: 1\nEOF\nhelm list", 0); s.Files["/tmp/x"].Text != "a: 1\n" || s.Files["/tmp/x"].Line != 1 {
		t.Errorf("files written by the script = %+v, want /tmp/x = \"a: 1\\n\" at line offset 1", s.Files)
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("a b'c")
	f.Add("$x `y` \\")
	f.Add("\x01")
	f.Add("\x06") // the mark of an escaped character
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsAny(s, "\x00\r") || s == "" || strings.ToValidUTF8(s, "") != s {
			return
		}
		script := input.ParseScript("helm "+input.Quote(s), 0)
		if len(script.Commands) != 1 || len(script.Commands[0].Words) != 2 || script.Commands[0].Words[1].Value != s {
			t.Errorf("%q quoted as %s is parsed as %+v, want one argument of helm", s, input.Quote(s), script.Commands)
		}
	})
}
