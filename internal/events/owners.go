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
	// maxOwners is the maximum number of earlier owners of a GPU that have their own series. XIDs of owners
	// beyond it move to the series without an owner, so that no sum decreases.
	maxOwners     = 32
	maxCodes      = 64 // XIDs with their own series, per owner
	maxOwnerships = 16 // changes of owner that are remembered
	otherXIDs     = -1 // code of all XIDs beyond maxCodes
)

// An xid is the key of a count.
type xid struct {
	code     int64
	instance instance
}

func (xid) other() xid { return xid{code: otherXIDs} }

func (x xid) compare(y xid) int {
	return cmp.Or(cmp.Compare(x.code, y.code), x.instance.compare(y.instance))
}

// An instance is the GPU instance that an XID names. The zero value stands for the whole GPU: the XID names no
// instance.
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

func (x xid) labels() []gpu.Label {
	id := ""
	if x.instance.named {
		id = strconv.FormatUint(uint64(x.instance.id), 10)
	}
	return labelsOf(gpu.InstanceLabel, id, "xid", codeName(x.code))
}

// ownerXIDs are the XIDs of a GPU under one owner.
type ownerXIDs struct {
	labels []gpu.Label // labels of the owner, sorted by name; empty for no owner
	counts tally[xid]
	seen   int64 // when the owner last received the GPU or had an XID
}

// An ownership records the owner of a GPU or GPU instance since a time.
type ownership struct {
	from  int64
	owner []gpu.Label
}

// owners holds the current and earlier owners of a GPU or GPU instance. For a GPU, it also counts the XIDs of
// each owner.
type owners struct {
	xids       []*ownerXIDs // the first entry has no owner
	ownerships []ownership  // oldest first
}

// set records that the device has this owner since the given time.
func (o *owners) set(owner []gpu.Label, at int64) {
	for i := range o.ownerships { // a start after this time means that the clock was set back
		o.ownerships[i].from = min(o.ownerships[i].from, at)
	}
	if len(o.ownerships) == 0 || !slices.Equal(o.present(), owner) {
		if len(o.ownerships) == maxOwnerships {
			o.ownerships = slices.Delete(o.ownerships, 0, 1)
		}
		o.ownerships = append(o.ownerships, ownership{at, owner})
	}
	// Forget former owners without XIDs.
	o.xids = slices.DeleteFunc(o.xids, func(x *ownerXIDs) bool {
		return len(x.labels) > 0 && !slices.Equal(x.labels, owner) &&
			!slices.ContainsFunc(x.counts, counted[xid].happened)
	})
	o.of(owner, at)
}

// at returns the owner at the given time, in Unix nanoseconds.
func (o *owners) at(at int64) []gpu.Label {
	for i := len(o.ownerships) - 1; i >= 0; i-- {
		if o.ownerships[i].from <= at {
			return o.ownerships[i].owner
		}
	}
	return nil
}

// present returns the current owner.
func (o *owners) present() []gpu.Label { return o.at(math.MaxInt64) }

// of returns the XIDs of an owner. Above maxOwners, it evicts the least recently seen owner, whose XIDs become
// unattributed.
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
			o.xids[0].add(c.key, c.count, c.last, at)
		}
		o.xids = slices.Delete(o.xids, oldest, oldest+1)
	}
	x := &ownerXIDs{labels: owner, seen: at}
	o.xids = append(o.xids, x)
	return x
}

// sourcesDiffer is the largest difference between the times that driver events and the kernel log report for
// one XID.
const sourcesDiffer = 2 * time.Second

// noteSeen records when an XID was last seen without counting it. It does nothing if the other source has already
// reported the XID, possibly with a better owner.
func (o *owners) noteSeen(x xid, owner []gpu.Label, at, now int64) {
	reported := func(c counted[xid]) bool {
		return c.key == x && at-int64(sourcesDiffer) <= c.last && c.last <= now
	}
	for _, known := range o.xids {
		if slices.ContainsFunc(known.counts, reported) {
			return
		}
	}
	o.of(owner, now).add(x, 0, at, now)
}

// add adds count occurrences of an XID, the latest of which happened at the given time: see counted.add.
func (o *ownerXIDs) add(x xid, count, at, now int64) { o.counts.of(x, maxCodes).add(count, at, now) }

// withoutOwner returns the totals of all owners without an owner label.
func (o *owners) withoutOwner() *owners {
	merged := &owners{}
	none := merged.of(nil, 0)
	for _, x := range o.xids {
		for _, c := range x.counts {
			none.add(c.key, c.count, c.last, math.MaxInt64)
		}
	}
	return merged
}

// totals appends the XID counters of a GPU. If its XIDs are reported, the counters of the XIDs with alerts
// exist for the current owner even while they are 0.
func (o *owners) totals(series []gpu.Series, row int, reported bool) []gpu.Series {
	for _, x := range o.xids {
		if reported && slices.Equal(x.labels, o.present()) {
			for _, code := range catalog.AlertXIDs() {
				x.counts.of(xid{code: code}, maxCodes)
			}
		}
		series = x.counts.series(series, row, x.labels)
	}
	return series
}

// lastSeen appends the Unix time in seconds at which each XID last occurred.
func (o *owners) lastSeen(series []gpu.Series, row int) []gpu.Series {
	for _, x := range o.xids {
		series = x.counts.lastSeen(series, row, x.labels)
	}
	return series
}

func sortedLabels(labels []gpu.Label) []gpu.Label {
	out := slices.DeleteFunc(slices.Clone(labels), func(x gpu.Label) bool { return x.Value == "" })
	slices.SortStableFunc(out, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
