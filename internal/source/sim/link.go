package sim

import "github.com/gpu-telemetry/dcgm-exporter/internal/gpu"

// The states of a link that is down: NVML_NVLINK_STATE_INACTIVE of nvml.h for
// DCGM_FI_DEV_NVLINK_LINK_STATUS, and "off" for DCGM_FI_DEV_NVSWITCH_LINK_STATUS.
const (
	fieldSwitchLinkState = 870
	fieldLinkState       = 1508
	linkIsDown           = 0
)

// linkGives returns what a link gives for a field while it is down, and whether that differs from
// what it gives otherwise. Its counters of bytes go on: the model spreads the traffic of a GPU
// evenly over the links that it has.
func linkGives(id gpu.FieldID) (gpu.Value, bool) {
	switch {
	case id == fieldSwitchLinkState || id == fieldLinkState:
		return gpu.Int(linkIsDown), true
	case id >= 1529 && id <= 1533: // rates
		return gpu.Int(0), true
	default:
		return gpu.Value{}, false
	}
}
