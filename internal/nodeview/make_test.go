package nodeview_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/nodeview"
)

// A node with a GPU that is partitioned, and one that two pods share.
func node() *gpu.Snapshot {
	t := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 0}, GPU: 0, UUID: "GPU-0"},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1, UUID: "GPU-1"},
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 0, ID: 5}, GPU: 0, UUID: "GPU-0", InstanceID: 7, Profile: "3g.40gb"},
		{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 0}},
		{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 1}},
	})
	value := func(rows ...gpu.Value) []gpu.Value {
		return append(rows, make([]gpu.Value, 5-len(rows))...)
	}
	column := func(name string, scale float64, rows ...gpu.Value) gpu.Column {
		return gpu.Column{Counter: &gpu.Counter{Name: name, Scale: scale}, Values: value(rows...)}
	}
	pod := func(name, container, replica string) gpu.Owner {
		return gpu.Owner{Namespace: "ml", Pod: name, Container: container, Replica: replica}
	}
	owned := func(uuid, instance, name string, v float64) gpu.Series {
		labels := []gpu.Label{{Name: "gpu", Value: "x"}, {Name: "UUID", Value: uuid}}
		if instance != "" {
			labels = append(labels, gpu.Label{Name: "GPU_I_ID", Value: instance})
		}
		return gpu.Series{Row: gpu.AllRows, Labels: append(labels, gpu.Label{Name: "namespace", Value: "ml"}, gpu.Label{Name: "pod", Value: name}), Value: gpu.Float(v)}
	}
	return &gpu.Snapshot{
		Topology: t,
		Health: gpu.Health{
			Entities:    []gpu.EntityHealth{{}, {}, {}, {}, {Err: gpu.ErrLost}},
			Unavailable: []gpu.FieldHealth{{Field: "A", Row: gpu.AllRows, Reason: "not_supported"}, {Field: "B", Row: 0, Reason: "permission"}, {Field: "B", Row: 2, Reason: "permission"}},
		},
		Owners: &gpu.Owners{Uses: []gpu.Use{
			{}, {Sharing: gpu.SharingTimeSlicing, Replicas: 4, Owners: []gpu.Owner{pod("a", "x", "0"), pod("a", "x", "1"), pod("b", "y", "2")}},
			{Owners: []gpu.Owner{{Labels: []gpu.Label{{Name: "hpc_job", Value: "17"}}}}},
		}},
		Columns: []gpu.Column{
			column("DCGM_FI_DEV_GPU_UTIL", 1, gpu.Int(10), gpu.Int(50)),
			column("DCGM_FI_DEV_FB_USED", 1, gpu.Value{}, gpu.Int(3), gpu.Int(1)),
			column("DCGM_FI_DEV_FB_FREE", 1, gpu.Value{}, gpu.Int(5)),
			column("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e6, gpu.Float(1.5e9)),
			column("DCGM_FI_DEV_POWER_USAGE", 1, gpu.Float(math.Inf(1)), gpu.Float(70.5)),
			column("DCGM_FI_DEV_XID_ERRORS", 1, gpu.Int(0), gpu.Int(31)),
			column("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 1, gpu.Int(0x41), gpu.Int(1)),
		},
		Families: []gpu.Family{
			{Name: "dcgm_pod_gpu_utilization_ratio", Series: []gpu.Series{owned("GPU-1", "", "a", 0.25), owned("GPU-1", "9", "a", 0.9), owned("GPU-0", "", "b", 0.8)}},
			{Name: "DCGM_EXP_XID_LAST_SEEN_TIMESTAMP_SECONDS", Series: []gpu.Series{
				{Row: 0, Labels: []gpu.Label{{Name: "xid", Value: "79"}}, NoOwner: true, Owner: []gpu.Label{{Name: "namespace", Value: "ml"}, {Name: "pod", Value: "gone"}}, Value: gpu.Float(100)},
			}},
			{Name: "DCGM_EXP_XID_ERRORS_TOTAL", Series: []gpu.Series{{Row: 0, Labels: []gpu.Label{{Name: "xid", Value: "79"}}, Value: gpu.Int(2)}}},
		},
	}
}

func TestNew(t *testing.T) {
	number := func(v float64) *float64 { return &v }
	seven := uint32(7)
	got := nodeview.New(node())
	want := []nodeview.Entity{
		{Name: "GPU 0", Kind: "GPU", GPU: 0, UUID: "GPU-0", Instances: 1, BusyRatio: number(0.1), SMClockHertz: number(1.5e9), Throttle: []string{"hw_thermal"}},
		{Name: "GPU 0 / instance 7", Kind: "GPU instance", GPU: 0, Instance: &seven, UUID: "GPU-0", Profile: "3g.40gb", MemoryUsedBytes: number(1 << 20),
			Sharing: "none", Owners: []nodeview.Owner{{Job: "17"}}},
		{Name: "GPU 1", Kind: "GPU", GPU: 1, UUID: "GPU-1", BusyRatio: number(0.5), MemoryUsedBytes: number(3 << 20), MemoryTotalBytes: number(8 << 20),
			PowerWatts: number(70.5), Throttle: []string{}, Sharing: "time-slicing", Replicas: 4, Owners: []nodeview.Owner{
				{Namespace: "ml", Pod: "a", Containers: []string{"x"}, Replicas: 2, BusyRatio: number(0.25)},
				{Namespace: "ml", Pod: "b", Containers: []string{"y"}, Replicas: 1},
			}},
	}
	if diff := cmp.Diff(want, got.Entities); diff != "" {
		t.Errorf("entities (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]nodeview.XID{
		{Entity: "GPU 0", XID: 79, Text: "GPU has fallen off the bus", LastSeen: 100, Count: 2, Pod: "ml/gone"},
		{Entity: "GPU 1", XID: 31, Text: "GPU memory page fault"},
	}, got.XIDs); diff != "" {
		t.Errorf("XIDs (-want +got):\n%s", diff)
	}
	if len(got.Others) != 1 || got.Others[0].Up != 1 || len(got.Others[0].Down) != 1 || got.Others[0].Down[0].Problem.Reason != "lost" {
		t.Errorf("others %+v", got.Others)
	}
	if diff := cmp.Diff([]nodeview.Unavailable{{Field: "A", Reason: "not_supported"}, {Field: "B", Reason: "permission", Entities: []string{"GPU 0", "GPU 0 / instance 7"}}}, got.Unavailable); diff != "" {
		t.Errorf("unavailable (-want +got):\n%s", diff)
	}
}
