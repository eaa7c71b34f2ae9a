package catalog_test

import (
	"math"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestConversion(t *testing.T) {
	for _, tt := range []struct {
		from, to gpu.Unit
		factor   float64
		ok       bool
	}{
		{catalog.Megahertz, catalog.Hertz, 1e6, true}, {catalog.Hertz, catalog.Megahertz, 1e-6, true},
		{catalog.Percent, catalog.Ratio, 0.01, true}, {catalog.Mebibytes, catalog.Bytes, 1048576, true},
		{catalog.MegabytesPerSecond, catalog.BytesPerSecond, 1024000, true},
		{catalog.Nanoseconds, catalog.Milliseconds, 1e-6, true}, {catalog.Milliwatts, catalog.Watts, 1e-3, true},
		{catalog.Celsius, catalog.Celsius, 1, true}, {"", "", 1, true}, {catalog.Celsius, catalog.Watts, 0, false},
		{catalog.Bytes, catalog.BytesPerSecond, 0, false}, {"", catalog.Bytes, 0, false},
	} {
		got, ok := catalog.Conversion(tt.from, tt.to)
		back, also := catalog.Conversion(tt.to, tt.from)
		isInverse := !ok || math.Abs(got*back-1) <= 1e-12
		if math.Abs(got-tt.factor) > tt.factor*1e-12 || ok != tt.ok || also != tt.ok || !isInverse {
			t.Errorf("%q to %q: factor = %v (%t), back = %v (%t); want %v (%t)",
				tt.from, tt.to, got, ok, back, also, tt.factor, tt.ok)
		}
	}
}
