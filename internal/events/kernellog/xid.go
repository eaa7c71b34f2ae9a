package kernellog

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// xidPrefix starts each of the driver's lines about an XID.
const xidPrefix = "NVRM: Xid"

// pciAddress matches the PCI address of a GPU: domain, bus and device. Some drivers add the function.
const pciAddress = `([[:xdigit:]]{4,8}:[[:xdigit:]]{2}:[[:xdigit:]]{2}(?:\.[0-7])?)`

// xidLine matches exactly the forms that drivers write. Anything looser could be forged: many kernel lines begin with
// the name of a process, which any process may choose. A name has at most 15 bytes and the kernel's own text follows
// it, which never completes an address. The rest of the line may be any bytes, because it holds a process name.
var xidLine = regexp.MustCompile(`(?s)^` + xidPrefix +
	` \((?:PCI:` + pciAddress + `|([[:xdigit:]]{4}:[[:xdigit:]]{2}:[[:xdigit:]]{2}))` +
	`(?: GPU-I:(\d{1,9}))?(?: GPU-CI:\d{1,9})?\): (\d{1,5})(?:,(.*))?$`)

// ParseXID parses a driver line about an XID and reports whether it is one:
//
//	NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 13, pid='<unknown>', name=<unknown>, …
//	NVRM: Xid (PCI:0000:1b:00 GPU-I:05 GPU-CI:00): 13, pid=1234, name=python3, …
//	NVRM: Xid (0000:03:00): 31, Ch 00000010, …
//
// Drivers since about 450 write the first form. The next two name a MIG GPU instance and compute instance. Old
// drivers write the last. The result has no Time.
func ParseXID(line string) (gpu.XID, bool) {
	m := xidLine.FindStringSubmatch(line)
	if m == nil {
		return gpu.XID{}, false
	}
	address, instance, code, rest := m[1]+m[2], m[3], m[4], m[5]
	id, ok := busID(address)
	n, err := strconv.ParseUint(code, 10, 16)
	if !ok || err != nil || n == 0 || n > gpu.MaxXID {
		return gpu.XID{}, false
	}
	xid := gpu.XID{PCIBusID: id, Code: int64(n), PID: pid(rest)}
	if instance, err := strconv.ParseUint(instance, 10, 32); err == nil {
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

// recoveryAction is the XID by which the driver reports that the requested recovery action changed.
const recoveryAction = 154

// isNVLink5 reports whether a code is an XID of NVLink 5 or later.
func isNVLink5(code int64) bool { return code >= 144 && code <= 150 }

// nvlink5 decodes the text of an NVLink 5 XID. It returns the zero detail if the text has another form:
//
//	… NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 …)
//	… NETIR Fatal XC0 i0 Link -1 (0x000fe406 …)
//
// The words are the unit, the severity, whether the error went beyond its context (XC), and whether it was
// injected (i). Link -1 means no particular link. Bits 20 to 25 of the first number are the sub-code, which
// distinguishes causes within a unit (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). Some
// drivers omit the numbers.
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

// severities maps the driver's words to values of the severity label.
var severities = map[string]string{"Fatal": "fatal", "Nonfatal": "nonfatal", "Non-fatal": "nonfatal"}

// isUnit reports whether a word can be a unit name, so that no arbitrary text becomes a label value.
func isUnit(s string) bool {
	return len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '_' && r != '/' && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}

// isFlag reports whether a word is the name followed by a number.
func isFlag(s, name string) bool {
	number, ok := strings.CutPrefix(s, name)
	_, err := strconv.ParseUint(number, 10, 8)
	return ok && err == nil
}

// firstNumber returns the first of several hexadecimal numbers in parentheses, as in "(0x004505c6 0x00000000)".
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

// recovery decodes the text of XID 154. It returns the zero detail if the text has another form:
//
//	… GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
//
// Only the number is used, because the words differ between drivers.
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

// actions maps the values of nvmlDeviceGpuRecoveryAction_t to values of the action label.
var actions = [...]string{"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"}

// busID converts the PCI address of a line, with or without a function, to the form of gpu.Device.PCIBusID.
func busID(address string) (string, bool) {
	if !strings.Contains(address, ".") {
		address += ".0"
	}
	return gpu.ParseBusID(address)
}

// pid returns the process ID at the start of the text, "pid=1234" or "pid='1234'". It returns 0 if there is
// none or it is unknown.
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
