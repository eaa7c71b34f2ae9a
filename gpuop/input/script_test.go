package input_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/input"
)

func TestScriptsAreReadAsTheShellReadsThem(t *testing.T) {
	for text, want := range map[string][]string{
		"helm install \\\n  a 'b c' \"d\\\"e\" f\\ g":           {`helm|install|a|b c|d"e|f g`}, // continuation and quotes
		"helm repo update && kubectl get pods; kubectl version": {"helm|repo|update", "kubectl|get|pods", "kubectl|version"},
		"cat <<EOF | kubectl apply -f -\na: 1\nEOF\n":           {"cat < a: 1\n", "kubectl|apply|-f|- < a: 1\n"},
		"cat <<EOF | envsubst | helm list\na: 1\nEOF\n":         {"cat < a: 1\n", "envsubst < a: 1\n", "helm|list < a: 1\n"},
		"(cd x && helm list)":                                   {"cd|x", "helm|list"},
		"helm install $NAME x":                                  {"helm|install|$NAME|x"},
	} {
		s := input.ParseScript(text, 0)
		var got []string
		for _, c := range s.Commands {
			var words []string
			for _, w := range c.Words {
				words = append(words, w.Value)
			}
			command := strings.Join(words, "|")
			if c.Stdin != nil {
				command += " < " + c.Stdin.Text
			}
			got = append(got, command)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(s.Findings) > 0 {
			t.Errorf("%s: findings = %v, want none; commands (-want +got):\n%s", text, s.Findings, diff)
		}
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
