package snapshot

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The aggregates of samples of any sign and of both kinds of numbers are those of the samples: the
// extremes are samples, and the mean lies between them.
func TestSpread(t *testing.T) {
	for name, tt := range map[string]struct {
		in       []gpu.Value
		min, max gpu.Value
		mean     float64
	}{
		"all negative":        {[]gpu.Value{gpu.Int(-5), gpu.Int(-9), gpu.Int(-7)}, gpu.Int(-9), gpu.Int(-5), -7},
		"negative fractions":  {[]gpu.Value{gpu.Float(-0.5), gpu.Float(-1.5)}, gpu.Float(-1.5), gpu.Float(-0.5), -1},
		"all positive":        {[]gpu.Value{gpu.Int(9), gpu.Int(5)}, gpu.Int(5), gpu.Int(9), 7},
		"across zero":         {[]gpu.Value{gpu.Int(-1), gpu.Int(1)}, gpu.Int(-1), gpu.Int(1), 0},
		"one":                 {[]gpu.Value{gpu.Int(-3)}, gpu.Int(-3), gpu.Int(-3), -3},
		"beyond exact floats": {[]gpu.Value{gpu.Int(1<<53 + 1), gpu.Int(1 << 53)}, gpu.Int(1 << 53), gpu.Int(1<<53 + 1), 1 << 53},
		"a text among them":   {[]gpu.Value{gpu.Text("x"), gpu.Int(-3)}, gpu.Int(-3), gpu.Int(-3), -3},
	} {
		var s spread
		for _, v := range tt.in {
			s.add(v)
		}
		mean, _ := s.value(gpu.Mean).Number()
		if got := [2]gpu.Value{s.value(gpu.Min), s.value(gpu.Max)}; got != [2]gpu.Value{tt.min, tt.max} || mean != tt.mean {
			t.Errorf("%s: %v and mean %v, want %v, %v and %v", name, got, mean, tt.min, tt.max, tt.mean)
		}
	}
	var none spread
	if v := none.value(gpu.Max); !v.IsAbsent() {
		t.Errorf("of no sample: %v", v)
	}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var s spread
		low, high := math.Inf(1), math.Inf(-1)
		for range 1 + rng.IntN(6) {
			v := (rng.Float64() - 0.7) * 100
			low, high = min(low, v), max(high, v)
			s.add(gpu.Float(v))
		}
		smallest, _ := s.value(gpu.Min).Number()
		largest, _ := s.value(gpu.Max).Number()
		mean, _ := s.value(gpu.Mean).Number()
		if smallest != low || largest != high || mean < low-1e-9 || mean > high+1e-9 {
			t.Fatalf("seed %d: %v, %v, %v of samples from %v to %v", seed, smallest, largest, mean, low, high)
		}
	}
}
