package kernellog

import (
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// sxidPrefix begins the driver's lines about NVSwitches; sxidMark follows the number of the switch in those about SXIDs.
const (
	sxidPrefix = "nvidia-nvswitch"
	sxidMark   = ": SXid "
)

// ParseSXID reads the driver's line about an error of an NVSwitch, and reports whether it is one:
//
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, …}
//
// The second and the third say more of the error before them: their SXID has no severity.
func ParseSXID(line string) (gpu.SXID, bool) {
	rest, found := strings.CutPrefix(strings.TrimLeft(line, " "), sxidPrefix)
	if !found {
		return gpu.SXID{}, false
	}
	number, rest, found := strings.Cut(rest, sxidMark+"(PCI:")
	if !found {
		return gpu.SXID{}, false
	}
	n, err := strconv.ParseUint(number, 10, 8)
	address, rest, found := strings.Cut(rest, "): ")
	if _, ok := busID(address); err != nil || !found || !ok {
		return gpu.SXID{}, false
	}
	code, rest, _ := strings.Cut(rest, ", ")
	c, err := strconv.ParseUint(code, 10, 32)
	if err != nil || c == 0 || c > gpu.MaxSXID {
		return gpu.SXID{}, false
	}
	sxid := gpu.SXID{Switch: uint32(n), Code: int64(c)}
	if strings.HasPrefix(rest, "Severity ") || strings.HasPrefix(rest, "Data {") {
		return sxid, true
	}
	word, rest, _ := strings.Cut(rest, ",")
	if sxid.Severity = severities[word]; sxid.Severity == "" {
		return gpu.SXID{}, false
	}
	if link, found := strings.CutPrefix(rest, " Link "); found {
		link, _, _ = strings.Cut(link, " ")
		n, err := strconv.ParseUint(link, 10, 8)
		if err != nil {
			return gpu.SXID{}, false
		}
		sxid.Link = strconv.FormatUint(n, 10)
	}
	return sxid, true
}
