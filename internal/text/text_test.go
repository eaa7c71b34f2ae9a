package text_test

import (
	"testing"

	"github.com/prometheus/common/model"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

func TestLabelName(t *testing.T) {
	for name, want := range map[string]string{
		"app": "app", "app.kubernetes.io/name": "app_kubernetes_io_name", "9-lives": "_9_lives", "": "_", "---": "_",
		"__name__": "_name__", "_a": "_a", "__9": "_9", "a:b": "a_b", "\u00e4": "_", "a\u00e4": "a__",
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

func TestNearest(t *testing.T) {
	flags := []string{"collectors", "collect-interval", "address", "devices"}
	for word, want := range map[string]string{
		"colectors":        "collectors",
		"collectosr":       "collectors", // a swap is one edit
		"collect_interval": "collect-interval", "addr": "address",
		"collect": "", // ambiguous
		"":        "", "devices": "devices",
	} {
		if got := text.Nearest(word, flags); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

// FuzzDistance checks the properties of a distance: symmetric, zero only for equal words, at most the length of the
// longer word, and bounded by the limit. One edit changes it by at most one.
func FuzzDistance(f *testing.F) {
	f.Add("collectors", "colectors")
	f.Add("ab", "ba")
	f.Add("", "x")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > text.Longest-1 || len(b) > text.Longest-1 {
			return // the length of compared words is limited
		}
		longer := max(len(a), len(b))
		d := text.Distance(a, b, longer)
		if back := text.Distance(b, a, longer); d != back {
			t.Errorf("distance = %d, in the other direction %d, want equal distances", d, back)
		}
		if (d == 0) != (a == b) || d > longer {
			t.Errorf("distance = %d between %q and %q, want 0 only for equal words", d, a, b)
		}
		if near := text.Distance(a, b, d/2); d > 0 && near != d/2+1 {
			t.Errorf("distance with limit %d = %d, want %d; without a limit it is %d", d/2, near, d/2+1, d)
		}
		if more := text.Distance(a+"x", b, longer+1); more > d+1 || more < d-1 {
			t.Errorf("one more letter changes the distance from %d to %d, want at most 1", d, more)
		}
	})
}

// Every digit and every dash of a UUID must be in its place.
func TestIsUUID(t *testing.T) {
	const uuid = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
	for i := range uuid {
		for _, other := range []string{"g", "-", "A"} {
			changed := uuid[:i] + other + uuid[i+1:]
			want := other == uuid[i:i+1] || other == "A" && uuid[i] != '-'
			if got := text.IsUUID(changed); got != want {
				t.Errorf("IsUUID(%q) = %t, want %t", changed, got, want)
			}
		}
	}
	for _, s := range []string{"", uuid + "0", uuid[1:]} {
		if text.IsUUID(s) {
			t.Errorf("IsUUID(%q) = true, want false", s)
		}
	}
}
