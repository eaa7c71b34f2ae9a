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
		"interval of the plan":                             {10 * second, 0, 0, 10 * second},
		"interval of the field":                            {10 * second, 2 * second, 0, 2 * second},
		"minimum of the engine above the plan's interval":  {10 * second, 0, 30 * second, 30 * second},
		"minimum of the engine above the field's interval": {10 * second, 2 * second, 30 * second, 30 * second},
		"plan interval longer than the engine's minimum":   {60 * second, 0, 30 * second, 60 * second},
		"field interval longer than the engine's minimum":  {10 * second, 60 * second, 30 * second, 60 * second},
	} {
		p := gpu.Plan{Interval: tt.plan, Fields: []gpu.Field{{Interval: tt.field, MinInterval: tt.pace}}}
		if got := p.IntervalOf(0); got != tt.want {
			t.Errorf("%s: interval = %v, want %v", name, got, tt.want)
		}
	}
}
