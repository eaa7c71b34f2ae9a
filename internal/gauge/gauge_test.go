package gauge_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
)

func newState() (*gauge.State, *prometheus.Registry) {
	s, reg := gauge.NewState("state", "A state.", "reason"), prometheus.NewRegistry()
	reg.MustRegister(s)
	return s, reg
}

func TestState(t *testing.T) {
	s, reg := newState()
	for i, step := range []struct {
		set  []gauge.Series
		want string
	}{
		{nil, ""}, // not set
		{
			[]gauge.Series{{Value: 1, Labels: []string{"a"}}, {Labels: []string{"b"}}},
			"state{reason=\"a\"} 1\nstate{reason=\"b\"} 0\n",
		},
		{[]gauge.Series{{Value: 2, Labels: []string{"c"}}}, "state{reason=\"c\"} 2\n"},
		{nil, ""},
	} {
		if i > 0 {
			s.Set(step.set...)
		}
		if step.want != "" {
			step.want = "# HELP state A state.\n# TYPE state gauge\n" + step.want
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(step.want)); err != nil {
			t.Error(err)
		}
	}
}

// A Gather during a change sees exactly one state.
func TestStateIsNeverWithoutSeries(t *testing.T) {
	s, reg := newState()
	set := func(i int) { s.Set(gauge.Series{Value: 1, Labels: []string{string(rune('a' + i%2))}}) }
	set(0)
	var over atomic.Bool
	var setter sync.WaitGroup
	setter.Go(func() {
		for i := 0; !over.Load(); i++ {
			set(i)
		}
	})
	for range 2000 {
		if n, err := testutil.GatherAndCount(reg, "state"); n != 1 || err != nil {
			t.Fatalf("series = %d, error = %v; want 1 and no error", n, err)
		}
	}
	over.Store(true)
	setter.Wait()
}
