//go:build linux && cgo

package dcgm_test

import (
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// dividedWorld returns a script of a GPU with three instances: with two compute instances, with one, and with none. For
// the first, the engine reports the identity of one of its compute instances.
func dividedWorld() []string {
	return append(versions[:len(versions):len(versions)],
		gpuLine(0, "prof=1001-1012"),
		"instance 1 gpu=0 nvml=2 profile=1c.3g.40gb uuid=MIG-part-0",
		"instance 2 gpu=0 nvml=5 profile=2g.20gb uuid=MIG-whole",
		"instance 3 gpu=0 nvml=6 profile=1g.10gb",
		"compute 12 instance=1 nvml=0", "compute 11 instance=1 nvml=1", "compute 13 instance=2 nvml=0",
	)
}

// A GPU instance with several compute instances has no UUID. A change of its compute instances changes the topology.
func TestDividedInstances(t *testing.T) {
	instance := func(id, nvml uint32, profile, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, ID: id}, NVMLIndex: 1, Minor: 2,
			UUID: "GPU-0", PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100 80GB HBM3",
			InstanceID: nvml, Profile: profile, MIGUUID: uuid,
		}
	}
	e := fakedcgm.New(t, dividedWorld()...)
	plan := planOf(profiling(1001))
	plan.Devices = gpu.Selector{Minor: true}
	s := open(t, e, plan, dcgm.Options{})
	want := []gpu.Device{instance(1, 2, "3g.40gb", ""), instance(2, 5, "2g.20gb", "MIG-whole"),
		instance(3, 6, "1g.10gb", "")}
	checkEqual(t, "devices", want, s.Topology().Devices)
	read(t, s)
	if err := s.Err(); err != nil {
		t.Fatalf("session ended: %v", err)
	}
	e.Remove("compute 11")
	ends(t, s, gpu.ErrTopology)
	closeSession(t, s)
	if d := open(t, e, plan, dcgm.Options{}).Topology().Devices[0]; d.MIGUUID != "MIG-part-0" {
		t.Errorf("one compute instance left: MIG UUID = %q, want MIG-part-0", d.MIGUUID)
	}
}
