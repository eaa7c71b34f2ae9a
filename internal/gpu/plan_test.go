package gpu_test

import (
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The interval of a field is the longer one of the requested interval and the engine's minimum.
func TestIntervalOf(t *testing.T) {
	const second = time.Second
	for name, tt := range map[string]struct{ plan, field, pace, want time.Duration }{
		"the plan's":            {10 * second, 0, 0, 10 * second},
		"its own":               {10 * second, 2 * second, 0, 2 * second},
		"the engine's":          {10 * second, 0, 30 * second, 30 * second},
		"the engine's, not its": {10 * second, 2 * second, 30 * second, 30 * second},
		"slower than it can be": {60 * second, 0, 30 * second, 60 * second},
		"its own and slower":    {10 * second, 60 * second, 30 * second, 60 * second},
	} {
		p := gpu.Plan{Interval: tt.plan, Fields: []gpu.Field{{Interval: tt.field, MinInterval: tt.pace}}}
		if got := p.IntervalOf(0); got != tt.want {
			t.Errorf("%s: interval = %v, want %v", name, got, tt.want)
		}
	}
}
