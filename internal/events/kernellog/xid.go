package kernellog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// xidPrefix begins the driver's lines about XIDs.
const xidPrefix = "NVRM: Xid"

// ParseXID reads the driver's line about an XID, and reports whether it is one:
//
//	NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 13, pid='<unknown>', name=<unknown>, …
//	NVRM: Xid (0000:03:00): 31, Ch 00000010, …
//
// The first is of drivers since 450 or so, the second of a GPU partitioned by MIG, the last of old drivers. Time is left
// for the caller.
func ParseXID(line string) (gpu.XID, bool) {
	rest, found := strings.CutPrefix(strings.TrimLeft(line, " "), xidPrefix+" (")
	if !found {
		return gpu.XID{}, false
	}
	device, rest, found := strings.Cut(rest, "):")
	if !found {
		return gpu.XID{}, false
	}
	device, part, _ := strings.Cut(device, " ")
	id, ok := busID(strings.TrimPrefix(device, "PCI:"))
	if !ok {
		return gpu.XID{}, false
	}
	code, rest, _ := strings.Cut(strings.TrimLeft(rest, " "), ",")
	n, err := strconv.ParseUint(strings.TrimRight(code, " "), 10, 16)
	if err != nil || n == 0 || n > gpu.MaxXID {
		return gpu.XID{}, false
	}
	xid := gpu.XID{PCIBusID: id, Code: int64(n), PID: pid(rest)}
	if instance, err := strconv.ParseUint(strings.TrimPrefix(part, "GPU-I:"), 10, 32); err == nil {
		xid.InstanceID, xid.OnInstance = uint32(instance), true
	}
	switch {
	case isNVLink5(xid.Code):
		xid.Detail = nvlink5(rest)
	case xid.Code == recoveryAction:
		xid.Detail = recovery(rest)
	}
	return xid, true
}

// recoveryAction is the XID of a changed request of the driver: a reset, a reboot, a drain.
const recoveryAction = 154

// isNVLink5 reports whether a code is one of NVLink from its fifth generation on.
func isNVLink5(code int64) bool { return code >= 144 && code <= 150 }

// nvlink5 returns the detail of an XID of NVLink 5, zero where the line is of another form:
//
//	… NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 …)
//	… NETIR Fatal XC0 i0 Link -1 (0x000fe406 …)
//
// The words are the unit, the severity, whether the error went beyond its context, and whether it was injected. Link -1 is
// none of the links. The sub-code is bits 20 to 25 of the first number, by which NVIDIA's list of these XIDs
// (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) distinguishes causes within a unit; the driver may leave
// the numbers out.
func nvlink5(rest string) gpu.XIDDetail {
	at := strings.LastIndex(rest, " Link ")
	if at < 0 {
		return gpu.XIDDetail{}
	}
	words := strings.Fields(rest[:at])
	link, numbers, _ := strings.Cut(rest[at+len(" Link "):], " ")
	n, err := strconv.ParseInt(link, 10, 8)
	if err != nil || n < -1 || len(words) < 4 {
		return gpu.XIDDetail{}
	}
	words = words[len(words)-4:]
	severity, known := severities[words[1]]
	if !isUnit(words[0]) || !known || !isFlag(words[2], "XC") || !isFlag(words[3], "i") {
		return gpu.XIDDetail{}
	}
	d := gpu.XIDDetail{Unit: words[0], Severity: severity}
	if n >= 0 {
		d.Link = strconv.FormatInt(n, 10)
	}
	if numbers = strings.Trim(numbers, " "); numbers != "" {
		first, ok := firstNumber(numbers)
		if !ok {
			return gpu.XIDDetail{}
		}
		d.SubCode = strconv.FormatUint(first>>20&0x3f, 10)
	}
	return d
}

// severities are the values of the severity label by the driver's words.
var severities = map[string]string{"Fatal": "fatal", "Nonfatal": "nonfatal", "Non-fatal": "nonfatal"}

// isUnit reports whether a word can be the name of a unit, so that no other text becomes the value of a label.
func isUnit(s string) bool {
	return len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '/' && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// isFlag reports whether a word is a name and a number.
func isFlag(s, name string) bool {
	number, ok := strings.CutPrefix(s, name)
	_, err := strconv.ParseUint(number, 10, 8)
	return ok && err == nil
}

// firstNumber returns the first of some numbers in parentheses, "(0x004505c6 0x00000000)".
func firstNumber(s string) (uint64, bool) {
	s, opened := strings.CutPrefix(s, "(")
	s, closed := strings.CutSuffix(s, ")")
	words := strings.Fields(s)
	number := func(word string) (uint64, error) { return strconv.ParseUint(strings.TrimPrefix(word, "0x"), 16, 32) }
	broken := slices.ContainsFunc(words, func(word string) bool { _, err := number(word); return err != nil })
	if !opened || !closed || len(words) == 0 || broken {
		return 0, false
	}
	n, err := number(words[0])
	return n, err == nil
}

// recovery returns the detail of XID 154, zero where the line is of another form:
//
//	… GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
//
// The number decides: the words differ between drivers.
func recovery(rest string) gpu.XIDDetail {
	_, to, _ := strings.Cut(rest, "GPU recovery action changed from ")
	_, to, _ = strings.Cut(to, ") to 0x")
	number, _, found := strings.Cut(to, " (")
	n, err := strconv.ParseUint(number, 16, 8)
	if !found || err != nil || n >= uint64(len(actions)) {
		return gpu.XIDDetail{}
	}
	return gpu.XIDDetail{Action: actions[n]}
}

// actions are the values of the action label by the numbers of nvmlDeviceGpuRecoveryAction_t.
var actions = [...]string{"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"}

// busID returns a PCI address, with or without domain and function, in the form of gpu.Device.PCIBusID.
func busID(s string) (string, bool) {
	s, function, dotted := strings.Cut(s, ".")
	if !dotted {
		function = "0"
	}
	parts := strings.Split(s, ":")
	if len(parts) == 2 {
		parts = append([]string{"0"}, parts...)
	}
	if len(parts) != 3 {
		return "", false
	}
	var n [4]uint64
	for i, part := range append(parts, function) {
		var err error
		if n[i], err = strconv.ParseUint(part, 16, [...]int{32, 8, 5, 3}[i]); err != nil {
			return "", false
		}
	}
	return fmt.Sprintf("%08X:%02X:%02X.%X", n[0], n[1], n[2], n[3]), true
}

// pid returns the process of the rest of a line, "pid=1234" or "pid='1234'"; 0 for none and for "pid='<unknown>'".
func pid(rest string) uint32 {
	value, found := strings.CutPrefix(strings.TrimLeft(rest, " "), "pid=")
	if !found {
		return 0
	}
	value, _, _ = strings.Cut(value, ",")
	n, err := strconv.ParseUint(strings.Trim(value, "' "), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}
