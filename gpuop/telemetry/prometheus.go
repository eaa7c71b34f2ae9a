package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

const (
	// reachable bounds the connection and the first, trivial query.
	reachable = 5 * time.Second
	// patient bounds each query over the window, as Prometheus itself does by default.
	patient = 2 * time.Minute
	// steps is into how many steps a window is divided at most.
	steps = 336
)

// A Server is a Prometheus, or what speaks its HTTP API.
type Server struct {
	// URL is its address, up to what precedes /api/v1.
	URL string
	// Token is sent as a bearer token, unless it is empty.
	Token string
	// Selector is further label matchers, as in PromQL without braces: `cluster="prod"`.
	Selector string
	// Warnings are what the server said beside its answers so far.
	Warnings []string

	api promv1.API
}

// open makes the client and sends a first query.
func (s *Server) open(ctx context.Context) error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%w: %q is no address of a Prometheus, want http://HOST:PORT", ErrInput, s.URL)
	}
	base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/api/v1"), "/graph")
	u.Path = base
	client, err := api.NewClient(api.Config{Address: u.String(), RoundTripper: &door{next: transport(), token: s.Token}})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	s.api = promv1.NewAPI(client)
	ctx, cancel := context.WithTimeout(ctx, reachable)
	defer cancel()
	_, _, err = s.api.Query(ctx, "vector(1)", time.Time{})
	return s.refusal(err)
}

// transport is http's own with shorter patience for a connection.
func transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: reachable}).DialContext
	t.TLSHandshakeTimeout = reachable
	return t
}

// A door adds the token, and turns answers that are no API's into errors with a sentence.
type door struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+d.token)
	}
	resp, err := d.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	kind := resp.Header.Get("Content-Type")
	if strings.HasPrefix(kind, "application/json") && resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what is left out is not shown
	said, code := firstLine(string(body)), resp.StatusCode
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return nil, fmt.Errorf("%w: it refuses the credentials: %s: %s; a token goes into --bearer-token-file", ErrUnreachable, resp.Status, said)
	case code >= 500:
		return nil, fmt.Errorf("%w: %s: %s", ErrUnreachable, resp.Status, said)
	case strings.Contains(string(body), "rafana"):
		return nil, fmt.Errorf("%w: it answers with a page of Grafana, not with Prometheus' HTTP API; want the address of its data source", ErrInput)
	case strings.HasPrefix(kind, "text/html"):
		return nil, fmt.Errorf("%w: it answers with a web page (%s), not with Prometheus' HTTP API; want the address that precedes /api/v1/query", ErrInput, resp.Status)
	}
	return nil, fmt.Errorf("%w: it answers %s with %s, not with Prometheus' HTTP API; for an exporter's page use --scrape", ErrInput, resp.Status, kindOf(kind))
}

func kindOf(contentType string) string {
	if contentType == "" {
		return "no content type"
	}
	return contentType
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}

// address is the URL without its password.
func (s *Server) address() string {
	if u, err := url.Parse(s.URL); err == nil {
		return u.Redacted()
	}
	return s.URL
}

// refusal makes one sentence of an error of the client.
func (s *Server) refusal(err error) error {
	if err == nil {
		return nil
	}
	var said *promv1.Error
	var netErr *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &said) && said.Type == promv1.ErrBadData:
		return fmt.Errorf("%w: %s: %s", ErrInput, s.address(), said.Msg)
	case errors.As(err, &said) && said.Type == promv1.ErrBadResponse:
		return fmt.Errorf("%w: %s: what it answers is not Prometheus' HTTP API: %s", ErrInput, s.address(), said.Msg)
	case errors.As(err, &said):
		return fmt.Errorf("%w from %s: %s: %s", ErrUnreachable, s.address(), said.Type, said.Msg)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w from %s in time", ErrUnreachable, s.address())
	case errors.Is(err, ErrInput), errors.Is(err, ErrUnreachable):
		if errors.As(err, &netErr) {
			err = netErr.Err
		}
		return fmt.Errorf("%s: %w", s.address(), err)
	case errors.As(err, &netErr):
		return fmt.Errorf("%w from %s: %w", ErrUnreachable, s.address(), netErr.Err)
	}
	return fmt.Errorf("%w from %s: %w", ErrUnreachable, s.address(), err)
}

// selector selects the series of a name.
func (s *Server) selector(name string) string {
	if s.Selector == "" {
		return name
	}
	return name + "{" + s.Selector + "}"
}

func (s *Server) warn(said promv1.Warnings) {
	for _, w := range said {
		if !slices.Contains(s.Warnings, w) {
			s.Warnings = append(s.Warnings, w)
		}
	}
}

// instant reads a vector at a time.
func (s *Server) instant(ctx context.Context, query string, at time.Time) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	v, said, err := s.api.Query(ctx, query, at)
	if err != nil {
		return nil, s.refusal(err)
	}
	s.warn(said)
	vector, _ := v.(model.Vector)
	return vector, nil
}

// served are the names among those given that the server has, at any time.
func (s *Server) served(ctx context.Context, names []string) (map[string]bool, error) {
	match := `{__name__=~"` + strings.Join(names, "|") + `"`
	if s.Selector != "" {
		match += "," + s.Selector
	}
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	values, said, err := s.api.LabelValues(ctx, "__name__", []string{match + "}"}, time.Time{}, time.Time{})
	if err != nil {
		return nil, s.refusal(err)
	}
	s.warn(said)
	there := map[string]bool{}
	for _, v := range values {
		if slices.Contains(names, string(v)) {
			there[string(v)] = true
		}
	}
	if len(there) == 0 {
		where := s.address()
		if s.Selector != "" {
			where += " with {" + s.Selector + "}"
		}
		return nil, nothing(where, names)
	}
	return there, nil
}

// Usage reads what the GPUs did within the window that ends at a time. The error wraps
// ErrUnreachable, ErrInput, ErrNoSeries or ErrNoSamples, or is the context's.
func (s *Server) Usage(ctx context.Context, window time.Duration, end time.Time) (*Usage, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	all, names := chosen(false)
	there, err := s.served(ctx, names)
	if err != nil {
		return nil, err
	}
	step := max(window/steps, time.Minute).Truncate(time.Second)
	u := &Usage{Source: s.address(), From: end.Add(-window), To: end, Step: step, Families: found(there)}
	var read []series
	covered := map[int64]bool{}
	for _, f := range all {
		if !there[f.name] {
			continue
		}
		got, err := s.stats(ctx, f, window, end)
		if err != nil {
			return nil, err
		}
		if slices.Contains([]role{podActive, active, utilized}, f.role) {
			if err := s.ranged(ctx, f, got, u.From, end, step, covered); err != nil {
				return nil, err
			}
		}
		for _, one := range got {
			read = append(read, *one)
		}
	}
	if len(read) == 0 {
		return nil, fmt.Errorf("%w: %s has series of a GPU exporter (%s), and none has a sample between %s and %s; give another --window or --until",
			ErrNoSamples, s.address(), strings.Join(u.Families, ", "), u.From.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339))
	}
	u.Covered = min(1, float64(len(covered))*float64(step)/float64(window))
	u.GPUs, u.Warnings = usage(read), s.Warnings
	return u, nil
}

// stats reads mean, percentile, maximum and number of samples of each series of a family.
func (s *Server) stats(ctx context.Context, f family, window time.Duration, end time.Time) (map[string]*series, error) {
	over := fmt.Sprintf("%s[%ds]", s.selector(f.name), int(window.Seconds()))
	got := map[string]*series{}
	for _, q := range []struct {
		query string
		set   func(*Stat, float64)
	}{
		{"count_over_time(" + over + ")", func(s *Stat, v float64) { s.Samples = int(v) }},
		{"avg_over_time(" + over + ")", func(s *Stat, v float64) { s.Mean = v * f.scale }},
		{"quantile_over_time(0.95, " + over + ")", func(s *Stat, v float64) { s.P95 = v * f.scale }},
		{"max_over_time(" + over + ")", func(s *Stat, v float64) { s.Max = v * f.scale }},
	} {
		if f.role == podInfo && strings.HasPrefix(q.query, "quantile") {
			continue
		}
		vector, err := s.instant(ctx, q.query, end)
		if err != nil {
			return nil, err
		}
		for _, x := range vector {
			key := x.Metric.String()
			if got[key] == nil {
				got[key] = &series{role: f.role, labels: labelsOf(x.Metric)}
			}
			if v := float64(x.Value); finite(v) {
				q.set(&got[key].stat, v)
			}
		}
	}
	return got, nil
}

// ranged adds the mean of each step to the series, and the times of steps with a sample to covered.
func (s *Server) ranged(ctx context.Context, f family, got map[string]*series, from, end time.Time, step time.Duration, covered map[int64]bool) error {
	ctx, cancel := context.WithTimeout(ctx, patient)
	defer cancel()
	query := fmt.Sprintf("avg_over_time(%s[%ds])", s.selector(f.name), int(step.Seconds()))
	v, said, err := s.api.QueryRange(ctx, query, promv1.Range{Start: from.Add(step), End: end, Step: step})
	if err != nil {
		return s.refusal(err)
	}
	s.warn(said)
	matrix, _ := v.(model.Matrix)
	for _, stream := range matrix {
		one := got[stream.Metric.String()]
		if one == nil {
			continue
		}
		for _, p := range stream.Values {
			if !finite(float64(p.Value)) {
				continue
			}
			covered[int64(p.Timestamp)] = true
			one.steps = append(one.steps, Point{p.Timestamp.Time(), float64(p.Value) * f.scale})
		}
	}
	return nil
}

func labelsOf(m model.Metric) map[string]string {
	l := make(map[string]string, len(m))
	for name, value := range m {
		l[string(name)] = string(value)
	}
	return l
}
