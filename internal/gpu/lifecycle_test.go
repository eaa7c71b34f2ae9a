package gpu_test

import (
	"slices"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func TestLifecycle(t *testing.T) {
	l := gpu.NewLifecycle()
	select {
	case <-l.Done():
		t.Error("Done is closed before End, want it open")
	default:
	}
	if l.Err() != nil {
		t.Errorf("Err() = %v before End, want nil", l.Err())
	}
	for _, err := range []error{gpu.ErrTopology, gpu.ErrLost} {
		if got := l.End(err); got != gpu.ErrTopology {
			t.Errorf("End(%v) = %v, want the first reason, %v", err, got, gpu.ErrTopology)
		}
	}
	<-l.Done()
	if l.Err() != gpu.ErrTopology {
		t.Errorf("Err() = %v, want the first reason, %v", l.Err(), gpu.ErrTopology)
	}
}

// An ID in a selector is missing if no device has it and some field is read for its kind. GPUs and instances are always
// checked.
func TestPlanMissing(t *testing.T) {
	some := func(ids ...uint32) gpu.Selector {
		return gpu.Selector{Major: true, MajorIDs: ids, Minor: true, MinorIDs: ids}
	}
	devices := []gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 2, ParentKind: gpu.KindGPU, Parent: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindNVLink, ID: 2, ParentKind: gpu.KindGPU, Parent: 1}}, // not of a switch
		{Entity: gpu.Entity{Kind: gpu.KindNVLink, ID: 1, ParentKind: gpu.KindNVSwitch, Parent: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindCPU, ID: 1}},
		{Entity: gpu.Entity{Kind: gpu.KindCPUCore, ID: 2, ParentKind: gpu.KindCPU, Parent: 1}},
	}
	all := gpu.KindsOf(gpu.KindGPU, gpu.KindNVLink, gpu.KindNVSwitch, gpu.KindCPU, gpu.KindCPUCore)
	for name, tt := range map[string]struct {
		levels gpu.Kinds
		sel    gpu.Selector
		want   []string
	}{
		"two ids": {all, some(1, 2), []string{
			"GPU 2", "GPU instance 1", "NVSwitch 1", "NVSwitch 2", "NVLink 2", "CPU 2", "CPU core 1",
		}},
		"only GPUs":   {gpu.KindsOf(gpu.KindGPU), some(1, 2), []string{"GPU 2", "GPU instance 1"}},
		"no ids":      {all, gpu.Selector{Major: true, Minor: true}, nil},
		"all devices": {all, gpu.Selector{Flex: true}, nil},
	} {
		plan := &gpu.Plan{Fields: []gpu.Field{{Levels: tt.levels}}, Devices: tt.sel, Switches: tt.sel, CPUs: tt.sel}
		var got []string
		for _, e := range plan.Missing(devices) {
			got = append(got, e.String())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: missing = %q, want %q", name, got, tt.want)
		}
	}
}

// Each selector selects its kinds of entities. Kinds for which no field exists have no rows.
func TestPlanSelects(t *testing.T) {
	all := gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance, gpu.KindNVLink, gpu.KindNVSwitch,
		gpu.KindCPU, gpu.KindCPUCore, gpu.KindConnectX, gpu.KindNode)
	entities := map[string]gpu.Entity{
		"GPU":         {Kind: gpu.KindGPU, ID: 1},
		"instance":    {Kind: gpu.KindGPUInstance, ID: 1, ParentKind: gpu.KindGPU, Parent: 9},
		"GPU link":    {Kind: gpu.KindNVLink, ID: 9, ParentKind: gpu.KindGPU, Parent: 1},
		"switch":      {Kind: gpu.KindNVSwitch, ID: 1},
		"switch link": {Kind: gpu.KindNVLink, ID: 1, ParentKind: gpu.KindNVSwitch, Parent: 9},
		"CPU":         {Kind: gpu.KindCPU, ID: 1},
		"core":        {Kind: gpu.KindCPUCore, ID: 1, ParentKind: gpu.KindCPU, Parent: 9},
		"card":        {Kind: gpu.KindConnectX, ID: 9},
		"node":        {Kind: gpu.KindNode},
	}
	major := gpu.Selector{Major: true, MajorIDs: []uint32{1}}
	minor := gpu.Selector{Minor: true, MinorIDs: []uint32{1}}
	other := gpu.Selector{Major: true, MajorIDs: []uint32{2}, Minor: true, MinorIDs: []uint32{2}}
	for name, tt := range map[string]struct {
		levels gpu.Kinds
		sel    gpu.Selector
		want   []string
	}{
		"major":     {all, major, []string{"GPU", "GPU link", "switch", "CPU", "card", "node"}},
		"minor":     {all, minor, []string{"instance", "switch link", "core", "card", "node"}},
		"other ids": {all, other, []string{"card", "node"}},
		"no levels": {0, gpu.Selector{Flex: true}, []string{"GPU", "instance"}},
		"links": {
			gpu.KindsOf(gpu.KindNVLink), gpu.Selector{Flex: true},
			[]string{"GPU", "instance", "GPU link", "switch link"},
		},
	} {
		plan := &gpu.Plan{Fields: []gpu.Field{{Levels: tt.levels}}, Devices: tt.sel, Switches: tt.sel, CPUs: tt.sel}
		want := map[string]bool{}
		for _, entity := range tt.want {
			want[entity] = true
		}
		for entity, e := range entities {
			if got := plan.Selects(e); got != want[entity] {
				t.Errorf("%s: Selects(%s) = %t, want %t", name, entity, got, want[entity])
			}
		}
	}
}
