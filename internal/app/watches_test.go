package app

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Resources that the API server forbids are reported as series, including claims. Nodes are optional and not reported.
func TestForbiddenResourcesAreReported(t *testing.T) {
	w := newAPIWatches(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	w.report("nodes", errors.New("forbidden"))
	w.report("pods", nil)
	w.report("resourceclaims", errors.New("forbidden"))
	if n := testutil.CollectAndCount(w.gauge); n != 2 {
		t.Errorf("series = %d, want 2: pods and resourceclaims", n)
	}
	for resource, want := range map[string]float64{"pods": 1, "resourceclaims": 0} {
		if got := testutil.ToFloat64(w.gauge.WithLabelValues(resource)); got != want {
			t.Errorf("%s: value = %v, want %v", resource, got, want)
		}
	}
}
