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
		return "No rule reads it: expected GPU-UUID, MIG-UUID, either with ::REPLICA, MIG-GPU-UUID/GI/CI, nvidiaN, nvidiaN/giN, either with /vgpuN, or a bare UUID."
	case FormMIG:
		if !anyOf(func(d gpu.Device) bool { return d.MIGUUID != "" }) {
			return "The source reports no UUID of a MIG device: the driver or engine does not give them, or no GPU is partitioned by MIG."
		}
		return "The GPU instance may have been destroyed: MIG UUIDs change with every repartition. Restart the device plugin."
	case FormMIGPath:
		if !anyOf(func(d gpu.Device) bool { return strings.EqualFold(d.UUID, id.UUID) }) {
			return fmt.Sprintf("Its GPU %s is not there either.", id.UUID)
		}
		return fmt.Sprintf("The GPU has no GPU instance %d now. Restart the device plugin.", id.Instance)
	case FormPlaced:
		if !anyOf(func(d gpu.Device) bool { return d.Start != nil }) {
			return "NVML does not say where GPU instances are: it says so to root alone, and no GPU may be partitioned by MIG."
		}
		return fmt.Sprintf("The GPU %s has no GPU instance %s at memory slice %d now: the DRA driver makes it when the pod starts.", id.UUID, id.Profile, id.Start)
	case FormInstance:
		return fmt.Sprintf("The GPU has no GPU instance %d now. Restart the device plugin.", id.Instance)
	case FormBare:
		if len(r.matches(id)) > 1 {
			return "Two entities have this UUID behind different prefixes, and the id has none."
		}
	}
	return "The GPU is left out by --devices, lost, or handed to a virtual machine."
}
