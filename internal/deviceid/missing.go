package deviceid

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Missing returns a sentence that says why Rows returns nil for an id.
func (r *Resolver) Missing(id ID) string {
	anyOf := func(is func(gpu.Device) bool) bool { return slices.ContainsFunc(r.topology.Devices, is) }
	switch id.Form {
	case FormUnknown:
		return "Unknown form: expected GPU-UUID or MIG-UUID (also with ::REPLICA), MIG-GPU-UUID/GI/CI, " +
			"nvidiaN or nvidiaN/giN (also with /vgpuN), or a bare UUID."
	case FormMIG:
		if !anyOf(func(d gpu.Device) bool { return d.MIGUUID != "" }) {
			return "The source reports no UUIDs of MIG devices: " +
				"the driver or engine does not support them, or no GPU is partitioned by MIG."
		}
		return "The GPU instance may have been destroyed: MIG UUIDs change with every repartition. " +
			"Restart the device plugin."
	case FormMIGPath, FormInstance:
		if id.UUID != "" && !anyOf(func(d gpu.Device) bool { return strings.EqualFold(d.UUID, id.UUID) }) {
			return fmt.Sprintf("Its GPU %s is unknown too.", id.UUID)
		}
		return fmt.Sprintf("The GPU has no GPU instance %d at the moment. Restart the device plugin.", id.Instance)
	case FormPlaced:
		if !anyOf(func(d gpu.Device) bool { return d.Start != nil }) {
			return "The placement of GPU instances is unknown: " +
				"NVML reports it only to root, or no GPU is partitioned by MIG."
		}
		return fmt.Sprintf("The GPU %s has no GPU instance %s at memory slice %d yet: "+
			"the DRA driver creates it when the pod starts.", id.UUID, id.Profile, id.Start)
	case FormBare:
		if len(r.matches(id)) > 1 {
			return "Two entities have this UUID with different prefixes, and the id has no prefix."
		}
	}
	return "The GPU is excluded by --devices, lost, or assigned to a virtual machine."
}
