package text_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

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
