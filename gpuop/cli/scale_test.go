package cli

import (
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
)

const recorded = "../judge/testdata/healthy"

// Each kind in a large cluster is listed only once, in pages. BenchmarkCluster measures the time and memory.
func TestLargeClusterIsListedOnceInPages(t *testing.T) {
	const nodes = 600
	for _, command := range []string{"preflight", "verify"} {
		t.Run(command, func(t *testing.T) {
			s := (&apiserver.Server{}).Fleet(t, recorded, nodes).Start(t)
			code, out, errOut := call("", command, "--kubeconfig", s.Kubeconfig(t), "--fail-on", "never")
			if code != 0 || !strings.Contains(out, " passed") {
				t.Fatalf("exit %d, want 0 and passed checks\n%s%s", code, out, errOut)
			}
			lists, pages := s.Lists()
			for path, n := range lists {
				if n != 1 {
					t.Errorf("%s was listed %d times, want once", path, n)
				}
			}
			if got := pages["/api/v1/nodes"]; got != 2 {
				t.Errorf("pages of nodes = %d, want 2", got)
			}
			if got, want := pages["/api/v1/pods"], (s.Count["/api/v1/pods"]+499)/500; got != want {
				t.Errorf("pages of pods = %d, want %d", got, want)
			}
			for _, r := range s.Requests() {
				if r != "GET /version" && !strings.Contains(r, "limit=500") {
					t.Errorf("request %s lacks limit=500", r)
				}
			}
		})
	}
}
