package adopt_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/adopt"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/finding"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/lint"
)

func TestImageIsSplitAsTheOperatorJoinsIt(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	for _, tt := range []struct {
		image string
		want  []any
	}{
		{"ghcr.io/gpu-telemetry/dcgm-exporter:1.2.3", []any{"ghcr.io/gpu-telemetry", "dcgm-exporter", "1.2.3"}},
		{"registry.example.com:5000/a/b/exporter@" + digest, []any{"registry.example.com:5000/a/b", "exporter", digest}},
	} {
		settings, err := adopt.Settings(tt.image)
		if err != nil {
			t.Errorf("%s: %v", tt.image, err)
			continue
		}
		var got []any
		for _, s := range settings[1:] {
			got = append(got, s.Value)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.image, diff)
		}
	}
	for _, image := range []string{"", "exporter", "ghcr.io/x/exporter", "https://ghcr.io/x/exporter:1", "ghcr.io/x/exporter:1 2"} {
		if _, err := adopt.Settings(image); !errors.Is(err, adopt.ErrImage) {
			t.Errorf("%q: %v, want ErrImage", image, err)
		}
	}
}

func TestRequest(t *testing.T) {
	table := chart.Load()
	old, _, _ := table.Resolve("v1.11.0")
	for _, tt := range []struct {
		name  string
		r     adopt.Request
		paths []string
	}{
		{"newest", adopt.Request{Version: table.Latest()}, []string{"dcgmExporter.enabled", "dcgmExporter.repository", "dcgmExporter.image", "dcgmExporter.version"}},
		{"before the switch", adopt.Request{Version: old}, []string{"dcgmExporter.repository", "dcgmExporter.image", "dcgmExporter.version"}},
		{"counters and monitor", adopt.Request{Version: table.Latest(), Counters: "c", ServiceMonitor: "off"},
			[]string{"dcgmExporter.enabled", "dcgmExporter.repository", "dcgmExporter.image", "dcgmExporter.version", "dcgmExporter.config.name", "dcgmExporter.serviceMonitor.enabled"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.r.Image = "ghcr.io/x/dcgm-exporter:1"
			settings, err := tt.r.Settings()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, s := range settings {
				got = append(got, s.Path.String())
				if v := table.Judge(tt.r.Version, s.Path); v.Status != chart.Known {
					t.Errorf("%s does not have %s", tt.r.Version, s.Path)
				}
			}
			if diff := cmp.Diff(tt.paths, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, err := (adopt.Request{Image: "ghcr.io/x/y:1", ServiceMonitor: "maybe"}).Settings(); !errors.Is(err, adopt.ErrOption) {
		t.Errorf("%v, want ErrOption", err)
	}
}

func TestPatchBesideTheOperatorsExporterIsSafe(t *testing.T) {
	_, patch, err := adopt.Beside("ghcr.io/x/dcgm-exporter:1")
	if err != nil {
		t.Fatal(err)
	}
	judged, err := lint.Lint(lint.Options{Files: []lint.Input{{Name: "patch", Data: []byte(patch)}}, Taints: []string{"nvidia.com/gpu:NoSchedule"}})
	if err != nil {
		t.Fatal(err)
	}
	if judged.Report.AtLeast(finding.Info) {
		t.Errorf("%v", judged.Report.Findings)
	}
	for _, must := range []string{"nvidia.com/gpu.deploy.client: \"true\"", "runtimeClassName: nvidia", "DCGM_REMOTE_HOSTENGINE_INFO"} {
		if !strings.Contains(patch, must) {
			t.Errorf("the patch lacks %s", must)
		}
	}
}
