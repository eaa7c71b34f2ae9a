package telemetry_test

import (
	"encoding/json"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/telemetry"
)

// Two releases of Prometheus add up the same samples to these.
func TestAStatIsWrittenAlike(t *testing.T) {
	const want = `{"samples":1440,"mean":0.0933472,"p95":3476560000,"max":0}`
	for _, mean := range []float64{0.09334722222222218, 0.09334722222222223} {
		got, err := json.Marshal(telemetry.Stat{Samples: 1440, Mean: mean, P95: 3476558097.066666})
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
