package collector_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// A node is collected also where nothing is asked of its GPU instances, divided
// ones too, and nobody tells owners: so do the subcommands that only look.
func TestNothingAskedOfInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(context.Context, *gpu.Batch) error { return nil }
		r := start(t, &fake{topology: (&play{divided: true}).topology(), read: silent}, func(o *loop.Options) {
			o.Plan.Fields, o.Plan.Counters, o.Plan.Derived = nil, nil, nil
		})
		r.wait(interval)
		r.hasNot("error")
		r.metric(`dcgm_exporter_sessions_total{cause=start} 1`)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
	})
}
