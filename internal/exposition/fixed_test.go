package exposition_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Series with fixed labels are written as all others are, on every page, with
// what is left out counted alike, whatever others came before.
func TestFixedLabels(t *testing.T) {
	topology := gpu.NewTopology(nil)
	labels := func(page int) [][]gpu.Label {
		list := [][]gpu.Label{
			{{Name: "a", Value: "1"}, {Name: "b", Value: `"quoted"`}},
			{{Name: "b", Value: `"quoted"`}, {Name: "a", Value: "1"}}, // the same set
			{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}},        // a name again
			{{Name: "0 bad", Value: "x\ny"}, {Name: "blank"}},
			{{Name: "blank"}},
		}
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
			for _, name := range []string{"one", "two"} {
				f := gpu.Family{Name: name, Type: gpu.MetricGauge}
				for i, set := range sets {
					f.Series = append(f.Series, gpu.Series{Row: gpu.AllRows, Labels: set, Fixed: fix, Value: gpu.Int(int64(i))})
				}
				s.Families = append(s.Families, f)
			}
			p := e.Encode(s)
			defer p.Release()
			return bytes.Clone(p.Bytes())
		}
		if diff := cmp.Diff(string(encode(plain, false)), string(encode(fixed, true))); diff != "" {
			t.Errorf("page %d (-plain +fixed):\n%s", page, diff)
		}
	}
	counts := func(e *exposition.Encoder) [2]uint64 { return [2]uint64{e.DuplicatesDropped(), e.LabelsDropped()} }
	if diff := cmp.Diff(counts(plain), counts(fixed)); diff != "" {
		t.Errorf("duplicates and labels dropped (-plain +fixed):\n%s", diff)
	}
}
