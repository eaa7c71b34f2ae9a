// Package deviceid parses the ids by which GPUs and MIG devices are assigned, and finds the entities of a topology that
// they name. All attributors use it, so that an id means the same to each.
//
// The package queries no driver and no kubelet. It never guesses: an unknown id has no rows.
package deviceid

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Form is the form of a device id: a value of the form label of dcgm_exporter_unmatched_devices.
type Form string

// The forms of ids from a kubelet.
const (
	FormGPU      Form = "gpu_uuid"     // GPU-<uuid>
	FormMIG      Form = "mig_uuid"     // MIG-<uuid>
	FormMIGPath  Form = "mig_path"     // MIG-GPU-<uuid>/<gi>/<ci>, drivers before R470
	FormIndex    Form = "index"        // nvidia0 (GKE)
	FormInstance Form = "index_mig"    // nvidia0/gi3 (GKE)
	FormBare     Form = "bare_uuid"    // <uuid>
	FormClaim    Form = "claim_device" // <driver>/<pool>/<device> of a dynamic claim
	FormPlaced   Form = "mig_placed"   // a MIG device that a DRA driver creates when a pod starts: see Placed
	FormUnknown  Form = "unknown"
)

// Further forms of ids from a container runtime. It also uses FormGPU, FormMIG and FormMIGPath.
const (
	FormAll       Form = "all"
	FormNVMLIndex Form = "nvml_index"  // 0, gpu0
	FormMIGIndex  Form = "mig_index"   // 0:1, mig0:1
	FormBusID     Form = "bus_id"      // 0000:1b:00.0
	FormNode      Form = "device_node" // /dev/nvidia0
)

// ID is a parsed device id. It is comparable. Fields that its form does not use are zero.
type ID struct {
	Form     Form
	UUID     string // UUID of the GPU or MIG device, in lower case after its prefix; only FormBare has no prefix
	BusID    string // PCI address in the form of gpu.Device.PCIBusID
	Index    uint32 // the N of nvidiaN and /dev/nvidiaN, or NVML's index
	Instance uint32 // NVML's id of the GPU instance; for FormMIGIndex, the index of the MIG device
	Compute  uint32 // NVML's id of the compute instance
	Profile  string // profile of the GPU instance, for FormPlaced
	Start    uint32 // first memory slice of the GPU instance, for FormPlaced
	Replica  string // the number after "::" or "vgpu"; empty for a whole device
	Text     string // the whole id, for FormUnknown and FormClaim
}

// Parse parses a device id of a kubelet. It never fails: an invalid id has the form FormUnknown and keeps its text.
func Parse(text string) ID {
	if id, ok := parse(text); ok {
		return id
	}
	return ID{Form: FormUnknown, Text: text}
}

func parse(s string) (id ID, ok bool) {
	rest, replica, replicated := strings.Cut(s, "::")
	if replicated && !IsNumber(replica) {
		return ID{}, false
	}
	id.Replica = replica
	switch {
	case hasPrefixFold(rest, "MIG-GPU-"):
		uuid, path, _ := strings.Cut(rest[len("MIG-"):], "/")
		instance, compute, _ := strings.Cut(path, "/")
		id.Form = FormMIGPath
		id.UUID, ok = serial(uuid, "GPU-")
		ok = ok && number(instance, &id.Instance) && number(compute, &id.Compute)
	case hasPrefixFold(rest, "MIG-"):
		id.Form = FormMIG
		id.UUID, ok = serial(rest, "MIG-")
	case hasPrefixFold(rest, "GPU-"):
		id.Form = FormGPU
		id.UUID, ok = serial(rest, "GPU-")
	case strings.HasPrefix(rest, "nvidia") && !replicated:
		return parseIndex(rest)
	default:
		id.Form, id.UUID, ok = FormBare, strings.ToLower(rest), text.IsUUID(rest)
	}
	return id, ok
}

// parseIndex parses GKE's forms: nvidia0 and nvidia0/gi3, both optionally with /vgpu1.
func parseIndex(text string) (id ID, ok bool) {
	rest, replica, replicated := strings.Cut(strings.TrimPrefix(text, "nvidia"), "/vgpu")
	index, instance, isInstance := strings.Cut(rest, "/gi")
	id = ID{Form: FormIndex, Replica: replica}
	if isInstance {
		id.Form = FormInstance
	}
	return id, number(index, &id.Index) && (!isInstance || number(instance, &id.Instance)) &&
		(!replicated || IsNumber(replica))
}

// Claim returns the id of a device of a dynamic claim.
func Claim(driver, pool, device string) ID {
	return ID{Form: FormClaim, Text: driver + "/" + pool + "/" + device}
}

// Placed returns the id of a GPU instance by its GPU, profile and first memory slice. Its instance id and UUID change
// each time it is created.
func Placed(gpuUUID, profile string, start uint32) ID {
	return ID{Form: FormPlaced, UUID: Parse(gpuUUID).UUID, Profile: profile, Start: start}
}

// ParseVisible parses an id from NVIDIA_VISIBLE_DEVICES or --gpus (libnvidia-container, src/cli/common.c), a CDI name
// of nvidia-ctk ("nvidia.com/gpu=0"), or a device file. It ignores surrounding spaces. It never fails: an invalid id
// has the form FormUnknown and keeps its text.
func ParseVisible(word string) ID {
	name := strings.TrimSpace(word)
	if kind, device, ok := strings.Cut(name, "="); ok && IsCDIKind(kind) {
		name = device
	}
	if id, ok := parseVisible(name); ok {
		return id
	}
	return ID{Form: FormUnknown, Text: word}
}

// IsCDIKind reports whether a CDI kind is NVIDIA GPUs.
func IsCDIKind(kind string) bool { return kind == "nvidia.com/gpu" || kind == "runtime.nvidia.com/gpu" }

func parseVisible(name string) (ID, bool) {
	id, ok := parse(name)
	if ok && id.Replica == "" && slices.Contains([]Form{FormGPU, FormMIG, FormMIGPath}, id.Form) {
		return id, true
	}
	lower := strings.ToLower(name)
	minor, isNode := strings.CutPrefix(name, "/dev/nvidia")
	device, index, _ := strings.Cut(strings.TrimPrefix(lower, "mig"), ":")
	id = ID{}
	switch {
	case lower == "all":
		id.Form = FormAll
	case isNode && number(minor, &id.Index):
		id.Form = FormNode
	case number(strings.TrimPrefix(lower, "gpu"), &id.Index):
		id.Form = FormNVMLIndex
	case number(device, &id.Index) && number(index, &id.Instance):
		id.Form = FormMIGIndex
	default:
		address, ok := gpu.ParseBusID(name)
		return ID{Form: FormBusID, BusID: address}, ok
	}
	return id, true
}

// WithoutReplica returns the id of the whole device.
func (id ID) WithoutReplica() ID {
	id.Replica = ""
	return id
}

// OfNVIDIA reports whether the id itself shows that it is NVIDIA's, whatever the resource is called.
func (id ID) OfNVIDIA() bool {
	return slices.Contains([]Form{FormGPU, FormMIG, FormMIGPath, FormIndex, FormInstance}, id.Form)
}

// Missing returns a sentence that says why Rows returns nil for the id.
func (id ID) Missing() string {
	switch id.Form {
	case FormUnknown:
		return "Unknown form: expected GPU-UUID or MIG-UUID (also with ::REPLICA), MIG-GPU-UUID/GI/CI, " +
			"nvidiaN or nvidiaN/giN (also with /vgpuN), or a bare UUID."
	case FormMIG, FormMIGPath, FormInstance:
		return "The GPU instance may have been destroyed: its UUID and id change with every repartition. " +
			"Restart the device plugin. Or the source reports no UUIDs of MIG devices."
	case FormPlaced:
		return fmt.Sprintf("The GPU %s has no GPU instance %s at memory slice %d yet: the DRA driver creates it when "+
			"the pod starts. Or the placement is unknown: NVML reports it only to root.", id.UUID, id.Profile, id.Start)
	}
	return "The GPU is excluded by --devices, lost, or assigned to a virtual machine."
}

// number parses a decimal number without leading zeros.
func number(s string, to *uint32) bool {
	n, err := strconv.ParseUint(s, 10, 32)
	*to = uint32(n)
	return err == nil && IsNumber(s)
}

// IsNumber reports whether s is a decimal number as plugins write it: up to ten digits, no sign and no leading zeros.
func IsNumber(s string) bool {
	return s != "" && len(s) <= 10 && (s == "0" || s[0] != '0') && strings.Trim(s, "0123456789") == ""
}

// serial returns a UUID with its prefix in upper case and the rest in lower case, and whether it is valid. Engines that
// inject devices use UUIDs of other lengths.
func serial(uuid, prefix string) (string, bool) {
	const digits = "-0123456789abcdefghijklmnopqrstuvwxyz"
	rest := strings.ToLower(uuid[len(prefix):])
	return prefix + rest, rest != "" && len(rest) <= 64 && strings.Trim(rest, digits) == ""
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
