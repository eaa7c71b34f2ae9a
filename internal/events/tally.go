package events

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxTallies is the maximum number of label combinations with a series of their own, for the XIDs of one GPU and
	// for the SXIDs of all switches. The rest are counted together under the code "other".
	maxTallies = 128
	maxCodes   = 64 // XIDs with their own series, per owner
	otherXIDs  = -1 // code of the rest
	wholeGPU   = -1 // instance of an XID that names none
)

// An xid is a code, and the GPU instance that the XID names or wholeGPU.
type xid struct{ code, instance int64 }

func xidOf(r *gpu.XID) xid {
	if r.OnInstance {
		return xid{r.Code, int64(r.InstanceID)}
	}
	return xid{r.Code, wholeGPU}
}

// A key says which XIDs or SXIDs are counted together.
type key struct {
	xid
	onSwitch bool          // an SXID
	nvswitch uint32        // of an SXID: the driver's number, as in the kernel log
	detail   gpu.XIDDetail // zero in the counts of owners
}

func (k key) compare(o key) int {
	a, b := &k.detail, &o.detail
	return cmp.Or(
		cmp.Compare(k.nvswitch, o.nvswitch), cmp.Compare(k.code, o.code), cmp.Compare(k.instance, o.instance),
		cmp.Compare(a.Unit, b.Unit), cmp.Compare(len(a.SubCode), len(b.SubCode)), cmp.Compare(a.SubCode, b.SubCode),
		cmp.Compare(len(a.Link), len(b.Link)), cmp.Compare(a.Link, b.Link),
		cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Action, b.Action))
}

// labels returns the labels of a key's series.
func (k key) labels() []gpu.Label {
	d, code, nvswitch, instance := &k.detail, strconv.FormatInt(k.code, 10), "", ""
	if k.code == otherXIDs {
		code = "other"
	} else if k.onSwitch {
		nvswitch = "nvswitch" + strconv.FormatUint(uint64(k.nvswitch), 10)
	}
	if k.onSwitch {
		return labelsOf("nvswitch", nvswitch, "sxid", code, "severity", d.Severity, "link", d.Link)
	}
	if k.instance != wholeGPU {
		instance = strconv.FormatInt(k.instance, 10)
	}
	return labelsOf(gpu.InstanceLabel, instance, "xid", code, "unit", d.Unit, "subcode", d.SubCode, "link", d.Link,
		"severity", d.Severity, "action", d.Action)
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

// A tally counts events by key. It is sorted by key.
type tally []counted

// A counted is how often the events of one key occurred.
type counted struct {
	key         key
	count, last int64 // last occurrence in Unix nanoseconds; 0 if never
	labels      []gpu.Label
}

// add adds count events of a key, the latest of which happened at the given time. A recorded time after now came from a
// wrong clock and is replaced. If the tally has as many keys as it may have, new keys share a counter.
func (t *tally) add(k key, most int, count, at, now int64) {
	i, found := slices.BinarySearchFunc(*t, k, func(c counted, k key) int { return c.key.compare(k) })
	if !found {
		other := key{xid: xid{otherXIDs, wholeGPU}, onSwitch: k.onSwitch}
		if len(*t) >= most && k != other {
			t.add(other, most, count, at, now)
			return
		}
		*t = slices.Insert(*t, i, counted{key: k, labels: k.labels()})
	}
	c := &(*t)[i]
	c.count += count
	if at > c.last || c.last > now {
		c.last = at
	}
}

// series appends the number of events of each key, with the labels of their owner. If seen is set, it appends the Unix
// time of the latest event in seconds instead.
func (t tally) series(list []gpu.Series, row int, owner []gpu.Label, seen bool) []gpu.Series {
	for i := range t {
		c := &t[i]
		value := gpu.Int(c.count)
		if seen {
			value = gpu.Float(float64(c.last) / 1e9)
		}
		if !seen || c.last > 0 {
			list = append(list, gpu.Series{Row: row, Labels: c.labels, NoOwner: true, Owner: owner, Value: value})
		}
	}
	return list
}
