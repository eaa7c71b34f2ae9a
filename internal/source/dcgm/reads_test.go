package dcgm_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

// DCGM can read every exportable field. A plan determines for which entities fields of the machine are read.
func TestReads(t *testing.T) {
	for e := range catalog.All() {
		if !e.Exportable() {
			continue
		}
		f := e.Field()
		if f.Levels.Has(gpu.KindNode) {
			if dcgm.Reads(&gpu.Plan{Fields: []gpu.Field{f}}) {
				t.Errorf("%s: Reads = true for the machine itself, want false", e.Name)
			}
			f.Levels = gpu.KindsOf(gpu.KindGPU)
		}
		if !dcgm.Reads(&gpu.Plan{Fields: []gpu.Field{f}, Health: gpu.KindsOf(gpu.KindGPU), Peers: true,
			Placement: true}) {
			t.Errorf("%s: Reads = false, want true", e.Name)
		}
	}
}
