package prom

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// FuzzSamples holds what is read line by line, with what is remembered of earlier pages, to what
// Prometheus' parser reads of the page as a whole. It alone reads a line break within quotes, which
// the text format wants escaped.
func FuzzSamples(f *testing.F) {
	for _, page := range []string{
		"", "\n", "a 1\n", "a 1", "a 1 1700000000000\n", "a  1\n", " a 1\n", "a\t1\n", "a{} NaN\n", "a 0x1p3\n", "a 1_000\n", "a +Inf\r\n",
		"# HELP a what it says 1\n# TYPE a gauge\na{b=\"c\"} 1\na{b=\"d\\n 2\"} 2\n", "# a\n# a 1\n", "# a", "{\"a b\"} 1\n", "{\"a\",b=\"c 1\"} 1\n",
		"a{b=\"c 1\n\"} 2\n", "a 1\nb\n", "a{b=\"c\"}\n1\n", "a{b=\"\xff\"} 1\n", "a{b=\"c\"} 1 # {} 2\n",
	} {
		f.Add(page)
	}
	pages, err := filepath.Glob("../../goldens/testdata/pages/*")
	if err != nil || len(pages) == 0 {
		f.Fatal("no golden pages", err)
	}
	for _, name := range pages {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, page string) {
		want, wantErr := whole([]byte(page))
		for time := range 2 {
			var got []string
			err := each([]byte(page), func(s Sample) bool {
				got = append(got, fmt.Sprintf("%s %s %v", s.Series, s.Labels, s.Value))
				return true
			})
			if err != nil && broken.MatchString(page) {
				continue
			}
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("time %d: error %v, of the whole page %v", time, err, wantErr)
			}
			if err == nil && !slices.Equal(got, want) {
				t.Fatalf("time %d (-whole +lines):\n%s", time, cmp.Diff(want, got))
			}
		}
	})
}

// broken matches a line with an open quote.
var broken = regexp.MustCompile(`(?m)^[^"\n]*("([^"\\\n]|\\[^\n])*"[^"\n]*)*"([^"\\\n]|\\[^\n])*\\?$`)

func whole(page []byte) (samples []string, err error) {
	parser, err := textparse.New(page, "text/plain", nil, textparse.ParserOptions{})
	if err != nil {
		return nil, err
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, err
		}
		if entry == textparse.EntrySeries {
			var l labels.Labels
			parser.Labels(&l)
			series, _, v := parser.Series()
			samples = append(samples, fmt.Sprintf("%s %s %v", series, l, v))
		}
	}
}
