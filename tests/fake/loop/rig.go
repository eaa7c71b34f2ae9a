package loop

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Rig runs a Loop in a synctest bubble and keeps its snapshots as text, one fact on each line.
type Rig struct {
	Loop     *Loop
	Settings collector.Settings // the initial settings
	Result   chan error         // result of Run

	t        *testing.T
	registry *prometheus.Registry
	cancel   context.CancelFunc

	mu    sync.Mutex
	pages []string
}

// Start runs a Loop with a source and a plan, and waits for its first cycle. If adjust is not nil, it may change the
// options.
func Start(t *testing.T, source collector.Source, plan *gpu.Plan, adjust func(*Options)) *Rig {
	r := &Rig{t: t, registry: prometheus.NewRegistry(), Result: make(chan error, 1)}
	opt := Options{Options: collector.Options{
		Settings: collector.Settings{Source: source, Plan: plan}, Registerer: r.registry,
		Publish: func(s *gpu.Snapshot) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.pages = append(r.pages, render(s))
		},
	}}
	if adjust != nil {
		adjust(&opt)
	}
	r.Settings = opt.Settings
	r.Loop = New(opt)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.Result <- r.Loop.Run(ctx) }()
	synctest.Wait()
	return r
}

// render returns a snapshot as text, one fact on each line. Entities are given by row; a row of -1 means the node:
//
//	error REASON                    the page has no data
//	COUNTER{ROW} VALUE OWNER        a value of a column, with the owner's labels
//	FAMILY{ROW}[LABELS] VALUE       a series of a family
//	down{ROW} REASON                an entity that cannot be read
//	unavailable{FIELD ROW} REASON   a field without values
func render(s *gpu.Snapshot) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if s.Health.Err != nil {
		add("error %s", gpu.Reason(s.Health.Err))
	}
	for _, c := range s.Columns {
		for row, v := range c.Values {
			if v.IsAbsent() {
				continue
			}
			owner := ""
			for _, l := range s.Owners.Of(row) {
				owner += " " + l.Name + "=" + l.Value
			}
			add("%s{%d} %s%s", c.Counter.Name, row, v, owner)
		}
	}
	for _, f := range s.Families {
		for _, x := range f.Series {
			add("%s{%d}%v %s", f.Name, x.Row, x.Labels, x.Value)
		}
	}
	for row, e := range s.Health.Entities {
		if e.Err != nil {
			add("down{%d} %s", row, gpu.Reason(e.Err))
		}
	}
	for _, u := range s.Health.Unavailable {
		add("unavailable{%s %d} %s", u.Field, u.Row, u.Reason)
	}
	return strings.Join(lines, "\n")
}

// Pages returns all pages except the first, which was published before the first cycle.
func (r *Rig) Pages() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pages[1:])
}

// Last returns the latest page.
func (r *Rig) Last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pages[len(r.pages)-1]
}

// Lines returns the lines of the latest page that have a prefix.
func (r *Rig) Lines(prefix string) []string { return withPrefix(strings.Split(r.Last(), "\n"), prefix) }

func withPrefix(lines []string, prefix string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return !strings.HasPrefix(line, prefix) })
}

// Has checks that the latest page has these lines.
func (r *Rig) Has(want ...string) {
	r.t.Helper()
	page := r.Last()
	for _, w := range want {
		if !slices.Contains(strings.Split(page, "\n"), w) {
			r.t.Errorf("page does not have the line %q:\n%s", w, page)
		}
	}
}

// HasNot checks that no line of the latest page has the prefix.
func (r *Rig) HasNot(prefix string) {
	r.t.Helper()
	if lines := r.Lines(prefix); len(lines) > 0 {
		r.t.Errorf("lines of the page with the prefix %q = %v, want none", prefix, lines)
	}
}

// Wait advances the time in the bubble.
func (r *Rig) Wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Reload applies settings and waits for the page of the new session.
func (r *Rig) Reload(s collector.Settings) {
	r.t.Helper()
	if err := r.Loop.Reload(r.t.Context(), s); err != nil {
		r.t.Fatal(err)
	}
	synctest.Wait()
}

// End stops Run and returns its error.
func (r *Rig) End() error {
	r.cancel()
	return <-r.Result
}

// Stop stops Run, which must not return an error.
func (r *Rig) Stop() {
	r.t.Helper()
	if err := r.End(); err != nil {
		r.t.Errorf("Run: %v", err)
	}
}

// series returns the Loop's own series that have a prefix, in the form name{label=value} value.
func (r *Rig) series(prefix string) []string {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			all = append(all, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), value))
		}
	}
	return withPrefix(all, prefix)
}

// Metric checks that the Loop has a series with this value. If want ends with a space, the value is not compared.
func (r *Rig) Metric(want string) {
	r.t.Helper()
	if all := r.series(want); len(all) == 0 || all[0] != want && !strings.HasSuffix(want, " ") {
		r.t.Errorf("series %q is missing or has another value; all series:\n%s", want, strings.Join(r.series(""), "\n"))
	}
}

// MetricNot checks that the Loop has no series with the prefix.
func (r *Rig) MetricNot(prefix string) {
	r.t.Helper()
	if all := r.series(prefix); len(all) > 0 {
		r.t.Errorf("unexpected series %v", all)
	}
}
