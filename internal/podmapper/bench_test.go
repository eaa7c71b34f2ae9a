package podmapper_test

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/kubelet"
)

// BenchmarkAttribute measures one Attribute with 110 pods on 56 time-sliced MIG instances, over a real connection to
// a kubelet. It also reports the number of calls to the kubelet. The exporter calls Attribute once per collection
// interval.
func BenchmarkAttribute(b *testing.B) {
	var devices []gpu.Device
	for g := range uint32(8) {
		uuid := fmt.Sprintf("GPU-%08d-2078-5444-8c9c-4f8e98ae4dcc", g)
		entity := gpu.Entity{Kind: gpu.KindGPU, ID: g}
		devices = append(devices, gpu.Device{Entity: entity, GPU: g, NVMLIndex: g, UUID: uuid})
		for i := range uint32(7) {
			devices = append(devices, gpu.Device{
				Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7*g + i, ParentKind: gpu.KindGPU, Parent: g},
				GPU:    g, NVMLIndex: g, UUID: uuid,
				InstanceID: 7 + i, Profile: "1g.10gb", MIGUUID: migUUID(int(7*g + i)),
			})
		}
	}
	topology := gpu.NewTopology(devices)
	s := kubelet.Start(b, kubelet.Lists(kubelet.Crowd(110, "nvidia.com/mig-1g.10gb", func(i int) string {
		return fmt.Sprintf("%s::%d", migUUID(i%56), i/56)
	})...))
	metrics := podmapper.NewMetrics(prometheus.NewRegistry())
	mapper := podmapper.New(podmapper.Options{Socket: s.Socket(), Metrics: metrics})
	defer mapper.Close()
	owned := 0
	b.ReportAllocs()
	for b.Loop() {
		owners, err := mapper.Attribute(b.Context(), topology)
		if err != nil {
			b.Fatal(err)
		}
		owned = 0
		for row := range devices {
			owned += len(owners.UseOf(row).Owners)
		}
	}
	if owned != 110 {
		b.Fatalf("owners of 110 pods = %d, want 110", owned)
	}
	b.ReportMetric(float64(s.Lists())/float64(b.N), "kubelet-lists/op")
}

func migUUID(i int) string { return fmt.Sprintf("MIG-%08d-8203-50a3-a2ba-a9d2f1a9a0a4", i) }
