//go:build linux && cgo

package dcgm_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

func every(id gpu.FieldID, interval time.Duration) gpu.Field {
	f := field(id, onBoth)
	f.Every, f.Interval = true, interval
	return f
}

// Every sample of a trail comes once, oldest first, however late the Read; a field beside it has
// its newest sample alone. The values count the samples, so that a gap would show.
func TestTrail(t *testing.T) {
	e := fakedcgm.New(t, world("value any:* 155 int 0 1")...)
	plan := planOf(field(150, onGPU), every(155, 2*time.Millisecond))
	s := open(t, e, plan, dcgm.Options{})
	next := map[int]int64{}
	for i := range 6 {
		pass(time.Duration(i) * 8 * time.Millisecond)
		came := map[int]int{}
		last := map[int]int64{}
		b := read(t, s)
		newest := map[int]int64{}
		for _, x := range b.Samples {
			if n, _ := x.Value.Int64(); x.Field == 1 {
				newest[x.Row] = n
			} else {
				came[-1]++
			}
		}
		for _, x := range b.Trails {
			if x.Time <= last[x.Row] {
				t.Errorf("row %d: a sample of %d after one of %d", x.Row, x.Time, last[x.Row])
			}
			last[x.Row] = x.Time
			came[x.Row]++
			n, _ := x.Value.Int64()
			if n != next[x.Row] {
				t.Errorf("row %d: sample %d, want %d", x.Row, n, next[x.Row])
			}
			next[x.Row] = n + 1
		}
		if len(newest) != 4 || came[-1] != 2 {
			t.Errorf("Read %d: the newest samples %v and %d of field 150, want 4 and 2", i, newest, came[-1])
		}
		for row, n := range newest {
			if n != next[row]-1 {
				t.Errorf("Read %d: the newest sample of row %d is %d, the trail ends with %d", i, row, n, next[row]-1)
			}
		}
	}
	if next[0] < 20 {
		t.Errorf("%d samples in 120 ms of 2 ms each", next[0])
	}
}

// A field whose samples stop has its last one with the time that it had, and an empty trail: the
// rest goes on.
func TestTrailThatEnds(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, planOf(field(150, onGPU), every(155, interval)), dcgm.Options{})
	read(t, s)
	e.Add("value any:* 155 stopped")
	last := read(t, s)
	again := read(t, s)
	if got, want := shown(s, again), shown(s, last); !slices.Equal(got, want) {
		t.Errorf("while it is current %v, want %v", got, want)
	}
	if len(again.Trails) > 0 {
		t.Errorf("the trail goes on: %v", again.Trails)
	}
	for i, x := range again.Samples {
		if x.Field == 1 && x != last.Samples[i] {
			t.Errorf("the last sample was %+v and is %+v", last.Samples[i], x)
		}
	}
}

// Groups of fields with their own intervals are sampled at those, in one session.
func TestWatchGroups(t *testing.T) {
	e := fakedcgm.New(t, world("value gpu:* 155 int 0 1", "value gpu:* 156 int 0 1")...)
	fast, slow := every(155, 5*time.Millisecond), every(156, 50*time.Millisecond)
	fast.Levels, slow.Levels = onGPU, onGPU
	s := open(t, e, planOf(fast, slow, field(150, onGPU)), dcgm.Options{})
	if n := e.Open()["watches"]; n != 3 {
		t.Errorf("%d watches for three intervals", n)
	}
	newest := map[string]int64{}
	readUntil(t, s, "the slow field's fifth sample", func(b *gpu.Batch, _ error) bool {
		for _, x := range b.Samples {
			newest[fmt.Sprint(x.Row, " ", x.Field)], _ = x.Value.Int64()
		}
		return newest["0 1"] >= 5
	})
	if fast, slow := newest["0 0"], newest["0 1"]; fast < 8*slow || fast > 12*slow+10 {
		t.Errorf("%d samples 5 ms apart beside %d that are 50 ms apart", fast, slow)
	}
}
