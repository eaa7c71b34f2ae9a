package cli

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

func TestPreflightGoldens(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		code, out, errOut := call("", "preflight", "--from", "../../docs/examples/before", "--version", "v26.7.0", "-o", format)
		if code != exitFindings || errOut != "" {
			t.Errorf("%s: exit %d, standard error %q; want 1 and none", format, code, errOut)
		}
		golden(t, filepath.Join("preflight", format), out)
	}
}

// Each fault prints one line on standard error. The exit code is 3 if the cluster cannot be reached, and 2 otherwise.
func TestPreflightFaults(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	refused := apiserver.Kubeconfig(t, "http://127.0.0.1:1")
	values := filepath.Join(folder.Of(t, map[string]string{"values.yaml": "driver:\n  enabled: [\n"}), "values.yaml")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no kubeconfig":    {nil, exitBadInput, "no kubeconfig at"},
		"unreachable":      {[]string{"--kubeconfig", refused}, exitNoAnswer, "connection refused"},
		"no such folder":   {[]string{"--from", "/nowhere/at/all"}, exitBadInput, "/nowhere/at/all"},
		"both":             {[]string{"--from", "testdata", "--kubeconfig", refused}, exitBadInput, "cannot be combined with --kubeconfig"},
		"no time":          {[]string{"--kubeconfig", refused, "--timeout", "0s"}, exitBadInput, "--timeout 0s"},
		"unknown release":  {[]string{"--kubeconfig", refused, "--version", "newest"}, exitBadInput, "unknown chart version"},
		"broken values":    {[]string{"--kubeconfig", refused, "-f", values}, exitBadInput, "values.yaml"},
		"unknown argument": {[]string{"gpu-1"}, exitBadInput, "expected no arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errOut := call("", append([]string{"preflight"}, c.args...)...)
			if code != c.code || out != "" || !strings.Contains(errOut, c.says) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("exit %d, want %d and one line with %q\n%s%s", code, c.code, c.says, out, errOut)
			}
		})
	}
}

// If the API server fails between two pages, the report contains what was read and a finding about the rest.
func TestServerThatDiesBetweenPages(t *testing.T) {
	var dead atomic.Bool
	s := &apiserver.Server{Before: func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") != "" {
			dead.Store(true)
		}
		if dead.Load() {
			panic(http.ErrAbortHandler)
		}
		return false
	}}
	s.Fleet(t, recorded, 100).Start(t) // the nodes fit in one page, and their pods in three
	code, out, errOut := call("", "preflight", "--kubeconfig", s.Kubeconfig(t))
	if code != exitFindings || errOut != "" || !strings.Contains(out, "warning: list pods") || !strings.Contains(out, "warning: list resourcequotas") || !strings.Contains(out, " passed") {
		t.Errorf("exit %d, want 1, passed checks and warnings about pods and resourcequotas\n%s%s", code, out, errOut)
	}
}
