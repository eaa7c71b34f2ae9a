package gpu_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// node is GPU 0 whole, and GPU 1 with an instance that is divided and one that is not.
func node(divided bool) *gpu.Topology {
	of := func(kind gpu.Kind, id, instance uint32) gpu.Device {
		return gpu.Device{GPU: 1, InstanceID: instance, Entity: gpu.Entity{Kind: kind, ParentKind: gpu.KindGPU, Parent: 1, ID: id}}
	}
	devices := []gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1},
		of(gpu.KindGPUInstance, 7, 1), of(gpu.KindGPUInstance, 8, 2),
	}
	if divided {
		devices = append(devices, of(gpu.KindComputeInstance, 3, 1), of(gpu.KindComputeInstance, 4, 1))
	}
	return gpu.NewTopology(devices)
}

// What exists for the parts is served for the parts alone, level by level, but for texts.
func TestServes(t *testing.T) {
	const g, i, c = 1 << gpu.KindGPU, 1 << gpu.KindGPUInstance, 1 << gpu.KindComputeInstance
	for name, tt := range map[string]struct {
		field          gpu.Field
		whole, divided []bool
	}{
		"of GPUs":              {gpu.Field{Levels: g}, []bool{true, true, false, false}, []bool{true, true, false, false, false, false}},
		"of instances":         {gpu.Field{Levels: g | i}, []bool{true, false, true, true}, []bool{true, false, true, true, false, false}},
		"of compute instances": {gpu.Field{Levels: g | i | c}, []bool{true, false, true, true}, []bool{true, false, false, true, true, true}},
		"a text":               {gpu.Field{Levels: g | i | c, Text: true}, []bool{true, true, true, true}, []bool{true, true, true, true, true, true}},
	} {
		for divided, want := range map[bool][]bool{false: tt.whole, true: tt.divided} {
			top := node(divided)
			var got []bool
			for row := range top.Devices {
				got = append(got, top.Serves(&tt.field, row))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("a field %s, divided %t (-want +got):\n%s", name, divided, diff)
			}
		}
	}
}

func TestInstanceRow(t *testing.T) {
	top := node(true)
	var got []int
	for row := range top.Devices {
		got = append(got, top.InstanceRow(row))
	}
	if diff := cmp.Diff([]int{-1, -1, -1, -1, 2, 2}, got); diff != "" {
		t.Errorf("rows of instances (-want +got):\n%s", diff)
	}
	alone := gpu.NewTopology(top.Devices[4:])
	if row := alone.InstanceRow(0); row != -1 {
		t.Errorf("the row of an instance that is not watched is %d", row)
	}
}

// A compute instance is a part of its GPU instance by its slices, and one of so many where they are
// not reported.
func TestPart(t *testing.T) {
	top := node(true)
	for profile, want := range map[string]float64{
		"1c.4g.40gb": 0.25, "3c.4g.40gb": 0.75, "2c.2g.10gb+me": 1,
		"3g.20gb": 0.5, "": 0.5, "c.3g.20gb": 0.5, "4c.3g.20gb": 0.5, "0c.3g.20gb": 0.5, "1c.xg.20gb": 0.5, "1c": 0.5,
	} {
		top.ComputeInstances = []gpu.ComputeInstance{{Instance: 3, Profile: "1g.10gb"}, {Instance: 2}, {Instance: 2, ID: 1, Profile: profile}}
		if got := top.Part(2); got != want {
			t.Errorf("%q is %v of its instance, want %v", profile, got, want)
		}
	}
	for profile, want := range map[string]string{"1c.3g.20gb": "3g.20gb", "3g.20gb": "3g.20gb", "2c.2g.10gb+me": "2g.10gb+me", "": ""} {
		if got := gpu.InstanceProfile(profile); got != want {
			t.Errorf("%q is of the instance %q, want %q", profile, got, want)
		}
	}
}
