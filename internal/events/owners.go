package events

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxOwners bounds the earlier owners of a GPU with series of their own. The XIDs of older ones go into the series
	// without owner, so that no sum falls.
	maxOwners  = 32
	maxCodes   = 64 // XIDs of one owner with a series of their own
	maxTenures = 16 // changes of owner that are remembered
	otherXIDs  = -1 // the code of all XIDs beyond maxCodes
)

// An xid is the key of a count.
type xid struct {
	code     int64
	instance instance
}

func (x xid) compare(y xid) int {
	return cmp.Or(cmp.Compare(x.code, y.code), x.instance.compare(y.instance))
}

// An instance is the GPU instance that an XID names. The zero value is the whole GPU: the XID names none.
type instance struct {
	named bool
	id    uint32
}

func (i instance) compare(j instance) int {
	switch {
	case i.named == j.named:
		return cmp.Compare(i.id, j.id)
	case j.named:
		return -1
	default:
		return 1
	}
}

// labels returns the labels of a series of the XID.
func (x xid) labels() []gpu.Label {
	code := gpu.Label{Name: "xid", Value: codeName(x.code)}
	if !x.instance.named {
		return []gpu.Label{code}
	}
	return []gpu.Label{{Name: "GPU_I_ID", Value: strconv.FormatUint(uint64(x.instance.id), 10)}, code}
}

// An xidCount is how often one XID occurred on a GPU under one owner.
type xidCount struct {
	xid
	count, last int64 // last is when, in Unix nanoseconds; 0 for never
	labels      []gpu.Label
}

// happened reports whether the XID was counted or seen.
func (c xidCount) happened() bool { return c.count > 0 || c.last > 0 }

// ownerXIDs are the XIDs of a GPU under one owner.
type ownerXIDs struct {
	labels []gpu.Label // of the owner, sorted by name; none for no owner
	counts []xidCount  // sorted
	seen   int64       // when the owner last got the GPU, or had an XID
}

// A tenure is the owner of a GPU or a GPU instance from a time on.
type tenure struct {
	from  int64
	owner []gpu.Label
}

// owners are the present and earlier owners of a GPU or a GPU instance, and of a GPU their XIDs.
type owners struct {
	xids    []*ownerXIDs // the first is of no owner
	tenures []tenure     // oldest first
}

// set notes the owner from a time on.
func (o *owners) set(owner []gpu.Label, at int64) {
	for i := range o.tenures { // none begins later, unless the clock was set back
		o.tenures[i].from = min(o.tenures[i].from, at)
	}
	if len(o.tenures) == 0 || !slices.Equal(o.present(), owner) {
		if len(o.tenures) == maxTenures {
			o.tenures = slices.Delete(o.tenures, 0, 1)
		}
		o.tenures = append(o.tenures, tenure{at, owner})
	}
	// Forget owners that are gone and had no XID.
	o.xids = slices.DeleteFunc(o.xids, func(x *ownerXIDs) bool {
		return len(x.labels) > 0 && !slices.Equal(x.labels, owner) && !slices.ContainsFunc(x.counts, xidCount.happened)
	})
	o.of(owner, at)
}

// at returns the owner of a time.
func (o *owners) at(at int64) []gpu.Label {
	for i := len(o.tenures) - 1; i >= 0; i-- {
		if o.tenures[i].from <= at {
			return o.tenures[i].owner
		}
	}
	return nil
}

// present returns the present owner.
func (o *owners) present() []gpu.Label { return o.at(math.MaxInt64) }

// of returns the XIDs of an owner. Beyond maxOwners, the XIDs of the owner that was not seen for longest become those
// of none.
func (o *owners) of(owner []gpu.Label, at int64) *ownerXIDs {
	if o.xids == nil {
		o.xids = []*ownerXIDs{{}}
	}
	if i := slices.IndexFunc(o.xids, func(x *ownerXIDs) bool { return slices.Equal(x.labels, owner) }); i >= 0 {
		o.xids[i].seen = max(o.xids[i].seen, at)
		return o.xids[i]
	}
	if len(o.xids) > maxOwners {
		oldest := 0
		for i, x := range o.xids {
			if i > 0 && !slices.Equal(x.labels, o.present()) && (oldest == 0 || x.seen < o.xids[oldest].seen) {
				oldest = i
			}
		}
		for _, c := range o.xids[oldest].counts {
			o.xids[0].add(c.xid, c.count, c.last, at)
		}
		o.xids = slices.Delete(o.xids, oldest, oldest+1)
	}
	x := &ownerXIDs{labels: owner, seen: at}
	o.xids = append(o.xids, x)
	return x
}

// sourcesDiffer bounds how far apart the driver events and the kernel log date one XID.
const sourcesDiffer = 2 * time.Second

// noteSeen records when an XID was last seen without counting it. It does nothing if the other source has already
// reported the XID, possibly with a better owner.
func (o *owners) noteSeen(x xid, owner []gpu.Label, at, now int64) {
	reported := func(c xidCount) bool { return c.xid == x && at-int64(sourcesDiffer) <= c.last && c.last <= now }
	for _, known := range o.xids {
		if slices.ContainsFunc(known.counts, reported) {
			return
		}
	}
	o.of(owner, now).add(x, 0, at, now)
}

// add counts XIDs, the last of which occurred at a time. A known last time after now is of a clock that was wrong.
func (o *ownerXIDs) add(x xid, count, at, now int64) {
	c := o.of(x)
	c.count += count
	if at > c.last || c.last > now {
		c.last = at
	}
}

// of returns the count of an XID; beyond maxCodes, that of the others.
func (o *ownerXIDs) of(x xid) *xidCount {
	at, found := slices.BinarySearchFunc(o.counts, x, func(c xidCount, x xid) int { return c.compare(x) })
	switch {
	case found:
		return &o.counts[at]
	case len(o.counts) >= maxCodes && x.code != otherXIDs:
		return o.of(xid{code: otherXIDs})
	}
	o.counts = slices.Insert(o.counts, at, xidCount{xid: x, labels: x.labels()})
	return &o.counts[at]
}

// ofNone returns the XIDs of all owners as those of none.
func (o *owners) ofNone() *owners {
	merged := &owners{}
	none := merged.of(nil, 0)
	for _, x := range o.xids {
		for _, c := range x.counts {
			none.add(c.xid, c.count, c.last, math.MaxInt64)
		}
	}
	return merged
}

// totals appends the counts of a GPU's XIDs. Where they are reported, the present owner has the XIDs of alerts from the
// beginning.
func (o *owners) totals(series []gpu.Series, row int, reported bool) []gpu.Series {
	for _, x := range o.xids {
		if reported && slices.Equal(x.labels, o.present()) {
			for _, code := range catalog.AlertXIDs() {
				x.of(xid{code: code})
			}
		}
		for _, c := range x.counts {
			series = append(series, gpu.Series{Row: row, Labels: c.labels, NoOwner: true, Owner: x.labels, Value: gpu.Int(c.count)})
		}
	}
	return series
}

// lastSeen appends when XIDs occurred last, in Unix seconds.
func (o *owners) lastSeen(series []gpu.Series, row int) []gpu.Series {
	for _, x := range o.xids {
		series = x.lastSeen(series, row)
	}
	return series
}

func (o *ownerXIDs) lastSeen(series []gpu.Series, row int) []gpu.Series {
	for _, c := range o.counts {
		if c.last > 0 {
			at := gpu.Float(float64(c.last) / 1e9)
			series = append(series, gpu.Series{Row: row, Labels: c.labels, NoOwner: true, Owner: o.labels, Value: at})
		}
	}
	return series
}

func sortedLabels(labels []gpu.Label) []gpu.Label {
	out := slices.DeleteFunc(slices.Clone(labels), func(x gpu.Label) bool { return x.Value == "" })
	slices.SortStableFunc(out, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
