package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A deviceRef identifies a device of a node in node and scenario files:
//
//	3            GPU 3
//	6/9          the GPU instance of GPU 6 with NVML's id 9
//	nvlink 0/4   link 4 of GPU 0
//	nvswitch 1   switch 1
//	nvswitch 1/7 link 7 of switch 1
//	cpu 0        CPU 0
//	core 12      core 12
//	connectx 2   ConnectX card 2
type deviceRef struct {
	kind gpu.Kind
	of   gpu.Kind // the parent's kind, for links and instances
	id   uint32   // for instances and links: the ID of the parent
	sub  uint32   // the ID of the instance or link
}

// deviceForms lists the forms of a deviceRef, for errors.
const deviceForms = `a GPU "3", an instance "6/9", "nvlink 0/4", "nvswitch 1", "nvswitch 1/7", "cpu 0", "core 12" ` +
	`or "connectx 2"`

// deviceKinds maps the first word of a deviceRef to the kind of device, and to the kind of its parts, which have a
// second number.
var deviceKinds = map[string]struct{ one, part deviceRef }{
	"":         {deviceRef{kind: gpu.KindGPU}, deviceRef{kind: gpu.KindGPUInstance, of: gpu.KindGPU}},
	"nvlink":   {part: deviceRef{kind: gpu.KindNVLink, of: gpu.KindGPU}},
	"nvswitch": {deviceRef{kind: gpu.KindNVSwitch}, deviceRef{kind: gpu.KindNVLink, of: gpu.KindNVSwitch}},
	"cpu":      {one: deviceRef{kind: gpu.KindCPU}},
	"core":     {one: deviceRef{kind: gpu.KindCPUCore}},
	"connectx": {one: deviceRef{kind: gpu.KindConnectX}},
}

func parseDevice(text string) (deviceRef, error) {
	word, numbers, found := strings.Cut(text, " ")
	if !found {
		word, numbers = "", text
	}
	first, second, isPart := strings.Cut(numbers, "/")
	ref := deviceKinds[word].one
	if isPart {
		ref = deviceKinds[word].part
	} else {
		second = "0"
	}
	id, errID := strconv.ParseUint(first, 10, 16)
	sub, errSub := strconv.ParseUint(second, 10, 16)
	if errID != nil || errSub != nil || ref.kind == gpu.KindNone {
		return deviceRef{}, fmt.Errorf("device %q, expected %s", text, deviceForms)
	}
	ref.id, ref.sub = uint32(id), uint32(sub)
	return ref, nil
}

// matches reports whether the reference identifies d.
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
