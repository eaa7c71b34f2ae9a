package kernellog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// xidPrefix begins the driver's lines about XIDs.
const xidPrefix = "NVRM: Xid ("

// ParseXID reads the driver's line about an XID, and reports whether it is one:
//
//	NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.
//	NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 13, pid='<unknown>', name=<unknown>, …
//	NVRM: Xid (0000:03:00): 31, Ch 00000010, …
//
// The first is of drivers since 450 or so, the second of a GPU partitioned by MIG, the last of old drivers. Time is left
// for the caller.
func ParseXID(line string) (gpu.XID, bool) {
	rest, found := strings.CutPrefix(strings.TrimLeft(line, " "), xidPrefix)
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
	return xid, true
}

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
