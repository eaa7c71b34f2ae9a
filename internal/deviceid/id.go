package deviceid

import (
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
	Form Form
	// UUID is the UUID of the GPU or MIG device, in lower case after its prefix. Only FormBare has no prefix.
	UUID string
	// BusID is the PCI address in the form of gpu.Device.PCIBusID.
	BusID string
	// Index is the N of nvidiaN and /dev/nvidiaN, or NVML's index.
	Index uint32
	// Instance and Compute are NVML's ids of the GPU and compute instance. For FormMIGIndex, Instance is the index of
	// the MIG device.
	Instance, Compute uint32
	// Profile and Start are the GPU instance's profile and first memory slice. They are set for FormPlaced.
	Profile string
	Start   uint32
	// Replica is the number after "::" or "vgpu"; empty for a whole device.
	Replica string
	// Text is the whole id, for FormUnknown and FormClaim.
	Text string
}

// Parse parses a device id of a kubelet. It never fails: an invalid id has the form FormUnknown and keeps its text.
func Parse(text string) ID {
	if id, ok := parse(text); ok {
		return id
	}
	return ID{Form: FormUnknown, Text: text}
}

func parse(s string) (ID, bool) {
	rest, replica, replicated := strings.Cut(s, "::")
	if replicated && !IsNumber(replica) {
		return ID{}, false
	}
	id := ID{Replica: replica}
	switch {
	case hasPrefixFold(rest, "MIG-GPU-"):
		uuid, path, ok := strings.Cut(rest[len("MIG-"):], "/")
		instance, compute, both := strings.Cut(path, "/")
		id.Form, id.UUID = FormMIGPath, "GPU-"+strings.ToLower(uuid[len("GPU-"):])
		return id, ok && both && isSerial(uuid[len("GPU-"):]) &&
			number(instance, &id.Instance) && number(compute, &id.Compute)
	case hasPrefixFold(rest, "MIG-"):
		id.Form, id.UUID = FormMIG, "MIG-"+strings.ToLower(rest[len("MIG-"):])
		return id, isSerial(rest[len("MIG-"):])
	case hasPrefixFold(rest, "GPU-"):
		id.Form, id.UUID = FormGPU, "GPU-"+strings.ToLower(rest[len("GPU-"):])
		return id, isSerial(rest[len("GPU-"):])
	case strings.HasPrefix(rest, "nvidia") && !replicated:
		return parseIndex(rest)
	case text.IsUUID(rest):
		id.Form, id.UUID = FormBare, strings.ToLower(rest)
		return id, true
	}
	return ID{}, false
}

// parseIndex parses GKE's forms: nvidia0 and nvidia0/gi3, both optionally with /vgpu1.
func parseIndex(text string) (ID, bool) {
	parts := strings.Split(strings.TrimPrefix(text, "nvidia"), "/")
	id := ID{Form: FormIndex}
	if !number(parts[0], &id.Index) {
		return ID{}, false
	}
	parts = parts[1:]
	if len(parts) > 0 && strings.HasPrefix(parts[0], "gi") {
		id.Form = FormInstance
		if !number(parts[0][len("gi"):], &id.Instance) {
			return ID{}, false
		}
		parts = parts[1:]
	}
	if len(parts) > 0 && strings.HasPrefix(parts[0], "vgpu") {
		id.Replica = parts[0][len("vgpu"):]
		if !IsNumber(id.Replica) {
			return ID{}, false
		}
		parts = parts[1:]
	}
	return id, len(parts) == 0
}

// Claim returns the id of a device of a dynamic claim.
func Claim(driver, pool, device string) ID {
	return ID{Form: FormClaim, Text: driver + "/" + pool + "/" + device}
}

// Placed returns the id of a GPU instance by its GPU, profile and first memory slice. Its instance id and UUID change
// each time it is created.
func Placed(gpuUUID, profile string, start uint32) ID {
	return ID{Form: FormPlaced, UUID: gpuUUID, Profile: profile, Start: start}
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
	if id, ok := parse(name); ok && id.Replica == "" {
		switch id.Form {
		case FormGPU, FormMIG, FormMIGPath:
			return id, true
		}
	}
	var id ID
	lower := strings.ToLower(name)
	if lower == "all" {
		return ID{Form: FormAll}, true
	}
	if minor, ok := strings.CutPrefix(name, "/dev/nvidia"); ok {
		id.Form = FormNode
		return id, number(minor, &id.Index)
	}
	if number(strings.TrimPrefix(lower, "gpu"), &id.Index) {
		id.Form = FormNVMLIndex
		return id, true
	}
	of, index, ok := strings.Cut(strings.TrimPrefix(lower, "mig"), ":")
	if ok && number(of, &id.Index) && number(index, &id.Instance) {
		id.Form = FormMIGIndex
		return id, true
	}
	address, ok := gpu.ParseBusID(name)
	return ID{Form: FormBusID, BusID: address}, ok
}

// WithoutReplica returns the id of the whole device.
func (id ID) WithoutReplica() ID {
	id.Replica = ""
	return id
}

// OfNVIDIA reports whether the id itself shows that it is NVIDIA's, whatever the resource is called.
func (id ID) OfNVIDIA() bool {
	switch id.Form {
	case FormGPU, FormMIG, FormMIGPath, FormIndex, FormInstance:
		return true
	}
	return false
}

// number parses a decimal number without leading zeros.
func number(s string, to *uint32) bool {
	if !IsNumber(s) {
		return false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil {
		*to = uint32(n)
	}
	return err == nil
}

// IsNumber reports whether s is a decimal number as plugins write it: up to ten digits, no sign and no leading zeros.
func IsNumber(s string) bool {
	if s == "" || len(s) > 10 || len(s) > 1 && s[0] == '0' {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

// isSerial reports whether s is valid after GPU- or MIG-. Engines that inject devices use ids of other lengths than a
// UUID.
func isSerial(s string) bool {
	const digits = "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= 64 && strings.Trim(s, digits) == ""
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
