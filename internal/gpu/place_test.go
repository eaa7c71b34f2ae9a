package gpu

import (
	"strconv"
	"strings"
	"testing"
)

// A list names exactly the bits of its mask, in the fewest ranges.
func FuzzListOf(f *testing.F) {
	f.Add(uint64(0), uint64(0))
	f.Add(uint64(1), ^uint64(0))
	f.Add(^uint64(0), uint64(1)<<63|5)
	f.Fuzz(func(t *testing.T, low, high uint64) {
		text := listOf([]uint64{low, high})
		var mask [2]uint64
		last := -2
		for part := range strings.SplitSeq(text, ",") {
			if part == "" {
				continue
			}
			from, to, ranged := strings.Cut(part, "-")
			a, err := strconv.Atoi(from)
			b := a
			if ranged && err == nil {
				b, err = strconv.Atoi(to)
			}
			if err != nil || a <= last+1 || b < a || ranged && a == b {
				t.Fatalf("%x %x: %q has the part %q", high, low, text, part)
			}
			for i := a; i <= b; i++ {
				mask[i/64] |= 1 << (i % 64)
			}
			last = b
		}
		if mask != [2]uint64{low, high} {
			t.Fatalf("%x %x: %q names %x", high, low, text, mask)
		}
	})
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
