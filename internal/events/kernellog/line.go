package kernellog

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Record is one entry of the kernel log.
type Record struct {
	Kernel   bool // written by the kernel; other writers use other syslog facilities
	Sequence uint64
	Up       time.Duration // time since boot by the log's own clock, which drifts by seconds per day
	Text     string        // the first line, without the optional fields after it
}

// ParseRecord parses a record of /dev/kmsg, such as "6,339,5140900,-;text", and reports whether it is valid. The
// numbers are the priority and facility, the sequence number and the microseconds since boot; flags follow (Linux,
// Documentation/ABI/testing/dev-kmsg). Lines after the first hold optional fields.
func ParseRecord(b []byte) (Record, bool) {
	head, text, found := strings.Cut(string(b), ";")
	fields := strings.SplitN(head, ",", 4)
	if !found || len(fields) < 3 {
		return Record{}, false
	}
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(fields[i], 10, 53); err != nil {
			return Record{}, false
		}
	}
	text, _, _ = strings.Cut(text, "\n")
	return Record{Kernel: n[0]>>3 == 0, Sequence: n[1], Up: time.Duration(n[2]) * time.Microsecond, Text: text}, true
}

// Label values of dcgm_exporter_kernel_log_unparsed_total.
const (
	unparsedXID    = "xid"
	unparsedSXID   = "sxid"
	unparsedDetail = "detail" // the XID is counted, but without unit, link and action
)

const (
	xidPrefix  = "NVRM: Xid"       // starts the driver's lines about an XID
	sxidPrefix = "nvidia-nvswitch" // starts the driver's lines about an NVSwitch; its number follows
	sxidMark   = ": SXid "         // follows the number in lines about an SXID

	// pciAddress matches the PCI address of a GPU: domain, bus and device. Some drivers add the function.
	pciAddress = `([[:xdigit:]]{4,8}:[[:xdigit:]]{2}:[[:xdigit:]]{2}(?:\.[0-7])?)`
)

// These expressions match exactly the forms that drivers write. Anything looser could be forged: many kernel lines
// begin with the name of a process, which any process may choose. A name has at most 15 bytes and the kernel's own text
// follows it, which never completes an address. The rest of a line may be any bytes, because it holds a process name.
var (
	xidLine = regexp.MustCompile(`(?s)^` + xidPrefix +
		` \((?:PCI:` + pciAddress + `|([[:xdigit:]]{4}:[[:xdigit:]]{2}:[[:xdigit:]]{2}))` +
		`(?: GPU-I:(\d{1,9}))?(?: GPU-CI:\d{1,9})?\): (\d{1,5})` +
		`(?:, *(?:pid='?(\d{1,9})'?(?:,|$))?(.*))?$`)
	sxidLine = regexp.MustCompile(`^` + sxidPrefix + `(\d{1,3})` + sxidMark + `\(PCI:` + pciAddress +
		`\): (\d{1,5}), (?:Severity |Data \{|(Fatal|Nonfatal|Non-fatal)(?:$|,(?: Link ([^ ]+))?))`)

	linkDetail = regexp.MustCompile(`(?:^|\s)([A-Z0-9_/]{1,40})\s+(Fatal|Nonfatal|Non-fatal)\s+XC\d{1,3}\s+i\d{1,3}` +
		`\s+Link ([^ ]+)(?: +\((?:0x)?([[:xdigit:]]{1,8})(?:\s+(?:0x)?[[:xdigit:]]{1,8})*\))? *$`)
	actionDetail = regexp.MustCompile(`GPU recovery action changed from .*?\) to 0x0*([0-4]) \(`)
)

// actions maps the values of nvmlDeviceGpuRecoveryAction_t to values of the action label.
var actions = [...]string{"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"}

// ParseLine parses a driver line about an XID of a GPU or an SXID of an NVSwitch. Drivers since about 450 write the
// first form of an XID. The next two name a MIG GPU instance and compute instance. Old drivers write the last:
//
//	NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 13, pid='<unknown>', name=<unknown>, …
//	NVRM: Xid (PCI:0000:1b:00 GPU-I:05 GPU-CI:00): 13, pid=1234, name=python3, …
//	NVRM: Xid (0000:03:00): 31, Ch 00000010, …
//
// Only the first form of an SXID is an error. The others add details to it, which are ignored:
//
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, …}
//
// The Code of the result is 0 if the line is not about an error. The result has no Time. If a part of the line has an
// unknown form, unparsed is "xid", "sxid" or "detail".
func ParseLine(line string) (x gpu.XID, unparsed string) {
	switch {
	case strings.HasPrefix(line, xidPrefix):
		return parseXID(line)
	case strings.HasPrefix(line, sxidPrefix) && strings.Contains(line, sxidMark):
		return parseSXID(line)
	default:
		return gpu.XID{}, ""
	}
}

func parseXID(line string) (x gpu.XID, unparsed string) {
	m := xidLine.FindStringSubmatch(line)
	if m == nil {
		return gpu.XID{}, unparsedXID
	}
	x = gpu.XID{Code: number(m[4]), PID: uint32(number(m[5]))}
	var ok bool
	if x.PCIBusID, ok = busID(m[1] + m[2]); !ok || x.Code < 1 || x.Code > gpu.MaxXID {
		return gpu.XID{}, unparsedXID
	}
	x.InstanceID, x.OnInstance = uint32(number(m[3])), m[3] != ""
	switch {
	case x.Code >= 144 && x.Code <= 150: // errors of NVLink 5 and later
		x.Detail, ok = nvlink5(m[6])
	case x.Code == 154: // the requested recovery action changed
		x.Detail, ok = recovery(m[6])
	}
	if !ok {
		return x, unparsedDetail
	}
	return x, ""
}

func parseSXID(line string) (x gpu.XID, unparsed string) {
	m := sxidLine.FindStringSubmatch(line)
	if m == nil {
		return gpu.XID{}, unparsedSXID
	}
	x = gpu.XID{Switch: uint32(number(m[1])), OnSwitch: true, Code: number(m[3])}
	x.Detail.Severity = severity(m[4])
	var ok bool
	if x.Detail.Link, ok = link(m[5]); m[5] != "" && !ok {
		return gpu.XID{}, unparsedSXID
	}
	if _, ok := busID(m[2]); !ok || x.Code == 0 {
		return gpu.XID{}, unparsedSXID
	}
	if m[4] == "" {
		return gpu.XID{}, "" // further details of the preceding SXID
	}
	return x, ""
}

// nvlink5 decodes the text of an NVLink 5 XID, and reports whether it has this form:
//
//	… NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 …)
//	… NETIR Fatal XC0 i0 Link -1 (0x000fe406 …)
//
// The words are the unit, the severity, whether the error went beyond its context (XC), and whether it was injected
// (i). Link -1 means no particular link. Bits 20 to 25 of the first number are the sub-code, which distinguishes causes
// within a unit (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html). Some drivers omit the numbers.
func nvlink5(rest string) (d gpu.XIDDetail, ok bool) {
	m := linkDetail.FindStringSubmatch(rest)
	if m == nil {
		return d, false
	}
	d = gpu.XIDDetail{Unit: m[1], Severity: severity(m[2])}
	if d.Link, ok = link(m[3]); !ok && m[3] != "-1" {
		return gpu.XIDDetail{}, false
	}
	if n, err := strconv.ParseUint(m[4], 16, 32); err == nil {
		d.SubCode = strconv.FormatUint(n>>20&0x3f, 10)
	}
	return d, true
}

// recovery decodes the text of XID 154, and reports whether it has this form:
//
//	… GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)
//
// Only the number is used, because the words differ between drivers.
func recovery(rest string) (gpu.XIDDetail, bool) {
	m := actionDetail.FindStringSubmatch(rest)
	if m == nil {
		return gpu.XIDDetail{}, false
	}
	return gpu.XIDDetail{Action: actions[number(m[1])]}, true
}

// severity returns the value of the severity label for the driver's word.
func severity(word string) string { return strings.ReplaceAll(strings.ToLower(word), "-", "") }

// link returns the number of a link without leading zeros, and reports whether it can be one.
func link(word string) (string, bool) {
	n, err := strconv.ParseUint(word, 10, 7)
	if err != nil {
		return "", false
	}
	return strconv.FormatUint(n, 10), true
}

// number returns the value of at most nine digits, or 0 for none.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// busID converts the PCI address of a line, with or without a function, to the form of gpu.Device.PCIBusID.
func busID(address string) (string, bool) {
	if !strings.Contains(address, ".") {
		address += ".0"
	}
	return gpu.ParseBusID(address)
}
