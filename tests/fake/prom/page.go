package prom

import (
	"errors"
	"io"
	"iter"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// A Sample is a sample line of a page.
type Sample struct {
	Series []byte        // name and labels as written on the page; valid as long as the page
	Labels labels.Labels // including __name__; valid as long as the page
	Value  float64
}

// Samples returns the samples of a page in text format, in order. If Prometheus cannot parse the page, the test ends.
func Samples(t testing.TB, page []byte) iter.Seq[Sample] {
	return func(yield func(Sample) bool) {
		t.Helper()
		parser, err := textparse.New(page, "text/plain", nil, textparse.ParserOptions{})
		for entry := textparse.EntryInvalid; err == nil; entry, err = parser.Next() {
			if entry != textparse.EntrySeries {
				continue
			}
			s := Sample{}
			s.Series, _, s.Value = parser.Series()
			parser.Labels(&s.Labels)
			if !yield(s) {
				return
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("Prometheus cannot parse the page: %v\n%s", err, page)
		}
	}
}
