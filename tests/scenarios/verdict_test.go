package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// GPU 2 has the verdict in testdata/verdicts.yaml after each fault. Other GPUs are ok. Package verdict tests
// every XID, and how long rules stay active.
func TestVerdicts(t *testing.T) {
	var tests [][4]string
	if err := yaml.Unmarshal([]byte(folder.Read(t, "testdata/verdicts.yaml")), &tests); err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		node, fault, keys, verdict := tt[0], tt[1], tt[2], tt[3]
		t.Run(strings.Join([]string{verdict, fault, keys}, " "), func(t *testing.T) {
			faults := "[]"
			if fault != "" {
				faults = fmt.Sprintf(`[{fault: %s, at: 1m, devices: ["2"], %s}]`, fault, keys)
			}
			p := prom.Parse(t, perform(t, node, faults, 17*time.Minute)[0])
			got, want := map[string]string{}, map[string]string{}
			for _, x := range p[catalog.GPUVerdict] {
				if x.Value == 1 {
					got[x.Labels.Get("gpu")] += x.Labels.Get("verdict") + "/" + x.Labels.Get("reason")
				}
			}
			for gpu := range p.By("dcgm_exporter_entity_up", "gpu") {
				if gpu != "" {
					want[gpu] = "ok/"
				}
			}
			if _, ok := want["2"]; ok || verdict != "ok/" {
				want["2"] = verdict
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("verdicts (-want +got):\n%s", diff)
			}
		})
	}
}
