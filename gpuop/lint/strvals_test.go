package lint

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

func TestSetsThatCannotBeRead(t *testing.T) {
	for _, bad := range []string{"a", "a,b=c", "=x", "a..b=c", "a[x]=1", "a[=1", `a\`, ".=1"} {
		if _, err := parseSet(bad, true); !errors.Is(err, errSet) {
			t.Errorf("%q: %v, want errSet", bad, err)
		}
	}
}

func FuzzSet(f *testing.F) {
	f.Add("a.b", "c")
	f.Add(`example.com/x`, `{1,2}`)
	f.Add(`a\,b`, `x,y\`)
	f.Fuzz(func(t *testing.T, names, value string) {
		path := chart.Path(strings.Split(names, " "))
		if slices.Contains(path, "") || !utf8.ValidString(names) || !utf8.ValidString(value) { // Helm reads runes, and YAML has no others
			return
		}
		text := formatSet(path, value)
		got, err := parseSet(text, false)
		if err != nil || len(got) != 1 {
			t.Fatalf("%q of %q=%q: %d assignments, %v", text, path, value, len(got), err)
		}
		if diff := cmp.Diff(path, got[0].path); diff != "" || got[0].value != value || got[0].element != "" {
			t.Errorf("%q: value %q, element %q, path:\n%s", text, got[0].value, got[0].element, diff)
		}
	})
}

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
		{"prompt, and then, list", "$ helm repo update && kubectl get pods; kubectl version", []read{{Words: []string{"helm", "repo", "update"}}, {Words: []string{"kubectl", "get", "pods"}}, {Words: []string{"kubectl", "version"}}}},
		{"pipe of a here-document", "cat <<EOF | kubectl apply -f -\na: 1\nEOF\n", []read{{Words: []string{"cat"}, Stdin: "a: 1\n"}, {Words: []string{"kubectl", "apply", "-f", "-"}, Stdin: "a: 1\n"}}},
		{"subshell", "(cd x && helm list)", []read{{Words: []string{"cd", "x"}}, {Words: []string{"helm", "list"}}}},
		{"expansion", "helm install $NAME x", []read{{Words: []string{"helm", "install", "$NAME", "x"}}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := parseScript(tt.text)
			var got []read
			for _, c := range s.commands {
				r := read{}
				for _, w := range c.words {
					r.Words = append(r.Words, w.value)
				}
				if c.stdin != nil {
					r.Stdin = c.stdin.text
				}
				got = append(got, r)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || len(s.findings) > 0 {
				t.Errorf("findings %v (-want +got):\n%s", s.findings, diff)
			}
		})
	}
	if s := parseScript("helm install 'a"); len(s.findings) != 1 || s.findings[0].ID != "shell-syntax" {
		t.Errorf("an open quote: %v", s.findings)
	}
	if s := parseScript("cat <<EOF > /tmp/x\na: 1\nEOF\nhelm list"); s.files["/tmp/x"].text != "a: 1\n" || s.files["/tmp/x"].line != 1 {
		t.Errorf("a file written by the script: %+v", s.files)
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("a b'c")
	f.Add("$x `y` \\")
	f.Add("\x01") // as placeholders are masked
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsAny(s, "\x00\r") || s == "" || strings.ToValidUTF8(s, "") != s {
			return
		}
		script := parseScript("helm " + quote(s))
		if len(script.commands) != 1 || len(script.commands[0].words) != 2 || script.commands[0].words[1].value != s {
			t.Errorf("%q as %s is not one word: %+v", s, quote(s), script.commands)
		}
	})
}
