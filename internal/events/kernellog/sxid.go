package kernellog

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// sxidPrefix starts each of the driver's lines about an NVSwitch. In lines about SXIDs, sxidMark follows the
// switch number.
const (
	sxidPrefix = "nvidia-nvswitch"
	sxidMark   = ": SXid "
)

// sxidLine matches exactly the form that the driver writes; see xidLine.
var sxidLine = regexp.MustCompile(
	`(?s)^` + sxidPrefix + `(\d{1,3})` + sxidMark + `\(PCI:` + pciAddress + `\): (\d{1,9}), (.*)$`)

// ParseSXID parses a driver line about an NVSwitch error and reports whether it is one:
//
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00
//	nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00140004, …}
//
// The second and third forms add details to the preceding error. For them, the result has no severity.
func ParseSXID(line string) (gpu.SXID, bool) {
	m := sxidLine.FindStringSubmatch(line)
	if m == nil {
		return gpu.SXID{}, false
	}
	rest := m[4]
	n, err := strconv.ParseUint(m[1], 10, 8)
	if _, ok := busID(m[2]); err != nil || !ok {
		return gpu.SXID{}, false
	}
	c, err := strconv.ParseUint(m[3], 10, 32)
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
