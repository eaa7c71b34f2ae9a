package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// maxPage bounds a page: the largest of this project's tests are a hundredth of it.
const maxPage = 256 << 20

// Pages are the /metrics pages of exporters, one for each node.
type Pages struct {
	// Places are addresses and files; "-" is not one.
	Places []string
	// Apart is how long after the first scrape of an address the second is; 0 for none.
	Apart time.Duration
	// Read reads a file.
	Read func(path string) ([]byte, error)
}

// A page is what was read of a place.
type page struct {
	place    string
	at       time.Time // zero for a file
	families map[string]*dto.MetricFamily
}

func (p *Pages) remote(place string) bool {
	return strings.HasPrefix(place, "http://") || strings.HasPrefix(place, "https://")
}

// read reads each place once, and the addresses a second time where twice.
func (p *Pages) read(ctx context.Context, twice bool) ([]page, error) {
	var pages []page
	some := false
	for round := range 2 {
		if round == 1 && (!twice || !some || p.Apart <= 0) {
			break
		}
		if round == 1 {
			select {
			case <-time.After(p.Apart):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		for _, place := range p.Places {
			if round == 1 && !p.remote(place) {
				continue
			}
			some = some || p.remote(place)
			one, err := p.one(ctx, place)
			if err != nil {
				return nil, err
			}
			pages = append(pages, one)
		}
	}
	return pages, nil
}

func (p *Pages) one(ctx context.Context, place string) (page, error) {
	var text []byte
	var err error
	if p.remote(place) {
		text, err = get(ctx, place)
	} else if text, err = p.Read(place); err != nil {
		err = fmt.Errorf("%w: %w", ErrInput, err)
	}
	if err != nil {
		return page{}, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("<")) {
		return page{}, fmt.Errorf("%w: %s is a web page, not an exporter's /metrics", ErrInput, shown(place))
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return page{}, fmt.Errorf("%w: %s is not a page of Prometheus' text format: %w", ErrInput, shown(place), err)
	}
	at := time.Time{}
	if p.remote(place) {
		at = time.Now()
	}
	return page{place, at, families}, nil
}

func shown(place string) string {
	if u, err := url.Parse(place); err == nil && u.User != nil {
		return u.Redacted()
	}
	return place
}

// get reads an address; without a path it is /metrics.
func get(ctx context.Context, place string) ([]byte, error) {
	u, err := url.Parse(place)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%w: %q is no address, want http://HOST:9400/metrics", ErrInput, place)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/metrics"
	}
	ctx, cancel := context.WithTimeout(ctx, 6*reachable)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	t := transport()
	t.ResponseHeaderTimeout = reachable
	defer t.CloseIdleConnections()
	resp, err := (&http.Client{Transport: t}).Do(req)
	if err != nil {
		var netErr *url.Error
		if errors.As(err, &netErr) {
			err = netErr.Err
		}
		return nil, fmt.Errorf("%w from %s: %w", ErrUnreachable, u.Redacted(), err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w from %s: it broke off after %d bytes: %w", ErrUnreachable, u.Redacted(), len(text), err)
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %s: %s; want the address of an exporter's /metrics", ErrInput, u.Redacted(), resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w from %s: %s: %s", ErrUnreachable, u.Redacted(), resp.Status, firstLine(string(text)))
	case len(text) > maxPage:
		return nil, fmt.Errorf("%w: %s has more than %d MiB", ErrInput, u.Redacted(), maxPage>>20)
	}
	return text, nil
}

// Usage reads what the GPUs do now: one sample of each file, two of each address. The error wraps
// ErrUnreachable, ErrInput or ErrNoSeries, or is the context's.
func (p *Pages) Usage(ctx context.Context) (*Usage, error) {
	all, names := chosen(false)
	pages, err := p.read(ctx, true)
	if err != nil {
		return nil, err
	}
	values := map[string]*collected{}
	there := map[string]bool{}
	for _, one := range pages {
		one.each(all, func(f family, l map[string]string, v float64) {
			there[f.name] = true
			key := f.name + " " + labelsKey(l)
			if values[key] == nil {
				values[key] = &collected{series: series{role: f.role, labels: l}}
			}
			values[key].add(v)
		})
	}
	if len(there) == 0 {
		return nil, nothing(p.places(), names)
	}
	var read []series
	for _, key := range slices.Sorted(maps.Keys(values)) {
		read = append(read, values[key].finish())
	}
	u := &Usage{Source: p.places(), Covered: 1, Families: found(there), GPUs: usage(read)}
	for _, one := range pages {
		if !one.at.IsZero() && (u.From.IsZero() || one.at.Before(u.From)) {
			u.From = one.at
		}
		if one.at.After(u.To) {
			u.To = one.at
		}
	}
	return u, nil
}

func (p *Pages) places() string {
	var all []string
	for _, place := range p.Places {
		all = append(all, shown(place))
	}
	return strings.Join(all, ", ")
}

// each visits the samples of the families, in base units.
func (p *page) each(all []family, visit func(f family, labels map[string]string, v float64)) {
	for _, f := range all {
		for _, m := range p.families[f.name].GetMetric() {
			v := valueOf(m) * f.scale
			if !finite(v) {
				continue
			}
			l := map[string]string{}
			for _, pair := range m.GetLabel() {
				l[pair.GetName()] = pair.GetValue()
			}
			visit(f, l, v)
		}
	}
}

// finite reports whether v is a number that can be reckoned with: drivers give neither NaN nor Inf, and
// a page may.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// valueOf is the value of a gauge, counter or untyped sample.
func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetUntyped() != nil:
		return m.GetUntyped().GetValue()
	}
	return math.NaN()
}

// collected is a series of which samples are collected.
type collected struct {
	series
	values []float64
}

// add appends a sample. The first of all series count as of one time, and so on: pages of several
// exporters are read one after the other.
func (c *collected) add(v float64) {
	c.steps = append(c.steps, Point{time.Unix(int64(len(c.values)), 0), v})
	c.values = append(c.values, v)
}

func (c *collected) finish() series {
	sorted := slices.Sorted(slices.Values(c.values))
	sum := 0.0
	for _, v := range sorted {
		sum += v
	}
	n := len(sorted)
	c.stat = Stat{Samples: n, Mean: sum / float64(n), P95: sorted[min(n-1, n*95/100)], Max: sorted[n-1]}
	return c.series
}

func labelsKey(l map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(l)) {
		fmt.Fprintf(&b, "%q=%q ", name, l[name])
	}
	return b.String()
}
