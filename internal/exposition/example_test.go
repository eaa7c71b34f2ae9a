package exposition_test

import (
	"os"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

func ExampleEncoder_Encode() {
	topology := gpu.NewTopology([]gpu.Device{{
		Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-614bc606", PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100 80GB HBM3",
	}})
	temperature := &gpu.Counter{Name: "DCGM_FI_DEV_GPU_TEMP", Type: gpu.MetricGauge, Help: "GPU temperature (in C)."}

	encoder := exposition.NewEncoder(exposition.Options{Hostname: "node-1"})
	page := encoder.Encode(&gpu.Snapshot{
		Topology: topology,
		Columns:  []gpu.Column{{Counter: temperature, Values: []gpu.Value{gpu.Int(41)}}},
		Health:   gpu.Health{Entities: make([]gpu.EntityHealth, 1)},
	})
	_, _ = os.Stdout.Write(page.Bytes())
	// Output:
	// # HELP DCGM_FI_DEV_GPU_TEMP GPU temperature (in C).
	// # TYPE DCGM_FI_DEV_GPU_TEMP gauge
	// DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-614bc606",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",hostname="node-1"} 41
	// # HELP dcgm_exporter_entity_up Whether the entity is read (1) or not (0, with the reason).
	// # TYPE dcgm_exporter_entity_up gauge
	// dcgm_exporter_entity_up{gpu="0",UUID="GPU-614bc606"} 1
}
