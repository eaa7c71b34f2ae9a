package counters_test

import (
	"math"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Every exportable field has a name in both vocabularies. Each name maps to the other with the inverse factor. One
// sample serves both.
func TestEveryFieldInBothVocabularies(t *testing.T) {
	fields, renamed, rescaled := 0, 0, 0
	for e := range catalog.All() {
		if !e.Exportable() || e.BaseOf != 0 {
			continue
		}
		fields++
		typ := gpu.MetricGauge
		if e.Type == catalog.Text {
			typ = gpu.MetricLabel
		}
		request, err := counters.NewRequest(e.Classic, typ, "")
		if err != nil {
			t.Errorf("NewRequest of field %d: error = %v, want nil", e.ID, err)
			continue
		}
		if request.Named.Entry.ID != e.ID {
			t.Errorf("%s requests field %d, want %d", e.Classic, request.Named.Entry.ID, e.ID)
		}
		both := counters.Translate([]counters.Request{request}, catalog.Both, false)
		if e.Classic == e.Current {
			if len(both) != 1 || both[0].Name != e.Classic {
				t.Errorf("%s: vocabulary both yields %v, want one name", e.Classic, names(both))
			}
			continue
		}
		renamed++
		if len(both) != 2 || both[0].Name != e.Classic || both[1].Name != e.Current {
			t.Errorf("field %d: vocabulary both yields %v, want %s and %s", e.ID, names(both), e.Classic, e.Current)
			continue
		}
		if plan := counters.NewPlan(both, gpu.Plan{}); len(plan.Fields) != 1 {
			t.Errorf("%s: fields read for the two names = %d, want 1", e.Classic, len(plan.Fields))
		}
		from, to, ok := catalog.Rename(e.Classic, catalog.Current)
		back, forth, okBack := catalog.Rename(e.Current, catalog.Classic)
		if !ok || !okBack || to.Name != e.Current || forth.Name != e.Classic {
			t.Errorf("Rename = %s and %s, want %s and %s", to.Name, forth.Name, e.Current, e.Classic)
			continue
		}
		there, again := to.Scale/from.Scale, forth.Scale/back.Scale
		if there <= 0 || math.Abs(there*again-1) > 1e-12 {
			t.Errorf("%s: factor = %v, inverse = %v; want a product of 1", e.Classic, there, again)
		}
		if there != 1 {
			rescaled++
			if from.Unit == to.Unit {
				t.Errorf("%s: factor = %v, want 1: both names use the unit %s", e.Classic, there, from.Unit)
			}
		} else if from.Unit != to.Unit {
			t.Errorf("%s in %q and %s in %q: factor = 1, want another", e.Classic, from.Unit, e.Current, to.Unit)
		}
		if _, _, ok := catalog.Rename(e.Classic, catalog.Classic); ok {
			t.Errorf("%s: Rename returns another classic name, want none", e.Classic)
		}
		if _, _, ok := catalog.Rename(e.Current, catalog.Current); ok {
			t.Errorf("%s: Rename returns another current name, want none", e.Current)
		}
	}
	if fields < 300 || renamed < 100 || rescaled < 20 {
		t.Errorf("fields = %d, renamed = %d, with another unit = %d; want at least 300, 100, 20",
			fields, renamed, rescaled)
	}
}
