package gpu

import (
	"math"
	"testing"
)

// A list names exactly the bits of its mask, in the fewest ranges.
func TestListOf(t *testing.T) {
	for want, mask := range map[string][]uint64{
		"": {0, 0}, "0": {1}, "0,64-127": {1, math.MaxUint64}, "0-63,127": {math.MaxUint64, 1 << 63}, "62-65": {3 << 62, 3},
		"0,2-3,5": {0b101101}, "0-127": {math.MaxUint64, math.MaxUint64}, "1,63": {1<<63 | 2},
	} {
		if got := listOf(mask); got != want {
			t.Errorf("%x is %q, want %q", mask, got, want)
		}
	}
}

// A GPU has a nearest memory node if it is near one alone.
func TestPlaceOf(t *testing.T) {
	for want, nodes := range map[int][]uint64{0: {1}, 1: {2}, 65: {0, 2}} {
		if got := PlaceOf(nodes, nil).NUMANode; got != want {
			t.Errorf("%x is node %d, want %d", nodes, got, want)
		}
	}
	for _, nodes := range [][]uint64{nil, {0}, {3}, {1, 1}} {
		if got := PlaceOf(nodes, nil).NUMANode; got >= 0 {
			t.Errorf("%x is node %d, want none", nodes, got)
		}
	}
}
