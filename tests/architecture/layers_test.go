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

// layers lists the exporter's packages from the bottom up. Each path stands for a package and its subpackages. A
// package may import lower layers and packages under its own path, but not other paths of its layer. gpuop has no layers.
var layers = []struct {
	packages []string
	why      string
}{
	{[]string{"internal/gpu", "internal/hostengine", "internal/gauge", "internal/text", "etc"},
		"types shared by all packages, and shipped files; they import no package of the exporter"},
	{[]string{"internal/catalog", "internal/attribution"},
		"fields that can be exported, and rules shared by all attributors"},
	{[]string{"internal/counters", "internal/config", "internal/deviceid", "internal/process"},
		"settings, and parsers"},
	{[]string{"internal/snapshot", "internal/queries"},
		"turning a read into the data of a page, and checking queries of pages"},
	{[]string{"internal/events", "internal/accounting", "internal/verdict", "internal/compat"},
		"families derived from a snapshot, and snapshots that look like those of NVIDIA's exporter"},
	{[]string{"internal/collector", "internal/exposition", "internal/source/dcgm", "internal/source/nvml",
		"internal/source/sim",
		"internal/podmapper", "internal/jobmapper", "internal/runtimemapper", "internal/events/kernellog"},
		"stages of the data flow, which only app connects"},
	{[]string{"internal/kube", "internal/server", "internal/source/hardware"},
		"API server, HTTP server, and the choice of a driver"},
	{[]string{"internal/app"}, "the wiring"},
	{[]string{"internal/command"}, "the subcommands"},
	{[]string{"cmd/dcgm-exporter"}, "main"},
}

// outsideLayers lists the folders outside the exporter's layers: gpuop, the tests and the build tools.
var outsideLayers = []string{"gpuop", "tests", "tools"}

// foreign maps a program to modules that must not be linked into it.
var foreign = map[string][]string{
	"cmd/dcgm-exporter": {"github.com/NVIDIA/k8s-device-plugin", "tags.cncf.io/container-device-interface",
		"helm.sh/helm", "github.com/BurntSushi/toml",
		"github.com/hashicorp/hcl", "mvdan.cc/sh", "github.com/google/go-containerregistry"},
	"gpuop": {"github.com/NVIDIA/go-dcgm", "github.com/NVIDIA/go-nvml", "github.com/NVIDIA/k8s-device-plugin",
		"k8s.io/apiserver", "k8s.io/apiextensions-apiserver",
		"github.com/prometheus/client_golang/api"},
}

// restricted lists dependencies that only their owners may import.
var restricted = []struct {
	dependency string
	owners     []string
	why        string
}{
	{"github.com/NVIDIA/go-dcgm", []string{"internal/source/dcgm"}, "only the source uses cgo"},
	{"github.com/NVIDIA/go-nvml", []string{"internal/source/nvml"}, "only the source uses cgo"},
	{"k8s.io/client-go", []string{"internal/kube", "gpuop/cluster"}, "one client of the API server for each program"},
	{"k8s.io/kubelet", []string{"internal/podmapper", "tests"}, "one client of the kubelet"},
	{"net/http", []string{"internal/server", "internal/app", "internal/command", "internal/kube",
		"internal/runtimemapper", "gpuop/images", "tests"}, "only these packages serve or send HTTP requests"},
	{"github.com/grafana/grafana-foundation-sdk", []string{"tools/grafana"},
		"dashboards are generated; the exporter does not need Grafana's SDK"},
	{"github.com/google/go-containerregistry", []string{"gpuop/images"}, "only gpuop images --check asks registries"},
	{"github.com/VictoriaMetrics/metricsql", []string{"internal/queries"},
		"PromQL is parsed in one place, and evaluated nowhere"},
	{"os/signal", []string{"cmd", "gpuop", "tests/fleet"}, "only main handles signals"},
	{"github.com/prometheus/prometheus", []string{"tests"}, "only tests evaluate PromQL"},
	{"github.com/prometheus/exporter-toolkit", []string{"internal/server", "internal/app"}, "one server"},
}

type pkg struct {
	ImportPath string
	Imports    []string
	GoFiles    []string
}

// listed caches the result of packages.
var listed []pkg

// packages lists the packages of the module, including files with the build tag generate. Imports of test files are
// left out.
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
		t.Fatalf("go list found %d packages, want at least 5", len(listed))
	}
	return listed
}

// within reports whether path is one of the folders, or below one of them.
func within(path string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return path == folder || strings.HasPrefix(path, folder+"/")
	})
}

// layerOf returns the index of the layer of a package, or -1 if no layer contains it. innermost is the longest entry of
// layers that contains the package.
func layerOf(path string) (layer int, innermost string) {
	layer = -1
	for i, l := range layers {
		for _, folder := range l.packages {
			if len(folder) > len(innermost) && within(path, []string{folder}) {
				layer, innermost = i, folder
			}
		}
	}
	return layer, innermost
}

func TestPackagesImportLowerLayersOnly(t *testing.T) {
	for _, p := range packages(t) {
		layer, folder := layerOf(p.ImportPath)
		if within(p.ImportPath, outsideLayers) {
			continue
		}
		if layer < 0 {
			t.Errorf("%s is in no layer: add it to layers or outsideLayers", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			l, r := layerOf(imp)
			if r == folder {
				continue
			}
			if l < 0 || l >= layer {
				t.Errorf("%s (layer %d: %s) imports %s, which is not in a lower layer", p.ImportPath, layer,
					layers[layer].why, imp)
			}
		}
	}
}

type stage struct {
	packages []string
	input    string // package of an earlier stage whose types this stage uses, or ""
}

// flow lists the stages of the data flow. A stage imports no package of an earlier stage except its input.
var flow = []stage{
	{[]string{"internal/source", "internal/podmapper", "internal/jobmapper", "internal/runtimemapper",
		"internal/events/kernellog"}, ""},
	{[]string{"internal/collector"}, ""},
	{[]string{"internal/snapshot"}, ""},
	{[]string{"internal/events", "internal/accounting"}, "internal/snapshot"},
	{[]string{"internal/compat"}, ""},
	{[]string{"internal/exposition"}, ""},
	{[]string{"internal/server"}, "internal/exposition"},
}

func TestStagesImportOnlyTheirInput(t *testing.T) {
	stageOf := func(path string) int {
		return slices.IndexFunc(flow, func(s stage) bool { return within(path, s.packages) })
	}
	for _, p := range packages(t) {
		stage := stageOf(p.ImportPath)
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if before := stageOf(imp); ours && before >= 0 && before < stage && imp != flow[stage].input {
				t.Errorf("%s imports %s, an earlier stage that is not its input", p.ImportPath, imp)
			}
		}
	}
}

func TestProgramsDoNotShareCode(t *testing.T) {
	operator := []string{"gpuop"}
	// packages that both programs may import
	shared := []string{"internal/text"}
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			imp, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			if within(p.ImportPath, operator) && !within(imp, append(shared, operator...)) {
				t.Errorf("%s imports %s, which belongs to the exporter", p.ImportPath, imp)
			}
			if !within(p.ImportPath, operator) && within(imp, operator) &&
				!within(p.ImportPath, []string{"tests", "tools"}) {
				t.Errorf("%s imports %s, which belongs to gpuop", p.ImportPath, imp)
			}
		}
	}
}

func TestProgramsDoNotLinkForeignModules(t *testing.T) {
	for program, modules := range foreign {
		cmd := exec.Command("go", "list", "-deps", "./"+program)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		for _, d := range strings.Fields(string(out)) {
			if within(d, modules) {
				t.Errorf("program %s links package %s, want it without", program, d)
			}
		}
	}
}

func TestDependenciesHaveOneOwner(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			for _, d := range restricted {
				if within(imp, []string{d.dependency}) && !within(p.ImportPath, d.owners) {
					t.Errorf("%s imports %s; only %v may: %s", p.ImportPath, imp, d.owners, d.why)
				}
			}
		}
	}
}
