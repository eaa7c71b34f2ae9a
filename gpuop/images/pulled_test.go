package images_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/charts"
)

// tree is the ClusterPolicy's spec or the chart's values, which use the same names.
type tree map[string]any

func (t tree) at(path string) any {
	v, _, _ := unstructured.NestedFieldNoCopy(t, strings.Split(path, ".")...)
	return v
}

func (t tree) text(path string) string {
	if v := t.at(path); v != nil {
		return fmt.Sprint(v)
	}
	return ""
}

// on returns the boolean at path, or the default absent if there is none.
func (t tree) on(path string, absent bool) bool {
	if b, isBool := t.at(path).(bool); isBool {
		return b
	}
	return absent
}

func (t tree) set(path string, value any) {
	if err := unstructured.SetNestedField(t, value, strings.Split(path, ".")...); err != nil {
		panic(err)
	}
}

// pulled returns the images that a release of the operator pulls for a ClusterPolicy on nodes with one operating
// system. It reimplements the operator's logic and does not use gpuop's tables. The source is
// controllers/state_manager.go (init, isStateEnabled, getGPUNodeOSInfo), controllers/object_controls.go (Transform...,
// resolveDriverTag) and the IsEnabled methods of clusterpolicy_types.go, at the tags v1.7.0 to v26.7.0.
func pulled(v chart.Version, spec tree, system, kernel string) map[string]bool {
	out := map[string]bool{}
	since := func(s string) bool {
		from, err := chart.ParseVersion(s)
		return err == nil && !v.Before(from)
	}
	path := func(part string) string {
		repository, image, version := spec.text(part+".repository"), spec.text(part+".image"), spec.text(part+".version")
		if strings.HasPrefix(version, "sha256:") {
			return repository + "/" + image + "@" + version
		}
		return repository + "/" + image + ":" + version
	}
	add := func(part string) {
		if spec.text(part+".image") != "" { // without image, the operator rejects the ClusterPolicy
			out[path(part)] = true
		}
	}
	tagged := func(part string) { // like resolveDriverTag
		image := path(part)
		if part == "driver" && since("v23.3.0") && spec.on("driver.usePrecompiled", false) {
			image += "-" + kernel
		}
		if !strings.Contains(image, "sha256:") {
			image += "-" + systemTag(since, system)
		}
		out[image] = true
	}

	add("validator")
	if spec.on("driver.enabled", true) {
		tagged("driver")
		if since("v1.8.0") {
			add("driver.manager")
		}
		if since("v1.10.0") && spec.on("gds.enabled", false) {
			tagged("gds")
		}
		if since("v24.3.0") && spec.on("gdrcopy.enabled", false) {
			tagged("gdrcopy")
		}
	}
	if spec.on("toolkit.enabled", true) {
		add("toolkit")
	}
	// before v22.9.0, the operator runs these operands unconditionally
	for _, part := range []string{"devicePlugin", "gfd", "dcgmExporter"} {
		if !since("v22.9.0") || spec.on(part+".enabled", true) {
			add(part)
		}
	}
	if !since("v22.9.0") || spec.on("dcgmExporter.enabled", true) {
		redhat := strings.HasPrefix(system, "rhel") || strings.HasPrefix(system, "rhcos")
		openshift := strings.HasPrefix(system, "rhcos")
		if !since("v1.8.0") && redhat || since("v1.8.0") && !since("v26.3.0") && openshift {
			add("operator.initContainer")
		}
	}
	if spec.on("migManager.enabled", true) {
		add("migManager")
	}
	if since("v1.8.0") && spec.on("dcgm.enabled", true) {
		add("dcgm")
	}
	if since("v1.8.0") && spec.on("nodeStatusExporter.enabled", false) {
		add("nodeStatusExporter")
	}
	if !since("v1.11.0") || !spec.on("sandboxWorkloads.enabled", false) {
		return out
	}
	kubevirt := !since("v26.3.0") || spec.text("sandboxWorkloads.mode") == "kubevirt"
	kata := spec.text("sandboxWorkloads.mode") == "kata"
	if spec.on("vgpuManager.enabled", false) {
		tagged("vgpuManager")
		add("vgpuManager.driverManager")
	}
	if spec.on("vgpuDeviceManager.enabled", false) {
		add("vgpuDeviceManager")
	}
	if spec.on("vfioManager.enabled", false) {
		add("vfioManager")
		add("vfioManager.driverManager")
	}
	if spec.on("sandboxDevicePlugin.enabled", false) && kubevirt {
		add("sandboxDevicePlugin")
	}
	if since("v26.3.0") && spec.on("kataSandboxDevicePlugin.enabled", false) && kata {
		add("kataSandboxDevicePlugin")
	}
	if since("v23.6.0") && !since("v26.7.0") && spec.on("kataManager.enabled", false) {
		add("kataManager")
	}
	if since("v23.6.0") && spec.on("ccManager.enabled", false) && (!since("v26.3.0") || kata) {
		add("ccManager")
	}
	return out
}

// systemTag returns the operating system in a driver tag, like kernelFullVersion (up to v25.10) and getGPUNodeOSInfo
// (later releases).
func systemTag(since func(string) bool, system string) string {
	id := strings.TrimRight(system, "0123456789.")
	major, _, _ := strings.Cut(strings.TrimPrefix(system, id), ".")
	if since("v26.7.0") && (id == "rhel" || id == "rocky" || id == "ol") ||
		since("v26.3.0") && (id == "rocky" || id == "rhel" && len(major) > 1) {
		return id + major
	}
	return system
}

const kernel = "6.8.0-60-generic"

// cases returns the settings of each compared installation, by name.
func cases() map[string]map[string]any {
	digest := "sha256:" + strings.Repeat("ab", 32)
	vgpu := map[string]any{"vgpuManager.repository": "r.example.com/vgpu", "vgpuManager.image": "vgpu-manager", "vgpuManager.version": "580.95.02"}
	sandbox := map[string]any{"sandboxWorkloads.enabled": true, "sandboxWorkloads.mode": "kubevirt", "ccManager.enabled": true, "kataManager.enabled": true,
		"kataManager.repository": "r.example.com/kata", "kataManager.image": "kata-manager", "kataManager.version": "v1",
		"kataSandboxDevicePlugin.enabled": true, "vgpuManager.enabled": false, "driver.enabled": false}
	over := func(a map[string]any, b map[string]any) map[string]any {
		out := maps.Clone(a)
		maps.Copy(out, b)
		return out
	}
	mirror, off := map[string]any{"nfd.enabled": false, "dcgm.enabled": true, "gds.enabled": true, "gdrcopy.enabled": true, "sandboxWorkloads.enabled": true, "ccManager.enabled": true}, map[string]any{"nfd.enabled": false}
	for _, part := range []string{"operator", "operator.initContainer", "validator", "driver", "driver.manager", "toolkit", "devicePlugin", "dcgm", "dcgmExporter", "gfd", "migManager", "nodeStatusExporter", "gds", "gdrcopy",
		"vgpuManager", "vgpuManager.driverManager", "vgpuDeviceManager", "vfioManager", "vfioManager.driverManager", "sandboxDevicePlugin", "kataSandboxDevicePlugin", "kataManager", "ccManager"} {
		mirror[part+".repository"] = "r.example.com/mirror"
		if !slices.Contains([]string{"operator", "validator", "nodeStatusExporter"}, part) {
			mirror[part+".version"] = digest
		}
		if !strings.Contains(part, ".") && part != "operator" && part != "validator" {
			off[part+".enabled"] = false
		}
	}
	return map[string]map[string]any{
		"defaults":              {},
		"gds, gdrcopy and rdma": {"gds.enabled": true, "gdrcopy.enabled": true, "driver.rdma.enabled": true},
		"vGPU":                  over(vgpu, map[string]any{"sandboxWorkloads.enabled": true, "vgpuManager.enabled": true, "driver.enabled": false}),
		"sandbox, kubevirt":     sandbox,
		"sandbox, kata":         over(sandbox, map[string]any{"sandboxWorkloads.mode": "kata"}),
		"precompiled":           {"driver.usePrecompiled": true, "driver.version": "580"},
		"mirror with digests":   over(mirror, map[string]any{"vgpuManager.enabled": true, "vgpuManager.image": "vgpu-manager"}),
		"operands off":          off,
	}
}

// compareImages compares the images that gpuop lists with those that the operator pulls, for each case and three
// operating systems. spec returns the spec of the ClusterPolicy for values.
func compareImages(t *testing.T, v chart.Version, values tree, spec func(t *testing.T, values tree) tree) {
	for name, set := range cases() {
		t.Run(name, func(t *testing.T) {
			values := values.copy()
			var settings []chart.Setting
			for _, path := range slices.Sorted(maps.Keys(set)) {
				settings = append(settings, chart.Set(path, set[path], ""))
				values.set(path, set[path])
			}
			policy := spec(t, values)
			for _, system := range []string{"ubuntu22.04", "rhel9.6", "rhcos4.19"} {
				want := pulled(v, policy, system, kernel)
				addDeployments(v, values, want)
				have := map[string]bool{}
				nodes := images.Nodes{Systems: []string{system}, Kernels: []string{kernel}}
				for _, i := range listed(t, v.String(), nodes, false, settings...) {
					have[i.Name] = true
					if i.Note != "" {
						t.Errorf("%s has the note %q, want none", i.Name, i.Note)
					}
				}
				if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have))); diff != "" {
					t.Errorf("%s: images (-operator +gpuop):\n%s", system, diff)
				}
			}
		})
	}
}

// addDeployments adds the images of the chart's own Deployments: the operator and Node Feature Discovery.
func addDeployments(v chart.Version, values tree, out map[string]bool) {
	version := values.text("operator.version")
	if version == "" {
		version = v.String()
	}
	out[values.text("operator.repository")+"/"+values.text("operator.image")+":"+version] = true
	if values.on("nfd.enabled", true) {
		out[values.text("node-feature-discovery.image.repository")+":"+values.text("node-feature-discovery.image.tag")] = true
	}
}

func (t tree) copy() tree {
	out := tree{}
	for k, v := range t {
		if m, isMap := v.(map[string]any); isMap {
			v = map[string]any(tree(m).copy())
		}
		out[k] = v
	}
	return out
}

func readYAML(t *testing.T, path ...string) (out map[string]any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	if err == nil {
		err = yaml.Unmarshal(data, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// valuesOf returns the chart's default values. It adds the defaults of Node Feature Discovery, a subchart, under the
// key node-feature-discovery.
func valuesOf(t *testing.T, data string, v chart.Version) tree {
	t.Helper()
	values := tree(readYAML(t, data, v.String(), "values.yaml"))
	part := filepath.Join(data, v.String(), "charts", "node-feature-discovery")
	discovery := tree(readYAML(t, part, "values.yaml"))
	if own, _ := values.at("node-feature-discovery.image").(map[string]any); own != nil {
		maps.Copy(discovery["image"].(map[string]any), own)
	}
	if discovery.text("image.tag") == "" {
		discovery.set("image.tag", readYAML(t, part, "Chart.yaml")["appVersion"])
	}
	values["node-feature-discovery"] = map[string]any(discovery)
	return values
}

// The test compares List with the images that the operator pulls, in a sample of releases. The chart's values serve as
// the ClusterPolicy.
func TestImagesAreThoseThatTheOperatorPulls(t *testing.T) {
	data := charts.Data(t)
	for _, v := range charts.Sample(chart.Load().Versions(), 14) {
		t.Run(v.String(), func(t *testing.T) {
			compareImages(t, v, valuesOf(t, data, v), func(_ *testing.T, values tree) tree {
				spec := values.copy()
				for _, part := range []string{"validator", "nodeStatusExporter"} {
					if spec[part] != nil && spec.text(part+".version") == "" {
						spec.set(part+".version", v.String()) // the templates fill in the chart's version
					}
				}
				return spec
			})
		})
	}
}

// The test compares List with the images that the operator pulls for a ClusterPolicy. Helm's engine renders it from the
// templates in the operator's repository.
func TestImagesAreThoseOfTheRenderedClusterPolicy(t *testing.T) {
	clone, data := charts.Source(t), charts.Data(t)
	for _, v := range charts.Sample(chart.Load().Versions(), 7) {
		t.Run(v.String(), func(t *testing.T) {
			templates := chartOf(t, clone, v)
			compareImages(t, v, valuesOf(t, data, v), func(t *testing.T, values tree) tree {
				return rendered(t, templates, values)
			})
		})
	}
}

// chartOf reads the operator's chart without its subchart, which is not in the repository.
func chartOf(t *testing.T, clone string, v chart.Version) *helmchart.Chart {
	t.Helper()
	const dir = "deployments/gpu-operator/"
	packed, err := exec.Command("git", "-C", clone, "archive", v.String(), dir).Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []*loader.BufferedFile
	reader := tar.NewReader(bytes.NewReader(packed))
	for {
		h, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(h.Name, dir)
		if h.Typeflag != tar.TypeReg || strings.HasPrefix(name, "charts/") {
			continue
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, &loader.BufferedFile{Name: name, Data: text})
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	c.Metadata.Dependencies, c.Metadata.Version, c.Metadata.AppVersion = nil, v.String(), v.String()
	return c
}

// rendered returns the spec of the ClusterPolicy that the chart renders for values.
func rendered(t *testing.T, c *helmchart.Chart, values tree) tree {
	t.Helper()
	given, err := chartutil.ToRenderValues(c, values.copy(), chartutil.ReleaseOptions{Name: "gpu-operator", Namespace: "gpu-operator", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	manifests, err := engine.Render(c, given)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range manifests {
		var object struct {
			Kind string         `yaml:"kind"`
			Spec map[string]any `yaml:"spec"`
		}
		if !strings.Contains(text, "kind: ClusterPolicy") {
			continue
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "ClusterPolicy" {
			return object.Spec
		}
	}
	t.Fatal("found no ClusterPolicy in the rendered manifests")
	return nil
}

// switched lists sections that the default values do not deploy, because they or sandboxWorkloads are disabled. Some
// releases' templates omit their images.
var switched = []string{"gds", "sandboxDevicePlugin", "vfioManager", "vfioManager.driverManager", "vgpuDeviceManager", "vgpuManager", "vgpuManager.driverManager"}

// The list with disabled operands must equal the images that the chart renders. Only sections in switched may be
// missing from the chart. The list without disabled operands must be a subset of the rendered images.
func TestImagesAreThoseThatTheChartRenders(t *testing.T) {
	var rendered map[string][]string
	charts.Read(t, filepath.Join(charts.Data(t), "rendered-images.json"), &rendered)
	if len(rendered) != 42 {
		t.Fatalf("releases = %d, want 42", len(rendered))
	}
	table := chart.Load()
	for name, want := range rendered {
		t.Run(name, func(t *testing.T) {
			if _, exact, err := table.Resolve(name); err != nil || !exact {
				t.Fatalf("Resolve(%s): exact = %v, error = %v, want the exact release", name, exact, err)
			}
			for i := range want {
				// three charts are from the source tree, which has the placeholder devel-ubi8 as the tag
				want[i] = strings.ReplaceAll(want[i], ":devel-ubi8", ":"+name)
			}
			slices.Sort(want)
			list := func(all bool) (out []string) {
				for _, i := range listed(t, name, images.Nodes{}, all) {
					if !all || slices.Contains(want, i.Name) || !slices.Contains(switched, i.Operand) {
						out = append(out, i.Name)
					}
				}
				slices.Sort(out)
				return out
			}
			if diff := cmp.Diff(slices.Compact(want), list(true)); diff != "" {
				t.Errorf("images (-chart +gpuop):\n%s", diff)
			}
			for _, i := range list(false) {
				if !slices.Contains(want, i) {
					t.Errorf("%s is listed but not rendered by the chart", i)
				}
			}
		})
	}
}
