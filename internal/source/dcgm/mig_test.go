//go:build linux && cgo

package dcgm_test

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

// A GPU instance with several compute instances has no UUID. A change of its compute instances changes the topology.
func TestDividedInstances(t *testing.T) {
	instance := func(id, nvml uint32, profile, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, ID: id}, NVMLIndex: 1, Minor: 2,
			UUID: "GPU-0", PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100 80GB HBM3",
			InstanceID: nvml, Profile: profile, MIGUUID: uuid,
		}
	}
	plan := planOf(profiling(1001))
	plan.Devices = gpu.Selector{Minor: true}
	// The first instance has two compute instances, the second one, and the third none. For the first, the engine
	// reports the identity of one of its compute instances.
	r := start(t, plan, dcgm.Options{}, slices.Concat(versions, []string{
		gpuLine(0, "prof=1001-1012"),
		"instance 1 gpu=0 nvml=2 profile=1c.3g.40gb uuid=MIG-part-0",
		"instance 2 gpu=0 nvml=5 profile=2g.20gb uuid=MIG-whole",
		"instance 3 gpu=0 nvml=6 profile=1g.10gb",
		"compute 12 instance=1 nvml=0", "compute 11 instance=1 nvml=1", "compute 13 instance=2 nvml=0",
	})...)
	want := []gpu.Device{instance(1, 2, "3g.40gb", ""), instance(2, 5, "2g.20gb", "MIG-whole"),
		instance(3, 6, "1g.10gb", "")}
	checkEqual(t, "devices", want, r.Topology().Devices)
	r.read()
	r.lives()
	r.e.Remove("compute 11")
	if d := r.follow(plan).Topology().Devices[0]; d.MIGUUID != "MIG-part-0" {
		t.Errorf("one compute instance left: MIG UUID = %q, want MIG-part-0", d.MIGUUID)
	}
}
