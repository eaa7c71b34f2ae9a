package counters_test

import (
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
)

func BenchmarkParseDefault(b *testing.B) {
	text := string(etc.Default())
	for b.Loop() {
		if _, _, err := counters.Parse(strings.NewReader(text), "f"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNearest(b *testing.B) {
	for b.Loop() {
		_ = catalog.Nearest("DCGM_FI_DEV_NVLINK_REPLAY_ERRRO_COUNT_L3")
	}
}

func BenchmarkLookup(b *testing.B) {
	for b.Loop() {
		_, _ = catalog.Lookup("DCGM_FI_DEV_SM_CLOCK_HERTZ")
	}
}
