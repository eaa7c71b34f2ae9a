package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

// gatheredDrift returns the arguments for a cluster in the testdata of package drift, and for the values that were
// installed. The cluster is the output of kubectl get -o yaml --show-managed-fields.
func gatheredDrift(name string) []string {
	dir := filepath.Join("..", "drift", "testdata")
	return []string{"drift", "--from", filepath.Join(dir, name+".yaml"), "-f", filepath.Join(dir, "values.yaml")}
}

func TestDrift(t *testing.T) {
	var got strings.Builder
	got.WriteString(transcript("", append(gatheredDrift("healthy"), "-v")...))
	got.WriteString(transcript("", gatheredDrift("edited")...))
	got.WriteString(transcript("", append(gatheredDrift("upgraded"), "-o", "json")...))
	got.WriteString(transcript("driver: {version: 1}\n", "drift", "--from", filepath.Join("..", "drift", "testdata", "healthy.yaml"), "-f", "-", "--set", "mig.strategy=mixed"))
	golden(t, "drift.txt", got.String())
}

func TestDriftRefuses(t *testing.T) {
	from := filepath.Join("..", "drift", "testdata", "healthy.yaml")
	for _, c := range []struct {
		stdin string
		args  []string
		code  int
		says  string
	}{
		{"a: b: c\n", []string{"drift", "--from", from, "-f", "-"}, 2, "stdin: not YAML"},
		{"a: 1\na: 2\n", []string{"drift", "--from", from, "-f", "-"}, 2, "stdin:2"},
		{"- a\n", []string{"drift", "--from", from, "-f", "-"}, 2, "stdin"},
		{"", []string{"drift", "--from", from, "-f", "no-such.yaml"}, 2, "no-such.yaml"},
		{"", []string{"drift", "--from", from, "--set", "a"}, 2, `"a" has no value`},
		{"", []string{"drift", "--from", "no-such-folder"}, 2, "no-such-folder"},
		{"", []string{"drift", "x"}, 2, "x"},
		{"", []string{"drift", "--kubeconfig", apiserver.Kubeconfig(t, "https://127.0.0.1:1")}, 3, "cannot reach"},
	} {
		code, out, errOut := call(c.stdin, c.args...)
		if code != c.code || !strings.Contains(errOut, c.says) || out != "" || strings.Count(errOut, "\n") != 1 {
			t.Errorf("%q: exit %d, want %d; standard error %q, want one line with %q; output %q, want none", c.args, code, c.code, errOut, c.says, out)
		}
	}
}
