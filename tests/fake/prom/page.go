package prom

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"strconv"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// A Sample is a line of a page.
type Sample struct {
	Series []byte        // name and labels as they are written; valid as long as the page
	Labels labels.Labels // __name__ among them
	Value  float64
}

// Samples returns the samples of a page in the text format, in its order. A page that Prometheus
// does not read ends the test.
func Samples(t testing.TB, page []byte) iter.Seq[Sample] {
	return func(yield func(Sample) bool) {
		t.Helper()
		if err := each(page, yield); err != nil {
			t.Fatalf("Prometheus' parser: %v\n%s", err, page)
		}
	}
}

// read is what Prometheus' parser made of the lines of earlier pages: of a sample's line what is
// before its value, of another the whole. The plays of a day read the same lines hundreds of times,
// and the parser would take most of their time.
var read = struct {
	sync.RWMutex
	lines map[string]labels.Labels
}{lines: map[string]labels.Labels{}}

func earlier(line []byte) (labels.Labels, bool) {
	read.RLock()
	defer read.RUnlock()
	l, known := read.lines[string(line)]
	return l, known
}

func remember(line []byte, l labels.Labels) {
	read.Lock()
	defer read.Unlock()
	read.lines[string(line)] = l
}

// each visits the samples of a page until visit says no.
func each(page []byte, visit func(Sample) bool) error {
	for line := range bytes.Lines(page) {
		if s, ok := again(line); ok {
			if !visit(s) {
				return nil
			}
			continue
		}
		if _, known := earlier(line); known && ended(line) {
			continue // a comment
		}
		more, err := parse(line, visit)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// ended says whether a line has its line break, by which a comment differs from a series.
func ended(line []byte) bool { return bytes.HasSuffix(line, []byte("\n")) }

// again reads a line whose series was on a page before.
func again(line []byte) (Sample, bool) {
	i := bytes.LastIndexByte(line, ' ')
	if i < 0 {
		return Sample{}, false
	}
	l, known := earlier(line[:i])
	if !known {
		return Sample{}, false
	}
	text := bytes.TrimSuffix(line[i+1:], []byte("\n"))
	if !ended(line) || bytes.ContainsAny(text, "pP_") { // Prometheus reads a part of Go's numbers
		return Sample{}, false
	}
	v, err := strconv.ParseFloat(string(text), 64)
	return Sample{line[:i], l, v}, err == nil
}

// parse reads one line with Prometheus' parser.
func parse(line []byte, visit func(Sample) bool) (more bool, err error) {
	parser, err := textparse.New(line, "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		return false, err
	}
	for {
		entry, err := parser.Next()
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, err
		case entry != textparse.EntrySeries:
			if ended(line) {
				remember(line, labels.EmptyLabels())
			}
			continue
		}
		s := Sample{}
		s.Series, _, s.Value = parser.Series()
		parser.Labels(&s.Labels)
		s.Labels = s.Labels.Copy() // the parser's are the page's bytes
		remember(s.Series, s.Labels)
		if !visit(s) {
			return false, nil
		}
	}
}
