package prom

import (
	"errors"
	"io"
	"iter"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// A Sample is a line of a page.
type Sample struct {
	Series []byte        // name and labels as they are written; valid as long as the page
	Labels labels.Labels // __name__ among them; valid as long as the page
	Value  float64
}

// Samples returns the samples of a page in the text format, in its order. A page that Prometheus
// does not read ends the test.
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
			t.Fatalf("Prometheus' parser: %v\n%s", err, page)
		}
	}
}
