package sharing

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	"github.com/google/go-cmp/cmp"
	yaml3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/fields"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/mig"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

func summary(findings []check.Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, fmt.Sprintf("%d %s %s %s", f.Line, f.Severity.String(), f.Check.ID, f.Subject))
	}
	slices.Sort(out)
	return out
}

// TestParseFindings parses the configs in testdata/configs.txt. They have every field, including the fields of newer
// plugin releases, and known mistakes. A case begins with "== NAME", and its findings follow "-- findings".
func TestParseFindings(t *testing.T) {
	all := strings.TrimPrefix(folder.Read(t, "testdata", "configs.txt"), "== ")
	for text := range strings.SplitSeq(all, "\n== ") {
		name, rest, _ := strings.Cut(text, "\n")
		t.Run(name, func(t *testing.T) {
			file, want, found := strings.Cut(rest, "-- findings")
			if !found {
				t.Fatal("the case has no findings")
			}
			_, findings := Parse([]byte(file))
			got := strings.Join(summary(findings), "\n")
			if diff := cmp.Diff(strings.TrimSpace(want), got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			for _, f := range findings {
				if f.Reason == "" {
					t.Errorf("finding without reason: %+v", f)
				}
			}
		})
	}
}

func TestChoose(t *testing.T) {
	for _, tc := range []struct{ names, label, deflt, want string }{
		{"only", "", "", "empty"},
		{"default a100", "", "", "empty"},
		{"a b", "b", "a", "b"},
		{"a b", "", "a", "a"},
		{"a b", "c", "a", "refused"},
		{"a b", "", "c", "refused"},
	} {
		name, ok, problem := Choose(strings.Fields(tc.names), tc.label, tc.deflt)
		got := name
		switch {
		case !ok:
			got = "refused"
		case name == "":
			got = "empty"
		}
		bad := problem != nil && problem.Severity == check.Error
		if got != tc.want || bad != (tc.want == "refused") || tc.want == "empty" && problem == nil {
			t.Errorf("%+v: choice = %q, problem = %v, want %q", tc, got, problem, tc.want)
		}
	}
}

// Every key in keys.yaml can be parsed, and has a type that the parser supports.
func TestKeys(t *testing.T) {
	decoder := yaml3.NewDecoder(bytes.NewReader(keysText))
	decoder.KnownFields(true)
	var root key
	if err := decoder.Decode(&root); err != nil {
		t.Fatal(err)
	}
	var check func(path string, keys map[string]key)
	check = func(path string, keys map[string]key) {
		for name, k := range keys {
			if !slices.Contains([]string{"", "bool", "text", "name", "duration", "devices", "channels", "resource", "replicas"}, k.Type) {
				t.Errorf("%s.%s: type = %q, want a type that the parser supports", path, name, k.Type)
			}
			check(path+"."+name, k.Keys)
			check(path+"."+name, k.List)
		}
	}
	check("", root.Keys)
}

// TestPredict checks the resources, product label, MPS limits and findings of nodes with different configs.
func TestPredict(t *testing.T) {
	gpu := func(word string, n int) []mig.GPU {
		g, err := mig.FindGPU(word)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Repeat([]mig.GPU{g}, n)
	}
	parse := func(file string) *Config {
		c, findings := Parse([]byte(file))
		if slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Severity == check.Error }) {
			t.Fatalf("findings = %v, want no error", findings)
		}
		return c
	}
	for name, tc := range map[string]struct {
		gpus      []mig.GPU
		file      string
		resources map[string]int
		product   string
		limits    []Limits
		findings  []string
	}{
		"eight GPUs with five replicas": {
			gpu("A100-80GB", 8), "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 5}]}}",
			map[string]int{"nvidia.com/gpu": 40}, "NVIDIA-A100-SXM4-80GB-SHARED", nil, []string{"note sharing-no-isolation"},
		},
		"eight GPUs with five renamed replicas": {
			gpu("A100-80GB", 8), "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 5}]}}",
			map[string]int{"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 40}, "NVIDIA-A100-SXM4-80GB", nil, []string{"note sharing-no-isolation"},
		},
		"one T4 with two replicas": {gpu("T4", 1), folder.Read(t, "testdata", "published.yaml"), map[string]int{"nvidia.com/gpu": 2}, "Tesla-T4-SHARED", nil, []string{"note sharing-no-isolation"}},
		"mps":                      {gpu("A100-40GB", 2), "sharing: {mps: {resources: [{name: gpu, replicas: 3}]}}", map[string]int{"nvidia.com/gpu": 6}, "NVIDIA-A100-SXM4-40GB-SHARED", []Limits{{"NVIDIA-A100-SXM4-40GB", 13653, 33}}, nil},
		"mps 48":                   {gpu("L4", 1), "sharing: {mps: {resources: [{name: gpu, replicas: 48}]}}", map[string]int{"nvidia.com/gpu": 48}, "NVIDIA-L4-SHARED", []Limits{{"NVIDIA-L4", 479, 2}}, nil},
		"mps on Turing":            {gpu("T4", 1), "sharing: {mps: {resources: [{name: gpu, replicas: 20}]}}", map[string]int{"nvidia.com/gpu": 20}, "Tesla-T4-SHARED", []Limits{{"Tesla-T4", 768, 5}}, nil},
		"mps on Volta":             {gpu("V100-16GB", 1), "sharing: {mps: {resources: [{name: gpu, replicas: 20}]}}", map[string]int{}, "Tesla-V100-SXM2-16GB-SHARED", []Limits{{"Tesla-V100-SXM2-16GB", 819, 5}}, []string{"error sharing-clients"}},
		"both: MPS wins": {gpu("T4", 1), "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 9}]}, mps: {resources: [{name: gpu, replicas: 2}]}}",
			map[string]int{"nvidia.com/gpu": 2}, "Tesla-T4-SHARED", []Limits{{"Tesla-T4", 7680, 50}}, nil},
		"a resource that the node lacks": {gpu("T4", 1), "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 2}]}}",
			map[string]int{"nvidia.com/gpu": 1}, "Tesla-T4", nil, []string{"note sharing-no-isolation", "warning sharing-resource"}},
		"no sharing": {gpu("T4", 1), "version: v1", map[string]int{"nvidia.com/gpu": 1}, "Tesla-T4", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := Predict(tc.gpus, mig.StrategyNone, parse(tc.file))
			var findings []string
			for _, f := range p.Findings {
				findings = append(findings, f.Severity.String()+" "+f.Check.ID)
			}
			slices.Sort(findings)
			if diff := cmp.Diff(tc.resources, p.Resources); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.limits, p.Limits); diff != "" {
				t.Errorf("limits (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.findings, findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if got := p.Labels["nvidia.com/gpu.product"]; got != tc.product {
				t.Errorf("product = %q, want %q", got, tc.product)
			}
		})
	}
	mixed := Predict(gpu("A100-40GB", 1), mig.StrategyMixed, parse("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"))
	if len(mixed.Resources) != 0 || !slices.ContainsFunc(mixed.Findings, func(f check.Finding) bool { return f.Check.ID == "sharing-mps" }) {
		t.Errorf("MPS with mixed: resources = %v, findings = %v, want no resources and sharing-mps", mixed.Resources, mixed.Findings)
	}
}

func TestFindingsInAConfigMapCountItsLines(t *testing.T) {
	for text, want := range map[string][]string{
		"kind: ConfigMap\n": {"0 error wrong-type data"},
		"apiVersion: v1\nkind: ConfigMap\ndata:\n  any: |-\n    version: v1\n" +
			"    sharing:\n      timeslicing: {}\n  one: 'version: v9'\n": {
			"7 error unknown-key data.any: sharing.timeslicing",
			"8 error sharing-value data.one: version",
		},
	} {
		_, findings := ParseAny([]byte(text), "")
		if diff := cmp.Diff(want, summary(findings)); diff != "" {
			t.Errorf("findings (-want +got):\n%s", diff)
		}
	}
}

// FuzzParse expects Parse to report an error if NVIDIA's library rejects a file. For other files, both must read the
// same resources and replicas.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		folder.Read(f, "testdata", "published.yaml"),
		"sharing: {mps: {resources: [{name: gpu, replicas: 3}]}, timeSlicing: {resources: [{name: mig-1g.5gb, replicas: 2}]}}",
		"flags: {plugin: {deviceListStrategy: [envvar]}}\nimex: {channelIDs: [0]}\nresources: {gpus: []}",
		"flags: {migStrategy: mixed}\nsharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 3, devices: [0, '0:1', GPU-8dcd427f-483b-b48f-d7e5-75fb19a52b76]}, {name: nvidia.com/gpu, replicas: 4}]}}",
		"flags: {gfd: {sleepInterval: 1x}}", "imex: {channelIDs: [a]}", "resources: {mig: [{pattern: '*', name: a_b}]}",
		"sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: every}]}}", "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: A}]}}",
		"sharing: {timeSlicing: null}", "sharing: {mps: null}", "version: {}", "version: 1", "version: ''",
		"sharing: {timeSlicing: {resources: [{name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, replicas: 3}]}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, findings := Parse(data)
		var library spec.Config
		err := yaml.Unmarshal(data, &library)
		if err != nil && !slices.ContainsFunc(findings, func(f check.Finding) bool { return f.Severity == check.Error }) {
			t.Fatalf("Parse reports no error, but NVIDIA's library rejects the file: %v", err)
		}
		unsure := func(f check.Finding) bool { // JSON keeps only one of several keys that are equal or differ only in case
			return f.Check == fields.Duplicate || f.Check == fields.UnknownKey && strings.HasPrefix(f.Fix, "write ")
		}
		if err != nil || c == nil || c.Refused || slices.ContainsFunc(findings, unsure) {
			return
		}
		strategy := ""
		if s := library.Flags.MigStrategy; s != nil {
			strategy = *s
		}
		if c.Strategy() != string(library.Sharing.SharingStrategy()) || c.Flags.MIGStrategy != strategy {
			t.Fatalf("sharing = %s, MIG strategy = %q, want %s, %q as in NVIDIA's library", c.Strategy(), c.Flags.MIGStrategy, library.Sharing.SharingStrategy(), strategy)
		}
		if c.Strategy() == "none" {
			return
		}
		want := map[string]mig.Replica{}
		for _, r := range library.Sharing.ReplicatedResources().Resources {
			replica := mig.Replica{Factor: r.Replicas}
			if library.Sharing.ReplicatedResources().RenameByDefault {
				replica.Rename = string(r.Name.DefaultSharedRename())
			}
			if before := want[string(r.Name)]; replica.Factor > before.Factor {
				want[string(r.Name)] = replica
			}
		}
		if diff := cmp.Diff(want, c.Replication().ByResource); diff != "" {
			t.Fatalf("replicas (-library +parsed):\n%s", diff)
		}
		// the node must advertise the number of GPUs times the replicas
		p := Predict([]mig.GPU{{Product: "X"}, {Product: "X"}}, mig.StrategyNone, c)
		if r := want[mig.WholeGPU]; r.Factor > 0 && r.Factor <= MaxClients {
			if got := p.Resources[mig.WholeGPU] + p.Resources[r.Rename]; got != 2*r.Factor {
				t.Fatalf("two GPUs with %d replicas: devices = %d, want %d: %v", r.Factor, got, 2*r.Factor, p.Resources)
			}
		}
	})
}
