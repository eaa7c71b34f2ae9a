package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/apiserver"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// Calls that cannot work print nothing but one line on standard error. The exit code is 3 if the cluster cannot be
// reached, and 2 otherwise.
func TestRefusals(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	dir := folder.Of(t, map[string]string{"values.yaml": "driver:\n  enabled: [\n", "file": ""})
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	const values, example, node = "mig: {strategy: mixed}\n", "../drift/testdata/healthy.yaml", " -f testdata/input/timeslicing.yaml"
	for _, c := range []struct {
		stdin, args string
		code        int
		says        string
	}{
		{"", "verify --from DIR/gone", 2, "no such file"},
		{"", "verify --from DIR/empty", 2, "contains no Kubernetes objects"},
		{"", "verify --from " + gathered + " --wait", 2, "--wait cannot be combined with --from"},
		{"", "verify --wait --wait-timeout 0s", 2, "must be greater than 0"},
		{"", "verify gpu-1", 2, "expected no arguments"},
		{"", "verify --kubeconfig DIR/gone", 2, "gone"},
		{"", "verify --kubeconfig SERVER", 3, "cannot reach the cluster"},
		{"", "verify --wait --kubeconfig SERVER", 3, "cannot reach the cluster"},
		{"", "preflight", 2, "no kubeconfig at"},
		{"", "preflight --kubeconfig SERVER", 3, "connection refused"},
		{"", "preflight --from /nowhere/at/all", 2, "/nowhere/at/all"},
		{"", "preflight --from testdata --kubeconfig SERVER", 2, "cannot be combined with --kubeconfig"},
		{"", "preflight --kubeconfig SERVER --timeout 0s", 2, "--timeout 0s"},
		{"", "preflight --kubeconfig SERVER --version newest", 2, "unknown chart version"},
		{"", "preflight --kubeconfig SERVER -f DIR/values.yaml", 2, "values.yaml"},
		{"", "preflight gpu-1", 2, "expected no arguments"},
		{"a: b: c\n", "drift -f - --from " + example, 2, "stdin: not YAML"},
		{"a: 1\na: 2\n", "drift -f - --from " + example, 2, "stdin:2"},
		{"- a\n", "drift -f - --from " + example, 2, "stdin"},
		{"", "drift -f no-such.yaml --from " + example, 2, "no-such.yaml"},
		{"", "drift --set a --from " + example, 2, `"a" has no value`},
		{"", "drift --from no-such-folder", 2, "no-such-folder"},
		{"", "drift x", 2, "expected no arguments"},
		{"", "drift --kubeconfig SERVER", 3, "cannot reach"},
		{"", "node --root DIR/missing", 2, "no such file"},
		{"", "node --root DIR/file", 2, "is not a folder"},
		{"", "node --root DIR/empty", 2, "has none of the folders"},
		{"", "node gpu-1", 2, "expected no arguments"},
		{"", "node predict --gpu T4", 2, "with --config"},
		{"", "node predict" + node, 2, "--gpu MODEL"},
		{"", "node predict --gpu A100" + node, 2, "A100-40GB"},
		{"", "node predict --gpu T4 --gpus 0" + node, 2, "1 to 256"},
		{"", "node predict --gpu T4 --strategy mix" + node, 2, "none, single or mixed"},
		{"", "node predict --gpu T4 -f nowhere.yaml", 2, "no such file"},
		{"", "node predict --node testdata/input/mig.yaml" + node, 2, "kubectl get node"},
		{"", "node predict --gpu A100-40GB --config all-1g.6gb", 2, "did you mean all-1g.5gb?"},
		{"", "node predict --gpu T4 --config all-1g.6gb", 2, "GPU does not support MIG: Tesla-T4"},
		{"", "node predict --gpu T4 gpu-1", 2, "expected no arguments"},
		{"", "share predict -f x.yaml --gpu T4 --default x", 2, "replaced by gpuop node predict"},
		{"", "mig predict --gpu A100-40GB --gpus 8 --config all-1g.5gb", 2, "replaced by gpuop node predict"},
		{"", "mig fit 1g.5gb", 2, `"gpu" not set`},
		{"", "mig fit --gpu A100-40GB", 2, "no profile given"},
		{"", "mig fit --gpu A100-40GB 1c.3g.20gb", 2, "expected a MIG profile"},
		{"", "mig fit --gpu H10O-80GB 1g.10gb", 2, "did you mean H100-80GB?"},
		{"", "mig foo", 2, `unknown command "foo"`},
		{"", "mig apply gpu-1", 2, "a node and the name of a MIG config"},
		{"", "mig apply gpu-1 all-1g.10gb --force", 2, "--force needs --apply"},
		{"", "mig apply gpu-1 all-1g.10gb --apply --from " + example, 2, "cannot be combined with --from"},
		{values, "values migrate - --from v26.7 --to v26.3.3", 2, "--downgrade"},
		{values, "values migrate - --from v25.3 --to v26.11.0", 2, `"v26.11.0": the nearest release is v26.7.0; add yours with --chart`},
		{"", "values gen generic --version v25.4", 2, `--version: unknown chart version "v25.4"`},
		{"", "values gen generic vgpu --registry registry.example.com/vgpu", 2, "vgpu=version"},
		{"", "images --version v25.4.0", 2, "--chart"},
		{"", "explain XID 999", 2, "XID 999"},
		{values, "lint - --ignore unknwn-key", 2, "did you mean unknown-key?"},
		{"", "lint DIR/empty", 2, "no .yaml"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.NewReplacer("DIR", dir, "SERVER", apiserver.Kubeconfig(t, "http://127.0.0.1:1")).Replace(c.args)
			code, out, errOut := call(c.stdin, strings.Fields(args)...)
			if code != c.code || out != "" || !strings.Contains(errOut, c.says) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("exit %d, output %q, standard error %q; want %d and one line with %q", code, out, errOut, c.code, c.says)
			}
		})
	}
}
