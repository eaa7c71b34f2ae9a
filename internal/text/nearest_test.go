package text_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

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
		if longer > 0 {
			if near := text.Distance(a, b, d/2); d > 0 && near != d/2+1 {
				t.Errorf("distance with limit %d = %d, want %d; without a limit it is %d", d/2, near, d/2+1, d)
			}
		}
		if more := text.Distance(a+"x", b, longer+1); more > d+1 || more < d-1 {
			t.Errorf("one more letter changes the distance from %d to %d, want at most 1", d, more)
		}
	})
}
