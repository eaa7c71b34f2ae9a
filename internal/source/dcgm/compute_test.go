//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// dividedWorld is GPU 0 with an instance of three slices, divided in two, one that is one compute
// instance, and one without any. What the engine says of the divided one is what it says of one of
// its parts.
func dividedWorld() []string {
	return append(versions[:len(versions):len(versions)],
		gpuLine(0, "prof=1001-1012"),
		"instance 1 gpu=0 nvml=2 profile=1c.3g.40gb uuid=MIG-part-0",
		"instance 2 gpu=0 nvml=5 profile=2g.20gb uuid=MIG-whole",
		"instance 3 gpu=0 nvml=6 profile=1g.10gb",
		// DCGM's ids run against NVML's.
		"compute 12 instance=1 nvml=0 profile=1c.3g.40gb uuid=MIG-part-0",
		"compute 11 instance=1 nvml=1 profile=2c.3g.40gb uuid=MIG-part-1",
		"compute 13 instance=2 nvml=0 profile=2g.20gb uuid=MIG-whole",
		"value instance:1 1001 double 0.5",
		"value instance:2 1001 double 0.25",
		"value compute:12 1001 double 0.9",
		"value compute:11 1001 double 0.3",
	)
}

func computePlan(sel gpu.Selector) *gpu.Plan {
	engine := profiling(1001)
	engine.Levels |= onCompute
	plan := planOf(engine)
	plan.Devices = sel
	return plan
}

// Compute instances have rows where they are asked for and their GPU instance holds several; who
// they are is known in any case.
func TestDividedInstances(t *testing.T) {
	instance := func(id, nvml uint32, profile, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, ID: id}, NVMLIndex: 1, Minor: 2,
			UUID: "GPU-0", PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100 80GB HBM3",
			InstanceID: nvml, Profile: profile, MIGUUID: uuid,
		}
	}
	compute := func(id, nvml uint32, profile, uuid string) gpu.Device {
		d := instance(id, 2, profile, uuid)
		d.Entity.Kind, d.ComputeID = gpu.KindComputeInstance, nvml
		return d
	}
	divided, whole, empty := instance(1, 2, "3g.40gb", ""), instance(2, 5, "2g.20gb", "MIG-whole"), instance(3, 6, "1g.10gb", "")
	first, second := compute(12, 0, "1c.3g.40gb", "MIG-part-0"), compute(11, 1, "2c.3g.40gb", "MIG-part-1")
	parts := []gpu.ComputeInstance{
		{Instance: 0, ID: 0, Profile: "1c.3g.40gb", UUID: "MIG-part-0"}, {Instance: 0, ID: 1, Profile: "2c.3g.40gb", UUID: "MIG-part-1"},
	}
	for name, tt := range map[string]struct {
		sel     gpu.Selector
		devices []gpu.Device
		divided []gpu.ComputeInstance
	}{
		"i":       {gpu.Selector{Minor: true}, []gpu.Device{divided, whole, empty}, parts},
		"i+c":     {gpu.Selector{Minor: true, Compute: true}, []gpu.Device{divided, first, second, whole, empty}, parts},
		"i:2,3+c": {gpu.Selector{Minor: true, MinorIDs: []uint32{2, 3}, Compute: true}, []gpu.Device{whole, empty}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, dividedWorld()...)
			top := open(t, e, computePlan(tt.sel), dcgm.Options{}).Topology()
			if diff := cmp.Diff(tt.devices, top.Devices); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.divided, top.ComputeInstances); diff != "" {
				t.Errorf("divided (-want +got):\n%s", diff)
			}
		})
	}
}

// What a divided instance has is read of its parts, and a field that no compute instance has makes
// no rows of them.
func TestComputeInstancesAreRead(t *testing.T) {
	sel := gpu.Selector{Minor: true, MinorIDs: []uint32{1, 2}, Compute: true}
	e := fakedcgm.New(t, dividedWorld()...)
	s := open(t, e, computePlan(sel), dcgm.Options{})
	served := map[string]string{}
	readUntil(t, s, "every value", func(b *gpu.Batch, err error) bool {
		for _, x := range b.Samples {
			if top := s.Topology(); top.Serves(&computePlan(sel).Fields[0], x.Row) {
				served[top.Devices[x.Row].Entity.String()] = x.Value.String()
			}
		}
		return err == nil && len(served) == 3
	})
	want := map[string]string{
		"compute instance 12 of GPU 0": "0.9", "compute instance 11 of GPU 0": "0.3", "GPU instance 2 of GPU 0": "0.25",
	}
	if diff := cmp.Diff(want, served); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}

	s.Close()
	plan := computePlan(sel)
	plan.Fields[0].Levels = onBoth
	if n := len(open(t, e, plan, dcgm.Options{}).Topology().Devices); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// A GPU instance that is divided otherwise is another topology, whether or not its parts have rows:
// their UUIDs are no longer those of before.
func TestDividedAnew(t *testing.T) {
	for name, sel := range map[string]gpu.Selector{"f": {Flex: true}, "f+c": {Flex: true, Compute: true}} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, dividedWorld()...)
			s := open(t, e, computePlan(sel), dcgm.Options{})
			read(t, s)
			if err := s.Err(); err != nil {
				t.Fatalf("the session ended: %v", err)
			}
			e.Remove("compute 11")
			if err := s.Read(context.Background(), &gpu.Batch{}); err != nil && !errors.Is(err, gpu.ErrTopology) {
				t.Errorf("Read: %v", err)
			}
			if err := s.Err(); !errors.Is(err, gpu.ErrTopology) {
				t.Errorf("the session ended with %v, want %v", err, gpu.ErrTopology)
			}
			s.Close()
			top := open(t, e, computePlan(sel), dcgm.Options{}).Topology()
			if len(top.Devices) != 4 || top.ComputeInstances != nil || top.Devices[1].MIGUUID != "MIG-part-0" {
				t.Errorf("one compute instance left: %d rows, divided %v, the instance is %q", len(top.Devices), top.ComputeInstances, top.Devices[1].MIGUUID)
			}
		})
	}
}
