package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// call runs gpuop in this process.
func call(stdin string, args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = Run(context.Background(), append([]string{"gpuop"}, args...), "v0.0.0-test", Streams{In: strings.NewReader(stdin), Out: &o, Err: &e})
	return code, o.String(), e.String()
}

// golden compares a transcript with the file testdata/name. With -update, it writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		t.Fatalf("%s is missing: run the test with -update, then review the file", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// transcript returns what a terminal would show for a call. Standard input is a values file.
func transcript(args ...string) string {
	code, out, errOut := call("driver: {version: 1}\n", args...)
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = a
		if strings.ContainsAny(a, " '\"") || a == "" {
			quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	text := fmt.Sprintf("$ gpuop %s\n%s", strings.Join(quoted, " "), out)
	if errOut != "" {
		text += "[standard error]\n" + errOut
	}
	return text + fmt.Sprintf("[exit %d]\n\n", code)
}

func example(name string) string { return filepath.Join("..", "..", "docs", "examples", name) }

func content(t testing.TB, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The files in testdata show what calls of gpuop print. lint-install.txt shows how a new user corrects an article's
// command step by step; CORRECTED is the command that lint --fix prints for it.
func TestTranscripts(t *testing.T) {
	_, corrected, _ := call("", "lint", "--fix", "--version", "latest", "--command", content(t, example("install.sh")))
	for name, calls := range map[string][]string{
		"lint-install.txt": {
			"lint EXAMPLES/install.sh",
			"lint --fix EXAMPLES/install.sh",
			"lint --version latest EXAMPLES/install.sh",
			"lint --fix --version latest EXAMPLES/install.sh",
			"lint --command CORRECTED",
		},
		"lint-other.txt": {
			"lint EXAMPLES/pods.yaml",
			`lint --command "helm template g nvidia/gpu-operator --set drivr.enabled=false --set mig.stratgey=mixed"`,
			`lint --command "helm template g nvidia/gpu-operator --set cdi.default=true" --version v26.7`,
			"lint INPUT/timeslicing.yaml INPUT/mig.yaml",
			"lint INPUT/copied.yaml",
			`lint --command "helm template g nvidia/gpu-operator --set dcgm.version=4.5.0" --fail-on warning`,
			`lint --command "helm template g nvidia/gpu-operator --set drivr=1" --fail-on never`,
		},
		"usage.txt": {
			"",
			"lint",
			"lint no-such-file.yaml",
			"lint --versoin v1",
			`lint --command "helm template g nvidia/gpu-operator --set a=b" --version v99`,
			"lint --fix INPUT/mig.yaml",
			`lint --command "helm template g nvidia/gpu-operator --set a=b" -o xml`,
			`lint --command "helm template g nvidia/gpu-operator --set a=b" --fail-on fatal`,
			"values gen",
			"values gen ekz",
			"values gen eks gds",
			"values migrate x.yaml",
			"images --os windows",
			"lnit",
		},
		"values.txt": {
			"values gen eks time-slicing=4 exporter --exporter-image ghcr.io/gpu-telemetry/dcgm-exporter:1.0.0",
			"values gen air-gapped --registry registry.example.com:5000/mirror --pull-secret registry-key",
			"values gen openshift -o json",
			"explain operator.defaultRuntime",
			"explain driver.upgradePolicy",
			"values migrate EXAMPLES/values-v23.9.yaml --from v23.9",
			"values migrate - --from v26.7 --to v26.3.3 --downgrade",
			"values gen generic vgpu=580.105.08 --registry registry.example.com/vgpu --pull-secret key",
		},
		"images.txt": {
			"images --os ubuntu24.04 --long",
			"images EXAMPLES/values-v23.9.yaml --version v23.9 --os rhel8.9",
			"images --os ubuntu24.04 --set driver.nvidiaDriverCRD.enabled=true",
		},
		"drift.txt": {
			"drift --from DRIFT/healthy.yaml -f DRIFT/values.yaml -v",
			"drift --from DRIFT/edited.yaml -f DRIFT/values.yaml",
			"drift --from DRIFT/upgraded.yaml -f DRIFT/values.yaml -o json",
			"drift --from DRIFT/healthy.yaml -f - --set mig.strategy=mixed",
		},
		"preflight.txt": {
			"preflight --from EXAMPLES/before --version v26.7.0",
			"preflight --from EXAMPLES/before --version v26.7.0 -o json",
		},
		"verify.golden": {
			"verify --from EXAMPLES/must-gather",
			"verify --from EXAMPLES/must-gather --fail-on never",
			"verify --from EXAMPLES/must-gather -o json",
			"verify --from ../judge/testdata/healthy -v",
		},
		"explain.txt": {
			"explain nvidia.com/gpu.deploy.driver=true", "explain paused-for-mig-change",
			"explain UnexpectedAdmissionError", "explain psp.enabled", "explain 1g.10gb",
			"explain NVIDIA-A100-SXM4-80GB-SHARED", "explain device plugin", "explain UnexpectedAdmissonError",
			"explain drivr.enabled", "explain mig.stratgey", "explain qqqqqqqqq", "explain",
			"explain unknown-key dead-setting", "explain nvidia.com/mig.config.state -o json",
		},
		"mig-profiles.txt": {
			"mig profiles", "mig profiles A100-40GB", "mig profiles RTX-PRO-6000", "mig profiles A100",
		},
		"mig-fit.txt": {
			"mig fit --gpu H100-80GB 3g.40gb 2g.20gb 1g.10gb=2",
			"mig fit --gpu A100-40GB 3g.20gb=2 1g.5gb=1",
			"mig fit --gpu A100-40GB 2g.10gb=3 1g.5gb=1",
			"mig fit --gpu A100-80GB 1g.5gb=7",
			"mig fit --gpu RTX-PRO-6000 1g.24gb+me.all 1g.24gb-me=3",
			"mig fit --gpu A30 7g.80gb",
		},
		"node-predict.txt": {
			"node predict -f INPUT/timeslicing.yaml --gpu A100-80GB --gpus 8",
			"node predict -f INPUT/two-configs.yaml --node INPUT/node.json",
			"node predict -f INPUT/two-configs.yaml --gpu T4",
			"node predict -f INPUT/two-configs.yaml --gpu T4 --config infr",
			"node predict -f INPUT/copied.yaml --gpu T4",
			"node predict -f INPUT/timeslicing.yaml --node INPUT/node-dump.txt",
			"node predict -f INPUT/timeslicing.yaml --node INPUT/node-dump.txt --gpu T4 --config timeslicing",
			"node predict --gpu A100-40GB --gpus 8 --config all-balanced",
			"node predict --gpu A100-40GB --gpus 2 --config all-1g.5gb --strategy single",
			"node predict --gpu A100-40GB -f INPUT/mig.yaml --config notebooks --strategy mixed",
			"node predict --gpu A100-40GB --gpus 2 -f INPUT/mig.yaml --config half --strategy mixed",
			"node predict --node INPUT/node.json --config all-3g.40gb --strategy mixed",
			"node predict --gpu A100-40GB -f INPUT/mig.yaml --config notebook",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for _, line := range calls {
				args := words(line)
				for i, a := range args {
					args[i] = strings.NewReplacer("CORRECTED", corrected, "EXAMPLES", example(""), "INPUT", "testdata/input",
						"DRIFT", "../drift/testdata").Replace(a)
				}
				b.WriteString(transcript(args...))
			}
			golden(t, name, b.String())
		})
	}
}

// TestShapes lints the files in testdata/shapes. Each is a different way in which people write commands and values.
func TestShapes(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join("testdata", "shapes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		t.Run(e.Name(), func(t *testing.T) {
			args := []string{"lint", filepath.Join("testdata", "shapes", e.Name())}
			if e.Name() != "flux.yaml" && filepath.Ext(e.Name()) == ".yaml" {
				args = append(args, "--version", "v26.7.0")
			}
			text := transcript(args...)
			if filepath.Ext(e.Name()) == ".sh" {
				text += transcript("lint", "--fix", args[1])
			}
			golden(t, filepath.Join("golden", e.Name()+".txt"), text)
		})
	}
}
