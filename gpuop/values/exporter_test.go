package values_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/values"
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
		plan, err := values.Generate(values.Request{Platform: "generic", Features: []string{"exporter"}, Version: release(t, "v26.7.0"), Exporter: tt.image})
		if err != nil {
			t.Errorf("image %s: error = %v, want none", tt.image, err)
			continue
		}
		var got []any
		for _, key := range []string{"repository", "image", "version"} {
			for _, s := range plan.Values {
				if s.Path.String() == "dcgmExporter."+key {
					got = append(got, s.Value)
				}
			}
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("image %s: repository, image and version (-want +got):\n%s", tt.image, diff)
		}
	}
	for _, image := range []string{"", "exporter", "ghcr.io/x/exporter", "https://ghcr.io/x/exporter:1", "ghcr.io/x/exporter:1 2"} {
		_, err := values.Generate(values.Request{Platform: "generic", Features: []string{"exporter"}, Version: release(t, "v26.7.0"), Exporter: image})
		if !errors.Is(err, values.ErrImage) {
			t.Errorf("%q: error = %v, want ErrImage", image, err)
		}
	}
}
