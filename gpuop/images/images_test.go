package images_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/images"
)

// listed returns the images of a release.
func listed(t *testing.T, version string, nodes images.Nodes, all bool, settings ...chart.Setting) []images.Image {
	t.Helper()
	table := chart.Load()
	v, _, err := table.Resolve(version)
	if err != nil {
		t.Fatal(err)
	}
	found, err := images.List(table, v, settings, nodes, all)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func list(t *testing.T, version string, nodes images.Nodes, settings ...chart.Setting) (names []string) {
	t.Helper()
	for _, i := range listed(t, version, nodes, false, settings...) {
		names = append(names, i.Name)
	}
	return names
}

var anyOrder = cmpopts.SortSlices(func(a, b string) bool { return a < b })

func TestDefaults(t *testing.T) {
	want := []string{
		"nvcr.io/nvidia/gpu-operator:v26.7.0",
		"nvcr.io/nvidia/driver:595.91.07-ubuntu24.04", "nvcr.io/nvidia/driver:595.91.07-rhel9",
		"nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0",
		"nvcr.io/nvidia/k8s/container-toolkit:v1.20.0",
		"nvcr.io/nvidia/k8s-device-plugin:v0.20.0", // used by the device plugin and GPU Feature Discovery
		"nvcr.io/nvidia/k8s/dcgm-exporter:4.6.0-4.8.3-distroless",
		"nvcr.io/nvidia/cloud-native/k8s-mig-manager:v0.15.0",
		"registry.k8s.io/nfd/node-feature-discovery:v0.19.0",
	}
	if diff := cmp.Diff(want, list(t, "latest", images.Nodes{Systems: []string{"ubuntu24.04", "rhel9.6"}}), anyOrder); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
}

func TestWhatRunsIsListed(t *testing.T) {
	off := func(paths ...string) (out []chart.Setting) {
		for _, p := range paths {
			out = append(out, chart.Set(p, false, ""))
		}
		return out
	}
	none := off("driver.enabled", "toolkit.enabled", "devicePlugin.enabled", "gfd.enabled", "dcgmExporter.enabled", "migManager.enabled", "nfd.enabled")
	for _, tt := range []struct {
		name, version string
		nodes         images.Nodes
		settings      []chart.Setting
		want          []string
	}{
		{"nothing but the operator", "latest", images.Nodes{}, none, []string{"nvcr.io/nvidia/gpu-operator:v26.7.0"}},
		{"a private registry, a digest", "latest", images.Nodes{}, append(none, chart.Set("operator.repository", "r.example.com/a", ""), chart.Set("validator.repository", "r.example.com/a", ""),
			chart.Set("dcgm.enabled", true, ""), chart.Set("dcgm.version", "sha256:ab", "")),
			[]string{"r.example.com/a/gpu-operator:v26.7.0", "nvcr.io/nvidia/cloud-native/dcgm@sha256:ab"}},
		{"precompiled driver for each kernel", "latest", images.Nodes{Systems: []string{"ubuntu24.04"}, Kernels: []string{"6.8.0-60-generic", "6.8.0-71-generic"}},
			append(none[1:], chart.Set("driver.usePrecompiled", true, ""), chart.Set("driver.version", "580", "")),
			[]string{"nvcr.io/nvidia/gpu-operator:v26.7.0", "nvcr.io/nvidia/driver:580-6.8.0-60-generic-ubuntu24.04", "nvcr.io/nvidia/driver:580-6.8.0-71-generic-ubuntu24.04", "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.12.0"}},
		{"the minor version of RHEL before v26.7", "v26.3.3", images.Nodes{Systems: []string{"rhel9.6"}}, none[1:],
			[]string{"nvcr.io/nvidia/gpu-operator:v26.3.3", "nvcr.io/nvidia/driver:580.126.20-rhel9.6", "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.11.0"}},
		{"the major version of Rocky Linux and of RHEL 10 since v26.3", "v26.3.3", images.Nodes{Systems: []string{"rocky9.7", "rhel10.1", "ol8.10"}}, none[1:],
			[]string{"nvcr.io/nvidia/gpu-operator:v26.3.3", "nvcr.io/nvidia/driver:580.126.20-rocky9", "nvcr.io/nvidia/driver:580.126.20-rhel10", "nvcr.io/nvidia/driver:580.126.20-ol8.10", "nvcr.io/nvidia/cloud-native/k8s-driver-manager:v0.11.0"}},
		{"before v22.9: operands without enabled, validator with its own image", "v1.11.1", images.Nodes{}, off("driver.enabled", "toolkit.enabled", "migManager.enabled", "nfd.enabled"),
			[]string{"nvcr.io/nvidia/gpu-operator:v1.11.1", "nvcr.io/nvidia/cuda:11.6.0-base-ubi8", "nvcr.io/nvidia/cloud-native/gpu-operator-validator:v1.11.1",
				"nvcr.io/nvidia/k8s-device-plugin:v0.12.2-ubi8", "nvcr.io/nvidia/gpu-feature-discovery:v0.6.1-ubi8", "nvcr.io/nvidia/k8s/dcgm-exporter:2.4.5-2.6.7-ubuntu20.04"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, list(t, tt.version, tt.nodes, tt.settings...), anyOrder); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNotes expects a note on the driver's image if driver.version cannot be right: precompiled images are tagged with
// a branch, and every tag ends in the operating system. An empty version stays empty: the chart has a default only for
// its own images and for Node Feature Discovery.
func TestNotes(t *testing.T) {
	precompiled := chart.Set("driver.usePrecompiled", true, "")
	version := func(v string) chart.Setting { return chart.Set("driver.version", v, "") }
	one := images.Nodes{Systems: []string{"ubuntu22.04"}, Kernels: []string{kernel}}
	two := images.Nodes{Systems: []string{"ubuntu22.04", "ubuntu24.04"}}
	const driver, suffix, branch = "nvcr.io/nvidia/driver:", "-" + kernel + "-ubuntu22.04", "needs a driver branch"
	for _, tt := range []struct {
		nodes    images.Nodes
		settings []chart.Setting
		note     string
		on       []string // images with this note
	}{
		{one, []chart.Setting{precompiled}, branch, []string{driver + "595.91.07" + suffix}},
		{one, []chart.Setting{precompiled, version("570.86.15")}, branch, []string{driver + "570.86.15" + suffix}},
		{one, []chart.Setting{precompiled, version("570")}, branch, nil},
		{two, []chart.Setting{version("580.105.08-ubuntu22.04")}, "remove it from driver.version",
			[]string{driver + "580.105.08-ubuntu22.04-ubuntu22.04"}},
		{images.Nodes{}, []chart.Setting{version(""), chart.Set("operator.version", "", "")}, ": set driver.version",
			[]string{"nvcr.io/nvidia/driver"}},
	} {
		var got []string
		for _, i := range listed(t, "latest", tt.nodes, len(tt.nodes.Systems) == 0, tt.settings...) {
			if strings.Contains(i.Note, tt.note) {
				got = append(got, i.Name)
			}
			if i.Operand == "operator" && i.Note != "" {
				t.Errorf("note of %s = %q, want none", i.Name, i.Note)
			}
		}
		if diff := cmp.Diff(tt.on, got); diff != "" {
			t.Errorf("%v: images with the note %q (-want +got):\n%s", tt.settings, tt.note, diff)
		}
	}
}

func TestNodesThatCannotBe(t *testing.T) {
	table := chart.Load()
	for _, n := range []images.Nodes{{Systems: []string{"windows"}}, {Systems: []string{"Ubuntu 24.04"}}, {Kernels: []string{"new"}}} {
		if _, err := images.List(table, table.Latest(), nil, n, false); !errors.Is(err, images.ErrNodes) {
			t.Errorf("nodes %+v: error = %v, want ErrNodes", n, err)
		}
	}
}

// TestMissingVersion lists the images of a chart that sets no versions. The note must name the key that sets the version.
func TestMissingVersion(t *testing.T) {
	v, err := chart.ParseVersion("v99.1.0")
	if err != nil {
		t.Fatal(err)
	}
	table := chart.Load().With(&chart.Release{Version: v, Values: map[string]any{
		"driver.enabled": true, "driver.repository": "nvcr.io/nvidia", "driver.image": "driver", "nfd.enabled": true,
		"node-feature-discovery.image.repository": "registry.k8s.io/nfd/node-feature-discovery",
	}, Reads: map[string]chart.Use{"driver.image": chart.Printed}})
	found, err := images.List(table, v, nil, images.Nodes{}, true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, i := range found {
		_, got[i.Operand], _ = strings.Cut(i.Note, ": set ")
	}
	want := map[string]string{"driver": "driver.version", "nfd": "node-feature-discovery.image.tag"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys in the notes (-want +got):\n%s", diff)
	}
}

// aRegistry starts a registry with an image, and returns its host.
func aRegistry(t *testing.T, image string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	reference, err := name.ParseReference(host + "/" + image)
	if err == nil {
		err = remote.Write(reference, empty.Image)
	}
	if err != nil {
		t.Fatal(err)
	}
	return host
}

// refusing starts a registry that answers every request with a status, and returns its host. Requests must be GET or
// HEAD.
func refusing(t *testing.T, status int) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			t.Errorf("request method = %s, want GET or HEAD", r.Method)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// Check sends only GET and HEAD requests to the registries.
func TestCheckAsksTheRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	host := aRegistry(t, "nvidia/driver:580.105.08-ubuntu24.04")
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	nobody := strings.TrimPrefix(gone.URL, "http://")
	want := []images.Checked{
		{Image: images.Image{Name: host + "/nvidia/driver:580.105.08-ubuntu24.04"}, Answer: images.Exists},
		{Image: images.Image{Name: host + "/nvidia/driver:580.105.08-rhel9"}, Answer: images.Missing},
		{Image: images.Image{Name: host + "/nvidia/drivers:580.105.08-ubuntu24.04"}, Answer: images.Missing},
		{Image: images.Image{Name: refusing(t, http.StatusNotFound) + "/a:1"}, Answer: images.Missing},
		{Image: images.Image{Name: refusing(t, http.StatusUnauthorized) + "/a:1"}, Answer: images.Unknown, Why: "access denied"},
		{Image: images.Image{Name: refusing(t, http.StatusForbidden) + "/a:1"}, Answer: images.Unknown, Why: "access denied"},
		{Image: images.Image{Name: refusing(t, http.StatusTooManyRequests) + "/a:1"}, Answer: images.Unknown, Why: "429"},
		{Image: images.Image{Name: nobody + "/a:1"}, Answer: images.Unknown, Why: "connection refused"},
		{Image: images.Image{Name: host + "/nvidia/driver:580.105.08", Note: "one image for each operating system"}, Answer: images.Unknown, Why: "not certain"},
		{Image: images.Image{Name: "no image"}, Answer: images.Unknown, Why: "could not parse"},
	}
	var list []images.Image
	for _, w := range want {
		list = append(list, w.Image)
	}
	got := images.Check(t.Context(), list)
	for i, w := range want {
		if got[i].Image != w.Image || got[i].Answer != w.Answer || !strings.Contains(got[i].Why, w.Why) || (w.Why == "") != (got[i].Why == "") {
			t.Errorf("%s: %s (%s), want %s (%s)", w.Name, got[i].Answer, got[i].Why, w.Answer, w.Why)
		}
		if strings.Contains(got[i].Why, "\n") {
			t.Errorf("%s: the reason has several lines: %q", w.Name, got[i].Why)
		}
	}
}
