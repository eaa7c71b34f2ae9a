package gauge_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gauge"
)

func TestState(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := gauge.NewState("state", "A state.", "reason")
	reg.MustRegister(s)
	has := func(want string) {
		t.Helper()
		if want != "" {
			want = "# HELP state A state.\n# TYPE state gauge\n" + want
		}
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	has("")
	s.Set(gauge.Series{Value: 1, Labels: []string{"a"}}, gauge.Series{Labels: []string{"b"}})
	has("state{reason=\"a\"} 1\nstate{reason=\"b\"} 0\n")
	s.Set(gauge.Series{Value: 2, Labels: []string{"c"}})
	has("state{reason=\"c\"} 2\n")
	s.Set()
	has("")
}

// A Gather during a change sees exactly one state.
func TestStateIsNeverWithoutSeries(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := gauge.NewState("state", "A state.", "reason")
	reg.MustRegister(s)
	set := func(i int) { s.Set(gauge.Series{Value: 1, Labels: []string{string(rune('a' + i%2))}}) }
	set(0)
	over := make(chan struct{})
	var setter sync.WaitGroup
	setter.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			default:
				set(i)
			}
		}
	})
	for range 2000 {
		if n, err := testutil.GatherAndCount(reg, "state"); n != 1 || err != nil {
			t.Fatalf("series = %d, error = %v; want 1 and no error", n, err)
		}
	}
	close(over)
	setter.Wait()
}
