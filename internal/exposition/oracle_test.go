package exposition_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/prom"
)

// parsed is the content of a page by family.
type parsed map[string]parsedFamily

type parsedFamily struct {
	Type, Help string
	Samples    map[string]float64 // by labels, in the form of labels.Labels
}

// parse parses a page with both of Prometheus' parsers. It fails the test if one of them rejects the page, they
// disagree, or a label set occurs twice.
func parse(t testing.TB, page []byte) parsed {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatalf("expfmt: %v\n%s", err, page)
	}
	out, left := parsed{}, 0
	for name, mf := range families {
		family := parsedFamily{strings.ToLower(mf.GetType().String()), mf.GetHelp(), map[string]float64{}}
		for _, m := range mf.Metric {
			pairs := map[string]string{}
			for _, l := range m.Label {
				if pairs[l.GetName()] = l.GetValue(); l.GetValue() == "" {
					t.Fatalf("%s: label %s is empty, want no empty label", name, l.GetName())
				}
			}
			if m.TimestampMs != nil {
				t.Fatalf("%s: sample has a timestamp", name)
			}
			key := labels.FromMap(pairs).String()
			if _, twice := family.Samples[key]; twice {
				t.Fatalf("%s: label set %q occurs twice, want once", name, key)
			}
			family.Samples[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			left++
		}
		out[name] = family
	}
	for s := range prom.Samples(t, page) {
		key := s.Labels.DropReserved(func(name string) bool { return name == model.MetricNameLabel }).String()
		got, ok := out[s.Labels.Get(model.MetricNameLabel)].Samples[key]
		if left--; !ok || got != s.Value {
			t.Fatalf("%s: textparse returned %v, expfmt %v (%v)", s.Series, s.Value, got, ok)
		}
	}
	if left != 0 {
		t.Fatalf("expfmt found %d samples more than textparse, want the same", left)
	}
	return out
}
