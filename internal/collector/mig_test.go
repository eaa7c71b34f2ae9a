package collector_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// A cycle succeeds even if no GPU instances are read and no owners are reported, as in the read-only subcommands.
func TestNothingReadOfInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(context.Context, *gpu.Batch) error { return nil }
		instance := gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, ID: 7}
		top := gpu.NewTopology([]gpu.Device{
			{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"},
			{Entity: instance, UUID: "GPU-0", InstanceID: 1, Profile: "3g.40gb"},
		})
		r := start(t, &fake{topology: top, read: silent}, func(o *loop.Options) {
			o.Plan.Fields, o.Plan.Counters, o.Plan.Derived = nil, nil, nil
		})
		r.Wait(interval)
		r.HasNot("error")
		r.Metric(`dcgm_exporter_sessions_total{cause=start} 1`)
		if err := r.End(); err != nil {
			t.Fatal(err)
		}
	})
}
