package app

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// TestAccountsAreKeptForAFamily checks that accounts are only kept, and their fields only read, if some family needs
// them.
func TestAccountsAreKeptForAFamily(t *testing.T) {
	for _, tt := range []struct{ accounts, virtual, kept bool }{
		{true, false, true}, {false, true, true}, {true, true, true}, {false, false, false},
	} {
		d := newDerivers(events.Options{}, tt.accounts, tt.virtual, prometheus.NewRegistry())
		c := d.settings(&gpu.Plan{}, Backend{Attributors: []collector.Attributor{nil}})
		if kept := len(c.Derivers) == 4; kept != tt.kept || len(c.Plan.Fields) > 0 != tt.kept {
			t.Errorf("accounts %t, virtual GPUs %t: derivers = %d, fields = %d, want the accountant and its fields: %t",
				tt.accounts, tt.virtual, len(c.Derivers), len(c.Plan.Fields), tt.kept)
		}
	}
}
