package deviceid

import "fmt"

// Missing says in a sentence why an id for which Rows is nil names nothing.
func (r *Resolver) Missing(id ID) string {
	switch id.Form {
	case FormUnknown:
		return "No rule reads it: expected GPU-UUID, MIG-UUID, either with ::REPLICA, MIG-GPU-UUID/GI/CI, nvidiaN, nvidiaN/giN, either with /vgpuN, or a bare UUID."
	case FormMIG:
		if !r.hasMIGUUIDs() {
			return "The source reports no UUID of a MIG device: the driver or engine does not give them, or no GPU is partitioned by MIG."
		}
		return "The GPU instance may have been destroyed: MIG UUIDs change with every repartition. Restart the device plugin."
	case FormMIGPath:
		if _, ok := r.parent(id.UUID); !ok {
			return fmt.Sprintf("Its GPU %s is not there either.", id.UUID)
		}
		return fmt.Sprintf("The GPU has no GPU instance %d now. Restart the device plugin.", id.Instance)
	case FormInstance:
		return fmt.Sprintf("The GPU has no GPU instance %d now. Restart the device plugin.", id.Instance)
	case FormBare:
		if row, ok := r.bare[id.UUID]; ok && row == ambiguous {
			return "Two entities have this UUID behind different prefixes, and the id has none."
		}
	}
	return "The GPU is left out by --devices, lost, or handed to a virtual machine."
}

func (r *Resolver) hasMIGUUIDs() bool {
	for i := range r.topology.Devices {
		if r.topology.Devices[i].MIGUUID != "" {
			return true
		}
	}
	return false
}
