package events

import (
	"cmp"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxTallies is the maximum number of label combinations with a series of their own, for the XIDs of one GPU and for
// the SXIDs of all switches. The rest are counted together under the code "other".
const maxTallies = 128

// An xidDetail is the key of a count of XIDs: the code and the details from the kernel log.
type xidDetail struct {
	code int64
	gpu.XIDDetail
}

func (xidDetail) other() xidDetail { return xidDetail{code: otherXIDs} }

func (d xidDetail) compare(e xidDetail) int {
	return cmp.Or(cmp.Compare(d.code, e.code), cmp.Compare(d.Unit, e.Unit),
		cmp.Compare(len(d.SubCode), len(e.SubCode)), cmp.Compare(d.SubCode, e.SubCode),
		cmp.Compare(len(d.Link), len(e.Link)), cmp.Compare(d.Link, e.Link),
		cmp.Compare(d.Severity, e.Severity), cmp.Compare(d.Action, e.Action))
}

func (d xidDetail) labels() []gpu.Label {
	return labelsOf("xid", codeName(d.code), "unit", d.Unit, "subcode", d.SubCode, "link", d.Link,
		"severity", d.Severity, "action", d.Action)
}

// An sxid is the key of a count of SXIDs: all fields except the time.
type sxid gpu.SXID

func (sxid) other() sxid { return sxid{Code: otherXIDs} }

func (s sxid) compare(o sxid) int {
	return cmp.Or(cmp.Compare(s.Switch, o.Switch), cmp.Compare(s.Code, o.Code), cmp.Compare(s.Severity, o.Severity),
		cmp.Compare(len(s.Link), len(o.Link)), cmp.Compare(s.Link, o.Link))
}

// labels returns the labels of an SXID. The switch has the driver's number, as in the kernel log.
func (s sxid) labels() []gpu.Label {
	nvswitch := "nvswitch" + strconv.FormatUint(uint64(s.Switch), 10)
	if s.Code == otherXIDs {
		nvswitch = ""
	}
	return labelsOf("nvswitch", nvswitch, "sxid", codeName(s.Code), "severity", s.Severity, "link", s.Link)
}

// labelsOf returns labels from alternating names and values. It omits labels with an empty value.
func labelsOf(pairs ...string) []gpu.Label {
	var labels []gpu.Label
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			labels = append(labels, gpu.Label{Name: pairs[i], Value: pairs[i+1]})
		}
	}
	return labels
}

// codeName returns the label value of a code.
func codeName(code int64) string {
	if code == otherXIDs {
		return "other"
	}
	return strconv.FormatInt(code, 10)
}
