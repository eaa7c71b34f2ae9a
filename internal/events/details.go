package events

import (
	"cmp"
	"slices"
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

func (d xidDetail) compare(e xidDetail) int {
	return cmp.Or(cmp.Compare(d.code, e.code), cmp.Compare(d.Unit, e.Unit), cmp.Compare(len(d.SubCode), len(e.SubCode)),
		cmp.Compare(d.SubCode, e.SubCode), cmp.Compare(len(d.Link), len(e.Link)), cmp.Compare(d.Link, e.Link),
		cmp.Compare(d.Severity, e.Severity), cmp.Compare(d.Action, e.Action))
}

func (d xidDetail) labels() []gpu.Label {
	return labelsOf("xid", codeName(d.code), "unit", d.Unit, "subcode", d.SubCode, "link", d.Link, "severity", d.Severity,
		"action", d.Action)
}

func compareSXIDs(a, b gpu.SXID) int {
	return cmp.Or(cmp.Compare(a.Switch, b.Switch), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Severity, b.Severity),
		cmp.Compare(len(a.Link), len(b.Link)), cmp.Compare(a.Link, b.Link))
}

// sxidLabels returns the labels of an SXID. The switch has the driver's number, as in the kernel log.
func sxidLabels(s gpu.SXID) []gpu.Label {
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

// A tally counts events by key. It is sorted by key.
type tally[K any] []counted[K]

type counted[K any] struct {
	key    K
	count  int64
	last   int64 // time of the latest event, in Unix nanoseconds
	labels []gpu.Label
}

// add counts events, the last of which occurred at the given time in Unix nanoseconds. If the tally has no room for
// another key, they are counted under the key other.
func (t *tally[K]) add(key, other K, count, at int64, compare func(K, K) int, labels func(K) []gpu.Label) {
	find := func(key K) (int, bool) {
		return slices.BinarySearchFunc(*t, key, func(c counted[K], key K) int { return compare(c.key, key) })
	}
	i, found := find(key)
	if !found && len(*t) >= maxTallies {
		key = other
		i, found = find(key)
	}
	if !found {
		*t = slices.Insert(*t, i, counted[K]{key: key, labels: labels(key)})
	}
	(*t)[i].count += count
	(*t)[i].last = max((*t)[i].last, at)
}

// series appends the number of events of each key.
func (t tally[K]) series(series []gpu.Series, row int) []gpu.Series {
	for i := range t {
		series = append(series, gpu.Series{Row: row, Labels: t[i].labels, NoOwner: true, Value: gpu.Int(t[i].count)})
	}
	return series
}

// lastSeen appends the time of the latest event of each key, in Unix seconds.
func (t tally[K]) lastSeen(series []gpu.Series, row int) []gpu.Series {
	for i := range t {
		at := gpu.Float(float64(t[i].last) / 1e9)
		series = append(series, gpu.Series{Row: row, Labels: t[i].labels, NoOwner: true, Value: at})
	}
	return series
}
