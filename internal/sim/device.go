package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A deviceRef names one device of a node in node and scenario files:
//
//	3            GPU 3
//	6/9          the GPU instance of GPU 6 with NVML's id 9
//	nvlink 0/4   link 4 of GPU 0
//	nvswitch 1   switch 1
//	nvswitch 1/7 link 7 of switch 1
//	cpu 0        CPU 0
//	core 12      core 12
type deviceRef struct {
	kind gpu.Kind
	of   gpu.Kind // the parent's kind, for links
	id   uint32   // for instances and links the parent's
	sub  uint32   // the instance or link
}

func parseDevice(text string) (deviceRef, error) {
	word, rest, found := strings.Cut(text, " ")
	if !found {
		word, rest = "", text
	}
	major, minor, nested := strings.Cut(rest, "/")
	id, err := strconv.ParseUint(major, 10, 16)
	var sub uint64
	if err == nil && nested {
		sub, err = strconv.ParseUint(minor, 10, 16)
	}
	ref := deviceRef{id: uint32(id), sub: uint32(sub)}
	switch {
	case err != nil:
	case word == "" && !nested:
		ref.kind = gpu.KindGPU
		return ref, nil
	case word == "":
		ref.kind, ref.of = gpu.KindGPUInstance, gpu.KindGPU
		return ref, nil
	case word == "nvlink" && nested:
		ref.kind, ref.of = gpu.KindNVLink, gpu.KindGPU
		return ref, nil
	case word == "nvswitch" && nested:
		ref.kind, ref.of = gpu.KindNVLink, gpu.KindNVSwitch
		return ref, nil
	case word == "nvswitch":
		ref.kind = gpu.KindNVSwitch
		return ref, nil
	case word == "cpu" && !nested:
		ref.kind = gpu.KindCPU
		return ref, nil
	case word == "core" && !nested:
		ref.kind = gpu.KindCPUCore
		return ref, nil
	}
	return deviceRef{}, fmt.Errorf(`device %q, expected a GPU "3", an instance "6/9", "nvlink 0/4", "nvswitch 1", "nvswitch 1/7", "cpu 0" or "core 12"`, text)
}

// nested reports whether the reference names a part of a GPU or switch.
func (r deviceRef) nested() bool { return r.of != gpu.KindNone }

// matches reports whether d is the device that the reference names.
func (r deviceRef) matches(d *gpu.Device) bool {
	if d.Entity.Kind != r.kind {
		return false
	}
	switch r.kind {
	case gpu.KindGPUInstance:
		return d.GPU == r.id && d.InstanceID == r.sub
	case gpu.KindNVLink:
		return d.Entity.ParentKind == r.of && d.Entity.Parent == r.id && d.Link == r.sub
	default:
		return d.Entity.ID == r.id
	}
}
