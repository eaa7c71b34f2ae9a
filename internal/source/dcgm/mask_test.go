package dcgm

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Two links never have one name at the engine (dcgm_link_t).
func FuzzLinkEntity(f *testing.F) {
	f.Add(uint8(3), uint16(1), uint8(0), uint8(3), uint16(0), uint8(1))
	f.Add(uint8(1), uint16(17), uint8(31), uint8(3), uint16(17), uint8(31))
	f.Fuzz(func(t *testing.T, kindA uint8, indexA uint16, idA uint8, kindB uint8, indexB uint16, idB uint8) {
		a := link{entity{entityGroup(kindA), uint32(idA)}, uint32(indexA)}
		b := link{entity{entityGroup(kindB), uint32(idB)}, uint32(indexB)}
		if (a == b) != (a.entity() == b.entity()) {
			t.Errorf("%+v is %v, %+v is %v", a, a.entity(), b, b.entity())
		}
	})
}

// DCGM's own example: link 1 of switch 0 is 259.
func TestLinkEntity(t *testing.T) {
	if got := (link{entity{groupSwitch, 0}, 1}).entity(); got != (entity{groupLink, 259}) {
		t.Errorf("got %v", got)
	}
}

func TestLevels(t *testing.T) {
	for levels, want := range map[uint64]struct {
		path    gpu.Path
		nvlinks int
	}{
		0:         {gpu.PathUnknown, 0},
		0x01:      {gpu.PathBoard, 0},
		0x210:     {gpu.PathNode, 2}, // DCGM_TOPOLOGY_CPU | DCGM_TOPOLOGY_NVLINK2
		0x20:      {gpu.PathSystem, 0},
		0x2000000: {gpu.PathUnknown, 18},
		0x40:      {gpu.PathUnknown, 0},
	} {
		if p, n := pathOf(levels), nvlinksOf(levels); p != want.path || n != want.nvlinks {
			t.Errorf("%#x: %v and %d, want %v and %d", levels, p, n, want.path, want.nvlinks)
		}
	}
}
