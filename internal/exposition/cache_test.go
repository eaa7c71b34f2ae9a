package exposition_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Series with fixed labels are written as all others are, on every page, with what is left out
// counted alike, whatever others came before.
func TestFixedLabels(t *testing.T) {
	odd := [][]gpu.Label{
		{{Name: "a", Value: "1"}, {Name: "b", Value: `"quoted"`}},
		{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}}, // a name again
		{{Name: "0 bad", Value: "x\ny"}, {Name: "blank"}},
		{{Name: "blank"}},
	}
	t.Run("each set once", func(t *testing.T) { compareFixed(t, odd) })
	t.Run("one of them twice", func(t *testing.T) {
		compareFixed(t, append(odd, []gpu.Label{{Name: "b", Value: `"quoted"`}, {Name: "a", Value: "1"}}))
	})
}

// compareFixed compares pages with the given labels and those of many pods.
func compareFixed(t *testing.T, odd [][]gpu.Label) {
	topology := gpu.NewTopology(nil)
	labels := func(page int) [][]gpu.Label {
		list := slices.Clone(odd)
		for i := range 3000 {
			list = append(list, []gpu.Label{{Name: "pod", Value: fmt.Sprint(page, "-", i)}})
		}
		return list
	}
	fixed, plain := exposition.NewEncoder(exposition.Options{}), exposition.NewEncoder(exposition.Options{})
	for page := range 4 {
		sets := labels(page / 2) // owners change between the second and the third
		encode := func(e *exposition.Encoder, fix bool) []byte {
			s := &gpu.Snapshot{Topology: topology}
			for _, name := range []string{"one", "two", "nothing"} {
				f := gpu.Family{Name: name, Type: gpu.MetricGauge}
				for i, set := range sets {
					v := gpu.Int(int64(i))
					if name == "nothing" || (i+page)%5 == 0 {
						v = gpu.Value{} // absent from this page
					}
					f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: set, Fixed: fix, Value: v})
				}
				s.Families = append(s.Families, f)
			}
			p := e.Encode(s)
			defer p.Release()
			return bytes.Clone(p.Bytes())
		}
		text := string(encode(fixed, true))
		if diff := cmp.Diff(string(encode(plain, false)), text); diff != "" {
			t.Errorf("page %d (-plain +fixed):\n%s", page, diff)
		}
		if strings.Contains(text, "nothing") {
			t.Errorf("page %d has a family without a value", page)
		}
	}
	counts := func(e *exposition.Encoder) [2]uint64 { return [2]uint64{e.DuplicatesDropped(), e.LabelsDropped()} }
	if diff := cmp.Diff(counts(plain), counts(fixed)); diff != "" {
		t.Errorf("duplicates and labels dropped (-plain +fixed):\n%s", diff)
	}
}
