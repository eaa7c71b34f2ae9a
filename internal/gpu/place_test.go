package gpu

import (
	"math"
	"testing"
)

// A list has exactly the bits of its mask, with as few ranges as possible.
func TestListOf(t *testing.T) {
	for want, mask := range map[string][]uint64{
		"": {0, 0}, "0": {1}, "0,64-127": {1, math.MaxUint64}, "0-63,127": {math.MaxUint64, 1 << 63},
		"62-65":   {3 << 62, 3},
		"0,2-3,5": {0b101101}, "0-127": {math.MaxUint64, math.MaxUint64}, "1,63": {1<<63 | 2},
	} {
		if got := listOf(mask); got != want {
			t.Errorf("list of mask %x = %q, want %q", mask, got, want)
		}
	}
}

// A GPU has a NUMA node if it is near exactly one.
func TestPlaceOf(t *testing.T) {
	for want, nodes := range map[int][]uint64{0: {1}, 1: {2}, 65: {0, 2}} {
		if got := PlaceOf(nodes, nil).NUMANode; got != want {
			t.Errorf("NUMA node of mask %x = %d, want %d", nodes, got, want)
		}
	}
	for _, nodes := range [][]uint64{nil, {0}, {3}, {1, 1}} {
		if got := PlaceOf(nodes, nil).NUMANode; got >= 0 {
			t.Errorf("NUMA node of mask %x = %d, want none", nodes, got)
		}
	}
}
