package events

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxOwners is the maximum number of owners of a GPU that have their own series. Above it, the XIDs of the least
	// recently seen owner move to the series without an owner, so that no sum decreases.
	maxOwners     = 32
	maxOwnerships = 16 // maximum number of recorded changes of owner
	// sourcesDiffer is the largest difference between the times that driver events and the kernel log report for
	// one XID.
	sourcesDiffer = 2 * time.Second
)

// owners holds the current and earlier owners of a GPU or GPU instance. For a GPU, it also counts the XIDs of
// each owner.
type owners struct {
	xids       []*ownerXIDs // the first entry has no owner
	ownerships []ownership  // oldest first
}

// ownerXIDs are the XIDs of a GPU under one owner.
type ownerXIDs struct {
	labels []gpu.Label // labels of the owner, sorted by name; empty for no owner
	counts tally
	seen   int64 // when the owner last received the GPU or had an XID
}

// An ownership records the owner of a GPU or GPU instance since a time.
type ownership struct {
	from  int64
	owner []gpu.Label
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
	happened := func(c counted) bool { return c.count > 0 || c.last > 0 }
	o.xids = slices.DeleteFunc(o.xids, func(x *ownerXIDs) bool {
		return len(x.labels) > 0 && !slices.Equal(x.labels, owner) && !slices.ContainsFunc(x.counts, happened)
	})
	o.of(owner, at)
}

// at returns the owner at the given time, in Unix nanoseconds.
func (o *owners) at(at int64) []gpu.Label {
	for _, ownership := range slices.Backward(o.ownerships) {
		if ownership.from <= at {
			return ownership.owner
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
		o.xids[0].merge(o.xids[oldest], at)
		o.xids = slices.Delete(o.xids, oldest, oldest+1)
	}
	x := &ownerXIDs{labels: owner, seen: at}
	o.xids = append(o.xids, x)
	return x
}

// merge adds the counts of another owner.
func (x *ownerXIDs) merge(other *ownerXIDs, now int64) {
	for i := range other.counts {
		c := &other.counts[i]
		x.counts.add(c.key, maxCodes, c.count, c.last, now)
	}
}

// add adds count occurrences of an XID to the counts of its owner. The latest occurrence was at the given time.
func (o *owners) add(x xid, owner []gpu.Label, count, at, now int64) {
	o.of(owner, now).counts.add(key{xid: x}, maxCodes, count, at, now)
}

// noteSeen records when an XID was last seen without counting it. It does nothing if the other source has already
// reported the XID, possibly with a better owner.
func (o *owners) noteSeen(x xid, owner []gpu.Label, at, now int64) {
	reported := func(c counted) bool {
		return c.key.xid == x && at-int64(sourcesDiffer) <= c.last && c.last <= now
	}
	for _, known := range o.xids {
		if slices.ContainsFunc(known.counts, reported) {
			return
		}
	}
	o.add(x, owner, 0, at, now)
}

// withoutOwner returns the sum of the XIDs of all owners, without owner labels.
func (o *owners) withoutOwner() *owners {
	none := &ownerXIDs{}
	for _, x := range o.xids {
		none.merge(x, math.MaxInt64)
	}
	return &owners{xids: []*ownerXIDs{none}}
}

// series appends the number of XIDs of each owner. If seen is set, it appends the Unix time of the latest one in
// seconds instead.
func (o *owners) series(list []gpu.Series, row int, seen bool) []gpu.Series {
	for _, x := range o.xids {
		list = x.counts.series(list, row, x.labels, seen)
	}
	return list
}

func sortedLabels(labels []gpu.Label) []gpu.Label {
	out := slices.DeleteFunc(slices.Clone(labels), func(x gpu.Label) bool { return x.Value == "" })
	slices.SortStableFunc(out, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

const (
	// maxTallies is the maximum number of label combinations with a series of their own, for the XIDs of one GPU and
	// for the SXIDs of all switches. The rest are counted together under the code "other".
	maxTallies = 128
	maxCodes   = 64 // XIDs with their own series, per owner
	otherXIDs  = -1 // code under which the rest is counted
	wholeGPU   = -1 // instance of an XID that names none
)

// An xid is a code and an instance: the GPU instance that the XID names, or wholeGPU.
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
	onSwitch bool          // the event is an SXID
	nvswitch uint32        // the driver's number of the switch, as in the kernel log; only for SXIDs
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
		return gpu.Labels("nvswitch", nvswitch, "sxid", code, "severity", d.Severity, "link", d.Link)
	}
	if k.instance != wholeGPU {
		instance = strconv.FormatInt(k.instance, 10)
	}
	return gpu.Labels(gpu.InstanceLabel, instance, "xid", code, "unit", d.Unit, "subcode", d.SubCode, "link", d.Link,
		"severity", d.Severity, "action", d.Action)
}

// A tally counts events by key. It is sorted by key.
type tally []counted

// A counted is how often the events of one key occurred.
type counted struct {
	key         key
	count, last int64 // last occurrence in Unix nanoseconds; 0 if never
	labels      []gpu.Label
}

// add adds count events of a key. The latest of them happened at the given time. A recorded time after now came from a
// wrong clock and is replaced. Once the tally has most keys, all new keys share one counter.
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
