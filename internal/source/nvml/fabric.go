//go:build linux && cgo

package nvml

import (
	"encoding/hex"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// readFabric reads the state and error of the GPU's registration with the fabric manager, the cluster UUID, the clique,
// and the mask and summary of the fabric's health. Older drivers have no summary.
func readFabric(t *target, a *answers) gonvml.Return {
	info, ret := t.device.GetGpuFabricInfoV().V3()
	if ret == gonvml.ERROR_ARGUMENT_VERSION_MISMATCH {
		var old gonvml.GpuFabricInfo_v2
		old, ret = t.device.GetGpuFabricInfoV().V2()
		info = gonvml.GpuFabricInfo_v3{
			ClusterUuid: old.ClusterUuid, Status: old.Status,
			CliqueId: old.CliqueId, State: old.State, HealthMask: old.HealthMask,
		}
	} else if ret == gonvml.SUCCESS {
		a[5] = gpu.Int(int64(info.HealthSummary))
	}
	a[0], a[1] = fabricState(info.State, gonvml.Return(info.Status))
	a[2] = gpu.Text(clusterUUID(info.ClusterUuid))
	a[3] = gpu.Int(int64(info.CliqueId))
	a[4] = gpu.Int(int64(info.HealthMask))
	return ret
}

// fabricState returns DCGM's number for the registration state of the GPU, and the error of a registration that has
// ended.
func fabricState(state uint8, status gonvml.Return) (gpu.Value, gpu.Value) {
	switch {
	case state < gonvml.GPU_FABRIC_STATE_COMPLETED: // not yet, or not supported: DCGM uses the same numbers
		return gpu.Int(int64(state)), gpu.Value{}
	case state > gonvml.GPU_FABRIC_STATE_COMPLETED:
		return gpu.Int(catalog.FabricUnrecognized), gpu.Value{}
	case status == gonvml.SUCCESS:
		return gpu.Int(catalog.FabricSuccess), gpu.Int(0)
	default:
		return gpu.Int(catalog.FabricFailure), gpu.Int(int64(status))
	}
}

// clusterUUID formats the UUID in the usual form.
func clusterUUID(id [16]uint8) string {
	s := hex.EncodeToString(id[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}
