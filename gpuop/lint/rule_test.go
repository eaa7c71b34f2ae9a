package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/model"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/schema"
)

// TestChecksOfValuesAreReported runs all rules on each text, for several releases, as a file and as flags. Each check
// of values must be reported at least once.
func TestChecksOfValuesAreReported(t *testing.T) {
	texts := []string{
		"cdi: {default: true}\nnodeSelector: {a: b}\ndriver: {image: {tag: x}, usePrecompiled: true, version: 580.1.2, imagePullPolicy: never}\n",
		"node-feature-discovery: {worker: {tolerations: [{key: a, key: b}]}}\ndcgmExporter: {serviceMonitor: {relabelings: [{sourceLables: [a]}]}, repository: 'https://a'}\n",
		"devicePlugin: {config: {create: true}}\nmig: true\ndaemonsets: {tolerations: [{key: a, key: b}]}\ngdrcopy: {enabled: true}\ndriver: {usePrecompiled: true, version: '999'}\n",
		"devicePlugin: {config: {name: a}}\ngfd: {version: v0.6.1}\ntoolkit: {version: v1.0.0, image: container-toolkit, repository: nvcr.io/nvidia/k8s}\nvalidator:\n  plugin:\n",
		"migManager: {enabled: false, config: {name: default-mig-parted-config}}\nnfd: {nodefeaturerules: true}\ndriver: {rdma: {useHostMofed: true}}\n",
		"dcgmExporter: {serviceMonitor: {relabelings: [{action: a, action: b}]}, hpcJobMapping: {}}\ndriver: {env: [{value: a}]}\noperator: {resources: {limist: {}}}\nvgpuManager: {repository: nvidia}\ngpuCluster: {deployCR: true}\n",
	}
	texts = append(texts, "migManager: {config: {name: default-mig-parted-config}}\n")
	planted, err := os.ReadFile(filepath.Join("testdata", "planted.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for p := range strings.SplitSeq(string(planted), "\n-- ") {
		if head, text, _ := strings.Cut(p, "\n"); strings.HasPrefix(head, "values.yaml") {
			texts = append(texts, text)
		}
	}
	reported := map[*check.Check]bool{}
	table := chart.Load()
	for _, text := range texts {
		reader := &fields.Reader{}
		root := reader.Document([]byte(text))
		if root == nil {
			t.Fatalf("%s\n%v", text, reader.Findings)
		}
		for _, release := range []string{"v1.11.0", "v22.9.0", "v25.3.0", "v26.7.0"} {
			v, err := chart.ParseVersion(release)
			if err != nil {
				t.Fatal(err)
			}
			for _, flags := range []bool{false, true} {
				in := newInstallation(table, v, model.Flatten(reader, "f", 0, nil, root))
				if in.flags = flags; flags {
					for _, s := range in.Settings {
						again := *s
						s.Node, again.Node, again.Value = nil, nil, "x"+s.Text()
						in.Settings = append(in.Settings, &again)
					}
				}
				for _, r := range rules {
					r.check(in)
				}
				for _, m := range in.mistakes {
					reported[m.Check] = true
				}
			}
		}
	}
	for _, c := range []*check.Check{
		fields.UnknownKey, misspeltKey, keyGone, keyNotYet, keyGoes, belowValue, nullGroup, fields.WrongType, setTwice,
		schema.WrongValue, schema.MissingField, imageParts, deadSetting, precompiledVersion, excludes, badConfigMap,
		configFallback, oldDefault, operandVersion,
	} {
		if !reported[c] {
			t.Errorf("check %s has no input that triggers it", c.ID)
		}
	}
}
