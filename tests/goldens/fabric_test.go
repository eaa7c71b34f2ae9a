package goldens

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/pages"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

const fabricCounters = "DCGM_EXP_FABRIC_STATE, gauge,\nDCGM_EXP_FABRIC_INFO, gauge,\n"

// A fabricCase is an entry of testdata/fabric.yaml.
type fabricCase struct {
	Name, Want string
	Facts      struct {
		Model               string
		State, Status, DCGM int
		Clique, Mask        int
		Cluster, Old        bool
	}
}

// TestFabric checks that DCGM's fields and NVML's structs produce the same series, except for the condition links_down.
// NVML serves this condition, but DCGM reports it as a health finding.
func TestFabric(t *testing.T) {
	library, err := fakenvml.Build(t.TempDir())
	fakenvml.Need(t, err)
	var fabricCases []fabricCase
	if err := yaml.Unmarshal([]byte(folder.Read(t, "testdata/fabric.yaml")), &fabricCases); err != nil {
		t.Fatal(err)
	}
	engine, driver := []string{"library 4.6.1", "engine 4.6.1"}, []string{fmt.Sprint("gpus ", len(fabricCases))}
	for i, c := range fabricCases {
		f := c.Facts
		uuid, factor := "00000000-0000-0000-0000-000000000000", 0
		if f.Cluster {
			uuid, factor = "00112233-4455-6677-8899-aabbccddeeff", 17
		}
		engine = append(engine,
			fmt.Sprintf("gpu %d uuid=GPU-%d name=%s bus=00000000:%02X:00.0 index=%d status=ok prof=none", i, i,
				strings.ReplaceAll(f.Model, " ", "+"), i+1, i),
			fmt.Sprintf("value gpu:%d 170 int %d", i, f.DCGM), fmt.Sprintf("value gpu:%d 172 text %s", i, uuid),
			fmt.Sprintf("value gpu:%d 173 int %d", i, f.Clique), fmt.Sprintf("value gpu:%d 174 int %d", i, f.Mask))
		for key, value := range map[string]any{
			"name": f.Model, "fabric-state": f.State, "fabric-status": f.Status, "fabric-uuid": factor,
			"fabric-clique": f.Clique, "fabric-mask": f.Mask,
		} {
			driver = append(driver, fmt.Sprintf("gpu %d set %s %v", i, key, value))
		}
		if f.Old {
			driver = append(driver, fmt.Sprintf("gpu %d set fabric-v2 1", i))
		}
	}
	fakedcgm.New(t, engine...)
	fakenvml.NewWorld(t, driver...)
	for name, source := range map[string]collector.Source{
		"dcgm": collector.SourceOf(dcgm.New(dcgm.Options{}).Open),
		"nvml": collector.SourceOf(nvml.New(library).Open),
	} {
		page := settled(t, pages.Run{Other: source, Counters: []byte(fabricCounters), Args: []string{noMetrics}})
		got := map[string][]string{}
		for s := range prom.Samples(t, bytes.ReplaceAll(page, []byte(" MASKED"), []byte(" 0"))) {
			index, value := s.Labels.Get("gpu"), fmt.Sprint(s.Value)
			switch s.Labels.Get("__name__") {
			case "DCGM_EXP_FABRIC_STATE":
				if s.Labels.Get("condition") == "links_down" && name == "nvml" {
					continue // DCGM reports this as a health finding
				}
				got[index+" "+value] = append(got[index+" "+value], s.Labels.Get("condition"))
			case "DCGM_EXP_FABRIC_INFO":
				if id := s.Labels.Get("cluster_uuid"); id != "00112233-4455-6677-8899-aabbccddeeff" {
					t.Errorf("%s: cluster_uuid of GPU %s = %q, want that of the machine", name, index, id)
				}
				got[index+" info"] = []string{s.Labels.Get("clique_id")}
			}
		}
		for i, c := range fabricCases {
			var parts []string
			for _, part := range []string{"info", "0", "1"} {
				if list := got[fmt.Sprint(i, " ", part)]; list != nil {
					slices.Sort(list)
					parts = append(parts, part+": "+strings.Join(list, " "))
				}
			}
			if diff := cmp.Diff(c.Want, strings.Join(parts, ", ")); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, c.Name, diff)
			}
		}
	}
}
