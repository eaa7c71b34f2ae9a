package collector_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// divided is a node of three GPUs, the last of which has three GPU instances. The first of them, in
// row 3, has two compute instances, in rows 6 and 7.
func divided() *gpu.Topology {
	var list []gpu.Device
	for i := range uint32(3) {
		list = append(list, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: i}, GPU: i, UUID: fmt.Sprint("GPU-", i)})
	}
	for i, profile := range []string{"3g.40gb", "2g.20gb", "1g.10gb+me"} {
		list = append(list, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: uint32(100 + i), ParentKind: gpu.KindGPU, Parent: 2},
			GPU:    2, UUID: "GPU-2", InstanceID: uint32(i + 1), Profile: profile,
		})
	}
	profiles := []string{"1c.3g.40gb", "2c.3g.40gb"}
	for i, profile := range profiles {
		d := list[3]
		d.Entity.Kind, d.Entity.ID, d.ComputeID, d.Profile = gpu.KindComputeInstance, uint32(i), uint32(i), profile
		list = append(list, d)
	}
	top := gpu.NewTopology(list)
	for i, profile := range profiles {
		top.ComputeInstances = append(top.ComputeInstances, gpu.ComputeInstance{Instance: 3, ID: uint32(i), Profile: profile})
	}
	return top
}

// A node is collected also where nothing is read of its GPU instances, divided ones too, and no
// owners are reported: so do the subcommands that only look.
func TestNothingReadOfInstances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := func(context.Context, *gpu.Batch) error { return nil }
		r := start(t, &fake{topology: divided(), read: silent}, func(o *loop.Options) {
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

// What a compute instance has not is said of it alone where the rest of its GPU has it, and once
// where nothing has it.
func TestUnavailableOfComputeInstances(t *testing.T) {
	for name, tt := range map[string]struct {
		served     []int // rows
		has, lacks []string
	}{
		"all of them": {[]int{0, 1, 4, 5, 6, 7}, nil, []string{"unavailable{GR"}},
		"not one":     {[]int{0, 1, 4, 5, 6}, []string{"GR{6} 0.5", "unavailable{GR 7} not_supported"}, []string{"unavailable{GR 2}", "unavailable{GR 6}"}},
		"none of them": {
			[]int{0, 1, 4, 5}, []string{"unavailable{GR 6} not_supported", "unavailable{GR 7} not_supported"}, []string{"unavailable{GR 2}", "unavailable{GR -1}"},
		},
		"nothing of the GPU": {[]int{0, 1}, []string{"unavailable{GR 2} not_supported"}, []string{"unavailable{GR 6}", "unavailable{GR 7}"}},
		"nothing at all":     {nil, []string{"unavailable{GR -1} not_supported"}, []string{"unavailable{GR 2}", "unavailable{GR 6}"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{topology: divided()}
				f.read = func(_ context.Context, b *gpu.Batch) error {
					for row := range f.topology.Devices {
						b.Fail(row, 2, gpu.ErrNotSupported)
						b.Add(row, 0, gpu.Int(1), time.Now())
					}
					for _, row := range tt.served {
						b.Add(row, 2, gpu.Float(0.5), time.Now())
					}
					return nil
				}
				r := start(t, f, func(o *loop.Options) {
					all := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindComputeInstance)
					o.Plan.Fields[0].Levels, o.Plan.Fields[2].Levels = all, all // the first keeps all of them up
				})
				r.has(tt.has...)
				for _, line := range tt.lacks {
					r.hasNot(line)
				}
				r.stop()
			})
		})
	}
}
