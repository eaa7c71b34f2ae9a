package text_test

import (
	"testing"

	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

func TestLabelName(t *testing.T) {
	for name, want := range map[string]string{
		"app": "app", "app.kubernetes.io/name": "app_kubernetes_io_name", "9-lives": "_9_lives", "": "_", "---": "_",
		"__name__": "_name__", "_a": "_a", "__9": "_9", "a:b": "a_b", "\u00e4": "_",
	} {
		if got := text.LabelName(name); got != want {
			t.Errorf("%q becomes %q, want %q", name, got, want)
		}
	}
}

// FuzzNames checks that Prometheus accepts every result and that a result is unchanged by a second call.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"", "a", "9", "__a", "a:b", "\u00e4", "-"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		label, metric := text.LabelName(name), text.MetricName(name)
		if !model.LegacyValidation.IsValidLabelName(label) || len(label) > 1 && label[:2] == "__" {
			t.Errorf("%q becomes the label %q, want a valid label name without the prefix __", name, label)
		}
		if !model.LegacyValidation.IsValidMetricName(metric) {
			t.Errorf("%q becomes the metric %q, want a valid metric name", name, metric)
		}
		if text.LabelName(label) != label || text.MetricName(metric) != metric {
			t.Errorf("label %q or metric %q changes when it is converted again, want no change", label, metric)
		}
	})
}
