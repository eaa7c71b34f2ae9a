package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
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
//	connectx 2   ConnectX card 2
type deviceRef struct {
	kind gpu.Kind
	of   gpu.Kind // the parent's kind, for links and instances
	id   uint32   // for instances and links the parent's
	sub  uint32   // the instance or link
}

// deviceForms are the forms of a deviceRef, for errors.
const deviceForms = `a GPU "3", an instance "6/9", "nvlink 0/4", "nvswitch 1", "nvswitch 1/7", "cpu 0", "core 12" or "connectx 2"`

// deviceKinds say what a word and so many numbers name.
var deviceKinds = []struct {
	word     string
	numbers  int
	kind, of gpu.Kind
}{
	{"", 1, gpu.KindGPU, gpu.KindNone},
	{"", 2, gpu.KindGPUInstance, gpu.KindGPU},
	{"nvlink", 2, gpu.KindNVLink, gpu.KindGPU},
	{"nvswitch", 1, gpu.KindNVSwitch, gpu.KindNone},
	{"nvswitch", 2, gpu.KindNVLink, gpu.KindNVSwitch},
	{"cpu", 1, gpu.KindCPU, gpu.KindNone},
	{"core", 1, gpu.KindCPUCore, gpu.KindNone},
	{"connectx", 1, gpu.KindConnectX, gpu.KindNone},
}

func parseDevice(text string) (deviceRef, error) {
	word, rest, found := strings.Cut(text, " ")
	if !found {
		word, rest = "", text
	}
	var numbers []uint32
	for part := range strings.SplitSeq(rest, "/") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return deviceRef{}, fmt.Errorf("device %q%s", text, deviceHint(word))
		}
		numbers = append(numbers, uint32(n))
	}
	for _, k := range deviceKinds {
		if k.word == word && k.numbers == len(numbers) {
			all := append(numbers, 0)
			return deviceRef{kind: k.kind, of: k.of, id: all[0], sub: all[1]}, nil
		}
	}
	return deviceRef{}, fmt.Errorf("device %q%s", text, deviceHint(word))
}

// deviceHint says which word was probably meant, or what devices look like.
func deviceHint(word string) string {
	var words []string
	for _, k := range deviceKinds {
		if k.word == word {
			return ", expected " + deviceForms
		}
		words = append(words, k.word)
	}
	if near := text.Nearest(word, words); near != "" {
		return fmt.Sprintf(": unknown word %q, did you mean %q?", word, near)
	}
	return ", expected " + deviceForms
}

// String returns the reference as files spell it.
func (r deviceRef) String() string {
	numbers := [2]uint32{r.id, r.sub}
	for _, k := range deviceKinds {
		if k.kind == r.kind && k.of == r.of {
			text := k.word
			for i, n := range numbers[:k.numbers] {
				text += [...]string{" ", "/"}[i] + strconv.FormatUint(uint64(n), 10)
			}
			return strings.TrimSpace(text)
		}
	}
	return ""
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
