package chart_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

func TestResolve(t *testing.T) {
	for _, tt := range []struct {
		in, want string
		exact    bool
		bad      bool
	}{
		{in: "v26.7.0", want: "v26.7.0", exact: true},
		{in: "1.11.0", want: "v1.11.0", exact: true},
		{in: "", want: "v26.7.0", exact: true},
		{in: "latest", want: "v26.7.0", exact: true},
		{in: "v23.9", want: "v23.9.2", exact: true},
		{in: "v25.3.9", want: "v25.3.4"},
		{in: "v26.7.3", want: "v26.7.0"},
		{in: "v22.12.0", want: "v22.9.2"},
		{in: "v1.6.0", bad: true},
		{in: "v31.1.0", want: "v26.7.0"},
		{in: "newest", bad: true},
		{in: "v26.7.O", bad: true},
	} {
		got, exact, err := chart.Load().Resolve(tt.in)
		if tt.bad {
			if !errors.Is(err, chart.ErrVersion) {
				t.Errorf("Resolve(%q) = %v, error %v; want ErrVersion", tt.in, got, err)
			}
			continue
		}
		if got.String() != tt.want || exact != tt.exact || err != nil {
			t.Errorf("Resolve(%q) = %v, exact %t, error %v; want %s, exact %t", tt.in, got, exact, err, tt.want, tt.exact)
		}
	}
}

func TestDefaultsThatFlipped(t *testing.T) {
	for _, tt := range []struct {
		path, before, after string
		old, current        any
	}{
		{"gfd.image", "v23.9.2", "v24.3.0", "gpu-feature-discovery", "k8s-device-plugin"},
		{"migManager.config.name", "v24.3.0", "v24.6.0", "default-mig-parted-config", ""},
		{"operator.upgradeCRD", "v24.6.2", "v24.9.0", false, true},
		{"cdi.enabled", "v25.3.4", "v25.10.0", false, true},
		{"validator.image", "v25.3.4", "v25.10.0", "gpu-operator-validator", "gpu-operator"},
		{"nodeStatusExporter.image", "v25.3.4", "v25.10.0", "gpu-operator-validator", "gpu-operator"},
		{"ccManager.enabled", "v25.10.1", "v26.3.0", false, true},
		{"dcgmExporter.serviceMonitor.enabled", "v26.3.3", "v26.7.0", false, true},
	} {
		t.Run(tt.path, func(t *testing.T) {
			table := chart.Load()
			before, _, _ := table.Resolve(tt.before)
			after, _, _ := table.Resolve(tt.after)
			if got, known := table.Default(before, tt.path); got != tt.old || !known {
				t.Errorf("default at %s = %v (known: %t), want %v", before, got, known, tt.old)
			}
			if got, known := table.Default(after, tt.path); got != tt.current || !known {
				t.Errorf("default at %s = %v (known: %t), want %v", after, got, known, tt.current)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	for _, tt := range []struct {
		version, path string
		want          chart.Status
		nearest       string
	}{
		{"v26.7.0", "driver.enabled", chart.Known, ""},
		{"v26.7.0", "driver", chart.Group, ""},
		{"v26.7.0", "drivr.enabled", chart.Unknown, "driver.enabled"},
		{"v26.7.0", "mig.stratgey", chart.Unknown, "mig.strategy"},
		{"v26.7.0", "dcgm-exporter.enabled", chart.Unknown, "dcgmExporter.enabled"},
		{"v26.7.0", "gpuFeatureDiscovery.enabled", chart.Unknown, "gfd.enabled"},
		{"v26.7.0", "validator.image.repository", chart.TooDeep, ""},
		{"v26.7.0", "psp.enabled", chart.Gone, ""},
		{"v26.7.0", "psp", chart.Gone, ""},
		{"v26.7.0", "driver.useOpenKernelModules", chart.Gone, "driver.kernelModuleType"},
		{"v1.11.0", "driver.usePrecompiled", chart.NotYet, ""},
		{"v1.11.0", "gdrcopy", chart.NotYet, ""},
		{"v26.7.0", `daemonsets.labels.example\.com/team`, chart.Free, ""},
		{"v26.7.0", `operator.annotations.openshift\.io/sc`, chart.Misspelled, `operator.annotations.openshift\.io/scc`},
		{"v26.7.0", `operator.annotations.example\.com/x`, chart.Free, ""},
		{"v26.7.0", "driver.toolkit.enabled", chart.Unknown, "toolkit.enabled"},
		{"v26.7.0", "driver.licensingConfig.configMapName", chart.Known, ""},
		{"v26.7.0", "driver.licensingConfig.secertName", chart.Unknown, "driver.licensingConfig.secretName"},
		{"v26.7.0", `operator.nodeSelector.gpu`, chart.Free, ""},
		{"v1.7.0", `operator.nodeSelector.gpu`, chart.Free, ""},
		{"v26.7.0", "node-feature-discovery.worker.config.sources.custom", chart.Free, ""},
		{"v26.7.0", "daemonsets.tolerations.key", chart.BelowList, ""},
		{"v26.7.0", "operator.resources.limits.memry", chart.Misspelled, "operator.resources.limits.memory"},
		{"v26.7.0", "operator.labels.x", chart.Free, ""},
		{"v26.7.0", "node-feature-discovery.image.tag", chart.Known, ""},
		{"v26.7.0", "node-feature-discovery.master.hostNetwork", chart.Known, ""},
		{"v26.7.0", "node-feature-discovery.wroker.tolerations", chart.Unknown, "node-feature-discovery.worker.tolerations"},
	} {
		table := chart.Load()
		v, _, err := table.Resolve(tt.version)
		if err != nil {
			t.Fatal(err)
		}
		got := table.Lookup(v, chart.ParsePath(tt.path))
		if got.Status != tt.want || got.Nearest.String() != tt.nearest {
			t.Errorf("%s %s: status %d, nearest %q; want status %d, nearest %q", tt.version, tt.path, got.Status, got.Nearest, tt.want, tt.nearest)
		}
	}
}

// A chart that is read without its CRDs keeps the fields that the table has for its release.
func TestReleaseWithoutCRDs(t *testing.T) {
	v := chart.Load().Latest()
	table := chart.Load().With(&chart.Release{Version: v})
	if diff := cmp.Diff(chart.Load().AllFields(v), table.AllFields(v)); diff != "" {
		t.Errorf("fields of %s (-want +got):\n%s", v, diff)
	}
}

func TestEveryKeyIsExplained(t *testing.T) {
	for _, k := range chart.Load().AllKeys() {
		if a := chart.Load().About(k.Path); a.Reader == "" || a.Text == "" {
			t.Errorf("%s has no description, want a reader and a text", k.Path)
		}
	}
}

// Lookup accepts all names that a YAML file can have, including empty ones. Lookup must not panic, and Bad must be an
// index of the path. ParsePath must restore a path from its string.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{"", "\n", "\nenabled", "driver\n", "driver\nversion\nx", "driver\n\nenabled", `""`, "gpu.operator", "node-feature-discovery\n\n"} {
		f.Add(s)
	}
	table := chart.Load()
	releases := table.Versions()
	releases = []chart.Version{releases[0], releases[len(releases)/2], releases[len(releases)-1]}
	f.Fuzz(func(t *testing.T, s string) {
		path := chart.Path(strings.Split(s, "\n"))
		if back := chart.ParsePath(path.String()); !slices.Equal(back, path) {
			t.Errorf("%q is printed as %s, which is parsed as %q", path, path, back)
		}
		for _, v := range releases {
			got := table.Lookup(v, path)
			if got.Bad < 0 || got.Bad >= len(path) {
				t.Errorf("%s: %q: index of the first unknown name = %d, want less than %d", v, path, got.Bad, len(path))
			}
			if path[0] == "" && got.Status != chart.Unknown && path[min(1, len(path)-1)] != "global" {
				t.Errorf("%s: %q: status %d, want unknown", v, path, got.Status)
			}
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, s := range []string{"a.b", `a\.b.c`, "", ".", `\`, `x\\.y`, `""`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		path := chart.ParsePath(s)
		if diff := cmp.Diff(path, chart.ParsePath(path.String())); diff != "" {
			t.Errorf("%q: the printed path is parsed differently (-parsed +parsed again):\n%s", s, diff)
		}
	})
}
