package exposition_test

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
)

// parsed is the content of a page by family.
type parsed map[string]parsedFamily

type parsedFamily struct {
	Type, Help string
	Samples    map[string]float64 // by labels, sorted and quoted
}

// key returns labels in a canonical order.
func key(pairs map[string]string) string {
	names := make([]string, 0, len(pairs))
	for name := range pairs {
		names = append(names, name)
	}
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		b.WriteString(name + "=" + strings.ToValidUTF8(pairs[name], "?") + "\x00")
	}
	return b.String()
}

// parse parses a page with both of Prometheus' parsers. It fails the test if one of them rejects the page, they
// disagree, or a label set occurs twice.
func parse(t testing.TB, page []byte) parsed {
	t.Helper()
	byExpfmt, err := parseExpfmt(t, page)
	if err != nil {
		t.Fatalf("expfmt: %v\n%s", err, page)
	}
	byServer := parseServer(t, page)
	for name, family := range byServer {
		if len(family.Samples) != len(byExpfmt[name].Samples) {
			t.Fatalf("%s: textparse found %d samples and expfmt %d, want the same",
				name, len(family.Samples), len(byExpfmt[name].Samples))
		}
		for k, v := range family.Samples {
			if got, ok := byExpfmt[name].Samples[k]; !ok || got != v {
				t.Fatalf("%s{%q}: textparse returned %v, expfmt %v (%v)", name, k, v, got, ok)
			}
		}
	}
	if len(byServer) != len(byExpfmt) {
		t.Fatalf("textparse found %d families and expfmt %d, want the same", len(byServer), len(byExpfmt))
	}
	return byExpfmt
}

func parseExpfmt(t testing.TB, page []byte) (parsed, error) {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		return nil, err
	}
	out := parsed{}
	for name, mf := range families {
		family := parsedFamily{
			Type:    strings.ToLower(mf.GetType().String()),
			Help:    mf.GetHelp(),
			Samples: map[string]float64{},
		}
		for _, m := range mf.Metric {
			pairs := map[string]string{}
			for _, l := range m.Label {
				if l.GetValue() == "" {
					t.Fatalf("%s: label %s is empty, want no empty label", name, l.GetName())
				}
				pairs[l.GetName()] = l.GetValue()
			}
			if m.TimestampMs != nil {
				t.Fatalf("%s: sample has a timestamp", name)
			}
			k := key(pairs)
			if _, twice := family.Samples[k]; twice {
				t.Fatalf("%s: label set %q occurs twice, want once", name, k)
			}
			family.Samples[k] = value(mf.GetType(), m)
		}
		out[name] = family
	}
	return out, nil
}

func value(typ dto.MetricType, m *dto.Metric) float64 {
	switch typ {
	case dto.MetricType_COUNTER:
		return m.GetCounter().GetValue()
	case dto.MetricType_GAUGE:
		return m.GetGauge().GetValue()
	default:
		return m.GetUntyped().GetValue()
	}
}

func parseServer(t testing.TB, page []byte) parsed {
	t.Helper()
	parser, err := textparse.New(page, exposition.ContentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatalf("textparse: %v", err)
	}
	out := parsed{}
	typed, helped := map[string]bool{}, map[string]bool{}
	for {
		entry, err := parser.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatalf("textparse: %v\n%s", err, page)
		}
		switch entry {
		case textparse.EntryHelp:
			name, _ := parser.Help()
			if helped[string(name)] {
				t.Fatalf("%s: HELP lines = 2, want 1", name)
			}
			helped[string(name)] = true
		case textparse.EntryType:
			name, _ := parser.Type()
			if typed[string(name)] {
				t.Fatalf("%s: TYPE lines = 2, want 1", name)
			}
			typed[string(name)] = true
		case textparse.EntrySeries:
			_, at, v := parser.Series()
			if at != nil {
				t.Fatal("sample has a timestamp")
			}
			var ls labels.Labels
			parser.Labels(&ls)
			pairs := ls.Map()
			name := pairs[model.MetricNameLabel]
			delete(pairs, model.MetricNameLabel)
			if !typed[name] {
				t.Fatalf("%s: sample before its TYPE line, want it after", name)
			}
			family, ok := out[name]
			if !ok {
				family.Samples = map[string]float64{}
				out[name] = family
			}
			family.Samples[key(pairs)] = v
		}
	}
}
