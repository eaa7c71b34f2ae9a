package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// operands.txt agrees with the operator's source in seven releases, or in all if GPUOP_ALL is 1.
func TestOperandsAreGenerated(t *testing.T) {
	clone := charts.Source(t)
	table := chart.Load()
	for _, v := range charts.Sample(table.Versions(), 7) {
		s, err := readTag(clone, v.String())
		if err != nil {
			t.Fatal(err)
		}
		want, err := s.operands()
		if err != nil {
			t.Fatalf("%s: %v", v, err)
		}
		have := table.Operands(v) // in the order of the newest release
		for _, list := range [][]chart.Operand{want, have} {
			slices.SortFunc(list, func(a, b chart.Operand) int { return strings.Compare(a.DaemonSet, b.DaemonSet) })
		}
		if diff := cmp.Diff(want, have); diff != "" {
			t.Errorf("%s (-source +operands.txt):\n%s", v, diff)
		}
	}
}

// TestUpstreamsListAgrees compares operands.txt with the images in generate-image-list.py, which NVIDIA added in
// v26.7.0. The script also shows which tags end in the operating system. It skips the vGPU manager's image, so the test
// adds it. Operands that the operator no longer supports are left out.
func TestUpstreamsListAgrees(t *testing.T) {
	text, err := exec.Command("git", "-C", charts.Source(t), "show", "v26.7.0:.github/scripts/generate-image-list.py").Output()
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	add := func(part string, tagged bool) string {
		if tagged {
			part += " <os>"
		}
		return part
	}
	// the list's lines look like: driver_manager = driver.get("manager", {}), then
	// add_image_ref(driver_manager.get("repository" ...
	paths := map[string]string{"values": ""}
	for _, m := range regexp.MustCompile(`(?m)^    (\w+) = (\w+)\.get\("(\w+)", \{\}\)`).FindAllSubmatch(text, -1) {
		paths[string(m[1])] = strings.TrimPrefix(paths[string(m[2])]+"."+string(m[3]), ".")
	}
	for _, m := range regexp.MustCompile(`(?s)\n    (add_os_variants|add_image_ref)\(\s*(\w+)\.get\("repository"`).FindAllSubmatch(text, -1) {
		want = append(want, add(paths[string(m[2])], string(m[1]) == "add_os_variants"))
	}
	want = append(want, "validator", "nodeStatusExporter", "vgpuManager <os>")
	for _, name := range []string{"operator", "validator", "nodeStatusExporter"} {
		if !bytes.Contains(text, []byte(`"`+name+`"`)) {
			t.Errorf("NVIDIA's script does not name %s", name)
		}
	}
	table := chart.Load()
	for _, o := range table.Operands(table.Latest()) {
		for _, c := range o.Containers {
			if !slices.Contains(o.When, chart.Never) {
				have = append(have, add(c.Image, c.System))
			}
		}
	}
	have = append(have, "draDriver") // image of the GPUCluster, which operands.txt does not cover
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(slices.Compact(want), slices.Compact(have)); diff != "" {
		t.Errorf("(-NVIDIA's list +operands.txt):\n%s", diff)
	}
}

// Source code that cannot be interpreted is an error. It must not lead to an incomplete row.
func TestUnknownForms(t *testing.T) {
	const asset = "kind: DaemonSet\nmetadata: {name: nvidia-x}\nspec: {template: {spec: {containers: [{name: CONTAINER}]}}}\n"
	for _, tt := range []struct{ name, condition, container, want string }{
		{"known", "clusterPolicySpec.X.IsEnabled()", "x-ctr", ""},
		{"a condition that compares numbers", "clusterPolicySpec.X.Count > 2", "x-ctr", "the condition clusterPolicySpec.X.Count > 2"},
		{"a method that does not exist", "clusterPolicySpec.X.IsWanted()", "x-ctr", "the condition clusterPolicySpec.X.IsWanted()"},
		{"a container of another image", "clusterPolicySpec.X.IsEnabled()", "openshift-driver-toolkit-ctr", "the code reads the images"},
	} {
		s := newSource()
		fill := strings.NewReplacer("CONDITION", tt.condition, "CONTAINER", tt.container)
		for name, text := range map[string]string{
			"controllers/a.go":           folder.Read(t, "testdata", "controller.txt"),
			"api/clusterpolicy_types.go": folder.Read(t, "testdata", "types.txt"),
			"assets/state-x/a.yaml":      asset,
		} {
			if err := s.add(name, []byte(fill.Replace(text))); err != nil {
				t.Fatal(err)
			}
		}
		list, err := s.operands()
		if tt.want == "" && (err != nil || len(list) != 1 || !list[0].Standard || list[0].Settings != "x" || !slices.Equal(list[0].When, []chart.Condition{"x.enabled"})) {
			t.Errorf("%s: operands = %+v, error = %v; want only the operand x", tt.name, list, err)
		}
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: error %v, want %q in it", tt.name, err, tt.want)
		}
	}
}
