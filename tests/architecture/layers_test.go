package architecture

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/gpu-telemetry/dcgm-exporter/"

// layers lists the exporter's packages from the bottom up. A package only imports lower layers, so packages of one
// layer never import each other. gpuop has no layers.
var layers = []struct {
	packages []string
	why      string
}{
	{[]string{"internal/gpu", "internal/gauge", "internal/text", "etc"}, "the vocabulary and the shipped files import nothing of ours"},
	{[]string{"internal/catalog"}, "what can be exported"},
	{[]string{"internal/counters", "internal/config", "internal/deviceid", "internal/process"}, "what is requested, and reading of texts"},
	{[]string{"internal/snapshot"}, "a reading made into a page's data"},
	{[]string{"internal/events", "internal/accounting", "internal/verdict"}, "what is derived from it"},
	{[]string{"internal/collector", "internal/exposition", "internal/source/dcgm", "internal/source/nvml", "internal/source/sim",
		"internal/podmapper", "internal/jobmapper", "internal/runtimemapper", "internal/events/kernellog"}, "the parts of the flow, which meet in app alone"},
	{[]string{"internal/kube", "internal/server", "internal/source/hardware"}, "the doors to the outside, and the choice of a driver"},
	{[]string{"internal/app"}, "the wiring"},
	{[]string{"internal/command"}, "the subcommands"},
	{[]string{"cmd/dcgm-exporter"}, "main"},
}

// apart lists the folders outside the exporter's layers: the other program, tests, and tools of the build.
var apart = []string{"gpuop", "tests", "tools"}

// foreign lists modules of one program that must not be linked into the other.
var foreign = map[string][]string{
	"cmd/dcgm-exporter": {"github.com/NVIDIA/k8s-device-plugin", "tags.cncf.io/container-device-interface", "helm.sh/helm", "github.com/BurntSushi/toml",
		"github.com/hashicorp/hcl", "mvdan.cc/sh"},
	"gpuop": {"github.com/NVIDIA/go-dcgm", "github.com/NVIDIA/go-nvml", "github.com/NVIDIA/k8s-device-plugin", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver",
		"github.com/prometheus/client_golang/api"},
}

// doors lists dependencies that only certain packages may import.
var doors = []struct {
	dependency string
	owners     []string
	why        string
}{
	{"github.com/NVIDIA/go-dcgm", []string{"internal/source/dcgm"}, "C ends at the edge"},
	{"github.com/NVIDIA/go-nvml", []string{"internal/source/nvml"}, "C ends at the edge"},
	{"k8s.io/client-go", []string{"internal/kube", "gpuop/cluster"}, "one door to the API server"},
	{"k8s.io/kubelet", []string{"internal/podmapper", "tests"}, "one reader of the kubelet"},
	{"net/http", []string{"internal/server", "internal/app", "internal/command", "internal/kube", "internal/runtimemapper", "tests"}, "nothing else serves or requests: one server, one reader of the API server and one of the container runtime"},
	{"github.com/grafana/grafana-foundation-sdk", []string{"tools/grafana"}, "dashboards are generated: the exporter knows nothing of Grafana"},
	{"os/signal", []string{"cmd", "gpuop", "tests/fleet"}, "signals are heard in main"},
	{"github.com/prometheus/prometheus", []string{"tests"}, "PromQL is read by tests: a node agent needs no query engine"},
	{"github.com/prometheus/exporter-toolkit", []string{"internal/server", "internal/app"}, "one server"},
}

type pkg struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
}

// listed caches the result of packages.
var listed []pkg

// packages lists the module's packages for linux with cgo.
func packages(t *testing.T) []pkg {
	t.Helper()
	if listed != nil {
		return listed
	}
	cmd := exec.Command("go", "list", "-tags=generate", "-json=ImportPath,Imports,GoFiles", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		p.ImportPath = strings.TrimPrefix(p.ImportPath, module)
		listed = append(listed, p)
	}
	if len(listed) < 5 {
		t.Fatalf("go list found %d packages", len(listed))
	}
	return listed
}

// within reports whether path is one of rooms or below one.
func within(path string, rooms []string) bool {
	return slices.ContainsFunc(rooms, func(room string) bool {
		return path == room || strings.HasPrefix(path, room+"/")
	})
}

// layerOf returns the layer of a package and the innermost listed package that contains it. The layer is -1 for
// packages outside the layers.
func layerOf(path string) (layer int, innermost string) {
	layer = -1
	for i, l := range layers {
		for _, room := range l.packages {
			if len(room) > len(innermost) && within(path, []string{room}) {
				layer, innermost = i, room
			}
		}
	}
	return layer, innermost
}

func TestPackagesImportLowerLayersOnly(t *testing.T) {
	for _, p := range packages(t) {
		layer, room := layerOf(p.ImportPath)
		if within(p.ImportPath, apart) {
			continue
		}
		if layer < 0 {
			t.Errorf("%s is in no layer: give it one, or name it among those apart", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			l, r := layerOf(imp)
			if r == room {
				continue
			}
			if l < 0 || l >= layer {
				t.Errorf("%s (layer %d: %s) imports %s", p.ImportPath, layer, layers[layer].why, imp)
			}
		}
	}
}

type stage struct {
	packages []string
	input    string // the earlier package whose types this one consumes, or ""
}

// flow lists the stages of the data flow. A stage after the collector imports at most one package of an earlier stage:
// its input.
var flow = []stage{
	{[]string{"internal/source", "internal/podmapper", "internal/jobmapper", "internal/runtimemapper", "internal/events/kernellog"}, ""},
	{[]string{"internal/collector"}, ""},
	{[]string{"internal/snapshot"}, ""},
	{[]string{"internal/events", "internal/accounting"}, "internal/snapshot"},
	{[]string{"internal/exposition"}, ""},
	{[]string{"internal/server"}, "internal/exposition"},
}

func TestNoStageKnowsAnEarlierOne(t *testing.T) {
	stageOf := func(path string) int {
		return slices.IndexFunc(flow, func(s stage) bool { return within(path, s.packages) })
	}
	for _, p := range packages(t) {
		stage := stageOf(p.ImportPath)
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if before := stageOf(imp); ours && before >= 0 && before < stage && imp != flow[stage].input {
				t.Errorf("%s imports %s, which comes before it", p.ImportPath, imp)
			}
		}
	}
}

func TestOperatorStandsApart(t *testing.T) {
	operator := []string{"gpuop"}
	// packages that depend on neither program
	shared := []string{"internal/text"}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			if within(p.ImportPath, operator) && !within(imp, append(shared, operator...)) {
				t.Errorf("%s imports the exporter's %s", p.ImportPath, imp)
			}
			if !within(p.ImportPath, operator) && within(imp, operator) && !within(p.ImportPath, []string{"tests", "tools"}) {
				t.Errorf("%s imports gpuop's %s", p.ImportPath, imp)
			}
		}
	}
}

func TestProgramsLinkNoForeignModule(t *testing.T) {
	for program, modules := range foreign {
		cmd := exec.Command("go", "list", "-deps", "./"+program)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for _, d := range strings.Fields(string(out)) {
			if within(d, modules) {
				t.Errorf("%s links %s", program, d)
			}
		}
	}
}

func TestDoorsHaveOneOwner(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for _, d := range doors {
				if within(imp, []string{d.dependency}) && !within(p.ImportPath, d.owners) {
					t.Errorf("%s imports %s, whose door is %v: %s", p.ImportPath, imp, d.owners, d.why)
				}
			}
		}
	}
}
