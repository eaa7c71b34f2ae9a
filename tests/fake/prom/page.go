package prom

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/wait"
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
		if err := each(page, yield); err != nil {
			t.Fatalf("%v\n%s", err, page)
		}
	}
}

// each calls yield for each sample of a page, until yield returns false.
func each(page []byte, yield func(Sample) bool) error {
	parser, err := textparse.New(page, "text/plain", nil, textparse.ParserOptions{})
	for entry := textparse.EntryInvalid; err == nil; entry, err = parser.Next() {
		if entry != textparse.EntrySeries {
			continue
		}
		s := Sample{}
		s.Series, _, s.Value = parser.Series()
		parser.Labels(&s.Labels)
		if !yield(s) {
			return nil
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("page that Prometheus cannot parse: %w", err)
}

// A Page has the samples of a page by family.
type Page map[string][]Sample

// Read parses a page. It returns an error if Prometheus cannot parse the page, or if a series or a label occurs twice.
func Read(text string) (Page, error) {
	p, seen := Page{}, map[string]bool{}
	var twice error
	err := each([]byte(text), func(s Sample) bool {
		series := s.Labels.String()
		if _, label := s.Labels.HasDuplicateLabelNames(); label || seen[series] {
			twice = fmt.Errorf("duplicate series or label: %s", s.Series)
		}
		seen[series] = true
		name := s.Labels.Get(model.MetricNameLabel)
		p[name] = append(p[name], s)
		return twice == nil
	})
	return p, errors.Join(err, twice)
}

// Parse is like Read, but an error fails the test at once.
func Parse(t testing.TB, text string) Page {
	t.Helper()
	p, err := Read(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// By returns the values of a family. The keys are the values of the labels, joined with slashes.
func (p Page) By(family string, labels ...string) map[string]float64 {
	out := map[string]float64{}
	for _, s := range p[family] {
		key := make([]string, len(labels))
		for i, name := range labels {
			key[i] = s.Labels.Get(name)
		}
		out[strings.Join(key, "/")] = s.Value
	}
	return out
}

// Owned returns the values of labels on the series of a family, joined with slashes, by device. A device is the label
// gpu, followed by a slash and GPU_I_ID for an instance. Series without the labels are left out.
func (p Page) Owned(family string, labels ...string) map[string]string {
	out := map[string]string{}
	for key := range p.By(family, append([]string{"gpu", "GPU_I_ID"}, labels...)...) {
		part := strings.SplitN(key, "/", 3)
		if strings.Trim(part[2], "/") != "" {
			out[strings.TrimSuffix(part[0]+"/"+part[1], "/")] = part[2]
		}
	}
	return out
}

// Value returns the value of the first series of a family, or -1 if it has none.
func (p Page) Value(family string) float64 {
	for _, s := range p[family] {
		return s.Value
	}
	return -1
}

// Scrape returns the page at a URL.
func Scrape(url string) (string, error) {
	client := http.Client{Timeout: time.Minute}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s", url, response.Status)
	}
	return string(text), err
}

// Await scrapes a URL until, for each prefix, a line of the page starts with it. It returns the page. If that takes
// longer than patience, the test fails.
func Await(t testing.TB, patience time.Duration, url string, prefixes ...string) (page string) {
	t.Helper()
	err := wait.Until(patience, func() (err error) {
		page, err = Scrape(url)
		for _, prefix := range prefixes {
			if err == nil && !strings.Contains("\n"+page, "\n"+prefix) {
				err = fmt.Errorf("series %s not found", prefix)
			}
		}
		return err
	})
	if err != nil {
		t.Fatalf("%v on the page:\n%s", err, page)
	}
	return page
}
