package scenarios

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

const (
	memory   = "DCGM_FI_DEV_FB_USED"
	activity = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
)

// One machine, as each source gets it: a GPU with an instance that is divided and one that is not.
var (
	dividedNode = `name: divided
driver: 570.124.06
gpus:
  - board: A100-PCIE-40GB
    mig: [3g.20gb/1c+2c, 1g.5gb]
`
	dividedEngine = []string{
		"library 4.6.1", "engine 4.6.1", "driver 570.124.06", "nvml 12.570.124.06",
		"gpu 0 uuid=GPU-0 name=NVIDIA_A100 bus=00000000:1B:00.0 index=0 minor=0 prof=1001",
		"instance 7 gpu=0 nvml=1 profile=1c.3g.20gb uuid=MIG-a", // what its first part says
		"instance 8 gpu=0 nvml=11 profile=1g.5gb uuid=MIG-c",
		"compute 7 instance=7 nvml=0 profile=1c.3g.20gb uuid=MIG-a",
		"compute 8 instance=7 nvml=1 profile=2c.3g.20gb uuid=MIG-b",
		"compute 9 instance=8 nvml=0 profile=1g.5gb uuid=MIG-c",
		"value any:* 252 int 1000", "value any:* 1001 double 0.5",
	}
	dividedDriver = []string{
		"gpus 1", "gpu 0 mig", "gpu 0 instance 1 0 1c.3g.20gb 20096", "gpu 0 instance 1 1 2c.3g.20gb 20096", "gpu 0 instance 11 0 1g.5gb 4864",
	}
)

// entities returns which entities a family has series of, by their MIG labels.
func entities(p page, family string) []string {
	var found []string
	for _, x := range p.series[family] {
		name := x.labels.Get("gpu")
		for _, label := range []string{"GPU_I_PROFILE", "GPU_I_ID", "GPU_CI_ID"} {
			if v := x.labels.Get(label); v != "" {
				name += " " + v
			}
		}
		found = append(found, name)
	}
	slices.Sort(found)
	return found
}

// What sources report of a divided GPU instance and its parts is the same, label by label; NVML
// counts nothing per compute instance.
func TestDividedInstancesUnderEverySource(t *testing.T) {
	whole, parts := []string{"0 1g.5gb 11", "0 3g.20gb 1"}, []string{"0 1c.3g.20gb 1 0", "0 1g.5gb 11", "0 2c.3g.20gb 1 1"}
	sources := map[string]struct {
		open     func(t *testing.T) collector.Source
		activity map[string][]string // by selector; nil where it is not requested
	}{
		"dcgm": {func(t *testing.T) collector.Source {
			fakedcgm.Require(t)
			fakedcgm.New(t, dividedEngine...)
			return collector.SourceOf(dcgm.New(dcgm.Options{}).Open)
		}, map[string][]string{"f": whole, "f+c": parts}},
		"sim": {func(t *testing.T) collector.Source {
			node, err := sim.ParseNode(strings.NewReader(dividedNode), "node.yaml")
			if err != nil {
				t.Fatal(err)
			}
			src, err := sim.New(sim.Options{Model: node})
			if err != nil {
				t.Fatal(err)
			}
			return collector.SourceOf(src.Open)
		}, map[string][]string{"f": whole, "f+c": parts}},
		"nvml": {func(t *testing.T) collector.Source {
			library, err := fakenvml.Build(t.TempDir())
			fakenvml.Need(t, err)
			fakenvml.NewWorld(t, dividedDriver...)
			return collector.SourceOf(nvml.New(nvml.Options{Library: library}).Open)
		}, nil},
	}
	for name, source := range sources {
		for devices, sel := range map[string]gpu.Selector{"f": {Flex: true}, "f+c": {Flex: true, Compute: true}} {
			t.Run(name+" "+devices, func(t *testing.T) {
				file := memory + ",gauge,m\n"
				if source.activity != nil {
					file += activity + ",gauge,a\n"
				}
				take := stepsOf(t, source.open(t), file, sel)
				var p page
				for begin := time.Now(); ; {
					p = take()
					if len(entities(p, memory)) > 0 && (source.activity == nil || len(entities(p, activity)) > 0) {
						break
					}
					if time.Since(begin) > patience {
						t.Fatalf("it never began:\n%s", p.text)
					}
				}
				if diff := cmp.Diff(whole, entities(p, memory)); diff != "" {
					t.Errorf("memory (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(source.activity[devices], entities(p, activity)); diff != "" {
					t.Errorf("activity (-want +got):\n%s", diff)
				}
			})
		}
	}
}
