package app

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// counting is a source whose sessions can release profiling counters.
type counting struct {
	*side
	calls []string
}

func (c *counting) Open(context.Context, *gpu.Plan) (collector.Session, error) { return c, nil }

func (c *counting) PauseProfiling(context.Context) error {
	c.calls = append(c.calls, "pause")
	return nil
}

func (c *counting) ResumeProfiling(context.Context) error {
	c.calls = append(c.calls, "resume")
	return gpu.ErrPermission
}

// What a source can, it can also behind everything that the application puts in front of it.
func TestProfilingThroughTheWrappers(t *testing.T) {
	open := func(source collector.Source) collector.Profiler {
		t.Helper()
		session, err := newStandIn(prometheus.NewRegistry(), slog.New(slog.DiscardHandler)).of(collector.SourceOf(paired{Source: source}.Open), nil, gpu.EngineAddress{}).Open(t.Context(), &gpu.Plan{Interval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		p, ok := session.(collector.Profiler)
		if !ok {
			t.Fatalf("%T is no Profiler", session)
		}
		return p
	}
	plain := &side{topology: gpu.NewTopology(nil)}
	c := &counting{side: plain}
	can := open(c)
	if err := can.PauseProfiling(t.Context()); err != nil {
		t.Errorf("PauseProfiling: %v", err)
	}
	if err := can.ResumeProfiling(t.Context()); !errors.Is(err, gpu.ErrPermission) {
		t.Errorf("ResumeProfiling: %v, want the source's own error", err)
	}
	if diff := cmp.Diff([]string{"pause", "resume"}, c.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	cannot := open(plain)
	for _, err := range []error{cannot.PauseProfiling(t.Context()), cannot.ResumeProfiling(t.Context())} {
		if !errors.Is(err, gpu.ErrNotSupported) {
			t.Errorf("of a source that cannot: %v, want gpu.ErrNotSupported", err)
		}
	}
}
