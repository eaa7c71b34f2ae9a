package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
)

func TestXIDMessage(t *testing.T) {
	for code, want := range map[int64]string{
		-1: "Unknown Error", 0: "No Error", 5: "Unknown Error", 13: "Graphics Engine Exception",
		48: "Double Bit ECC Error", 79: "GPU has fallen off the bus", 94: "Contained ECC error", 119: "GSP RPC Timeout",
		172: "Uncorrectable SRAM Error", 173: "Unknown Error", 1 << 40: "Unknown Error",
	} {
		if got := catalog.XIDMessage(code); got != want {
			t.Errorf("XID %d: message = %q, want %q", code, got, want)
		}
	}
	for _, code := range catalog.AlertXIDs() {
		if catalog.XIDMessage(code) == catalog.XIDMessage(-1) {
			t.Errorf("XID %d is used by an alert but has no message", code)
		}
	}
}

func TestClockEvents(t *testing.T) {
	all := []string{
		"gpu_idle", "clocks_setting", "power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal",
		"hw_power_brake", "display_clocks",
	}
	for _, test := range []struct {
		mask int64
		want []string
	}{
		{0, nil}, {1, all[:1]}, {0x44, []string{"power_cap", "hw_thermal"}},
		{0x200, nil}, // a bit without a name
		{-1, all},
	} {
		var got []string
		for e := range catalog.ClockEvents(test.mask) {
			got = append(got, e.Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("mask %#x (-want +got)\n%s", test.mask, diff)
		}
	}
}
