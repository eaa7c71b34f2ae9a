package deviceid

import (
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Describe names the entity of a row for people.
func (r *Resolver) Describe(row int) string {
	d := &r.topology.Devices[row]
	switch d.Entity.Kind {
	case gpu.KindGPU:
		return fmt.Sprintf("GPU %d (%s, %s)", d.GPU, d.Model, d.UUID)
	case gpu.KindGPUInstance:
		return fmt.Sprintf("GPU instance %d (%s) of GPU %d (%s)", d.InstanceID, d.Profile, d.GPU, d.UUID)
	default:
		return d.Entity.String()
	}
}

// Explain returns, step by step and in sentences, how an id that a kubelet lists finds its entity
// in the topology, or why it does not.
func (r *Resolver) Explain(id ID) []string {
	steps := []string{id.describe()}
	if id.Form == FormUnknown {
		return append(steps, "No rule reads it: expected GPU-UUID, MIG-UUID, either with ::REPLICA, MIG-GPU-UUID/GI/CI, nvidiaN, nvidiaN/giN, either with /vgpuN, a bare UUID, or DRIVER/POOL/DEVICE of a dynamic claim.")
	}
	if rows := r.Rows(id); rows != nil {
		return append(steps, r.explainFound(id, rows)...)
	}
	steps = append(steps, fmt.Sprintf("The source has no such entity among %s.", r.inventory()))
	if why := r.explainMissing(id); why != "" {
		steps = append(steps, why)
	}
	return steps
}

func (r *Resolver) explainFound(id ID, rows []int) (steps []string) {
	if id.Form == FormIndex || id.Form == FormInstance {
		step := "N of nvidiaN is the minor number of the device file /dev/nvidiaN."
		if r.byIndex {
			step = "The GPUs' minor numbers are not known, so N of nvidiaN is taken for NVML's index."
		}
		steps = append(steps, step)
	}
	for _, row := range rows {
		steps = append(steps, fmt.Sprintf("The source has it: %s.", r.Describe(row)))
	}
	return steps
}

// explainMissing says why the topology lacks what id names, "" where the id says no more.
func (r *Resolver) explainMissing(id ID) string {
	switch id.Form {
	case FormGPU, FormIndex:
		return "A GPU that --devices leaves out, that is lost, or that was handed to a virtual machine is not there."
	case FormBare:
		if row, ok := r.bare[id.UUID]; ok && row == ambiguous {
			return "Two entities have this UUID behind different prefixes, and the id says none."
		}
		return ""
	case FormMIG:
		if !r.hasMIGUUIDs() {
			return "The source reports no UUID of a MIG device: the driver or engine does not give them, or no GPU is partitioned by MIG."
		}
		return "The instance may have been destroyed: MIG UUIDs change with every repartition."
	case FormMIGPath:
		if _, ok := r.parent(id.UUID); !ok {
			return fmt.Sprintf("Not even its GPU %s is there.", id.UUID)
		}
		return fmt.Sprintf("The GPU has no GPU instance %d now.", id.Instance)
	case FormInstance:
		return fmt.Sprintf("The GPU has no GPU instance %d now.", id.Instance)
	default:
		return ""
	}
}

func (r *Resolver) hasMIGUUIDs() bool {
	for i := range r.topology.Devices {
		if r.topology.Devices[i].MIGUUID != "" {
			return true
		}
	}
	return false
}

func (r *Resolver) inventory() string {
	var count [gpu.KindNode + 1]int
	for i := range r.topology.Devices {
		count[r.topology.Devices[i].Entity.Kind]++
	}
	return fmt.Sprintf("%d GPUs and %d GPU instances", count[gpu.KindGPU], count[gpu.KindGPUInstance])
}

// describe says in a sentence what an id that a kubelet lists is.
func (id ID) describe() string {
	var s string
	switch id.Form {
	case FormGPU:
		s = "the UUID of a GPU, " + id.UUID
	case FormMIG:
		s = "the UUID of a MIG device, " + id.UUID
	case FormMIGPath:
		s = fmt.Sprintf("the name that drivers before R470 give a MIG device: GPU %s, GPU instance %d, compute instance %d", id.UUID, id.Instance, id.Compute)
	case FormIndex:
		s = fmt.Sprintf("a GPU by its device file, nvidia%d (GKE)", id.Index)
	case FormInstance:
		s = fmt.Sprintf("GPU instance %d of the GPU with device file nvidia%d (GKE)", id.Instance, id.Index)
	case FormBare:
		s = "a UUID without prefix, of a GPU or a MIG device"
	case FormClaim:
		s = fmt.Sprintf("device %s of pool %s of the driver %s, which a dynamic claim holds", id.Device, id.Pool, id.Driver)
	default:
		return fmt.Sprintf("%q is no id that the exporter knows.", id.Text)
	}
	if id.Replica != "" {
		s += fmt.Sprintf("; replica %s of it, so it is shared by time-slicing or MPS", id.Replica)
	}
	return "It is " + s + "."
}
