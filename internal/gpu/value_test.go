package gpu_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestZeroValueIsAbsent(t *testing.T) {
	for name, v := range map[string]gpu.Value{
		"zero": {}, "not a number": gpu.Float(math.NaN()), "empty text": gpu.Text(""),
	} {
		if _, number := v.Number(); !v.IsAbsent() || number || v.String() != "" {
			t.Errorf("%s: value = %#v, want an absent one", name, v)
		}
	}
	for name, v := range map[string]gpu.Value{"0": gpu.Int(0), "0 ": gpu.Float(0), "x": gpu.Text("x")} {
		if v.IsAbsent() {
			t.Errorf("%s is absent, want present", name)
		}
	}
}

func TestScale(t *testing.T) {
	for _, c := range []struct {
		value  gpu.Value
		factor float64
		want   string
	}{
		{gpu.Int(1980), 1e6, "1980000000"},       // MHz to hertz remains an integer
		{gpu.Int(81559), 1 << 20, "85520809984"}, // MiB to bytes
		{gpu.Int(-3), 1000, "-3000"},
		{gpu.Int(math.MaxInt64), 2, "1.8446744073709552e+19"}, // does not overflow
		{gpu.Int(math.MinInt64), -1, "9.223372036854776e+18"},
		{gpu.Int(35), 0.01, "0.35"},
		{gpu.Float(99.5), 0.01, "0.995"},
		{gpu.Int(361800001), 0.001, "361800.001"},
		{gpu.Float(1.5), 2, "3"},
		{gpu.Text("x"), 2, "x"},
		{gpu.Value{}, 2, ""},
	} {
		if got := c.value.Scale(c.factor).String(); got != c.want {
			t.Errorf("%v × %v = %s, want %s", c.value, c.factor, got, c.want)
		}
	}
}

// A percentage converted to a ratio is an exact decimal.
func TestPercentAsRatio(t *testing.T) {
	for percent := range int64(101) {
		want := strconv.FormatFloat(float64(percent)/100, 'g', -1, 64)
		if got := gpu.Int(percent).Scale(0.01).String(); got != want {
			t.Errorf("%d percent = %s, want %s", percent, got, want)
		}
	}
}
