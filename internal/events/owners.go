package events

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// maxOwnerSets bounds the earlier owners of a GPU whose XIDs are counted apart. What is older goes
	// into the series without owner, so that no sum falls.
	maxOwnerSets = 32
	// maxCodes bounds the XIDs of one owner that have a series of their own.
	maxCodes = 64
	// maxTenures bounds how many changes of owner are remembered, to find that of the time of an
	// event.
	maxTenures = 16
	// otherXIDs stands for the XIDs beyond maxCodes.
	otherXIDs = -1
)

// An XIDCount is how often one XID occurred on a GPU under one owner. Code is -1 for all those that
// have no count of their own.
type XIDCount struct {
	Code   int64
	Count  int64
	Last   int64       // when, in Unix nanoseconds; 0 for never
	labels []gpu.Label // xid
}

// OwnerXIDs are the XIDs of a GPU under one owner.
type OwnerXIDs struct {
	Labels []gpu.Label // of the owner, sorted by name; none where there was none
	XIDs   []XIDCount  // by code
	key    string
	seen   int64 // when the owner last got the GPU, or had an XID
}

// A tenure is the owner of a GPU from a time on.
type tenure struct {
	from  int64
	key   string
	owner []gpu.Label
}

// owners are those of a GPU, now and before, with their XIDs.
type owners struct {
	sets    []OwnerXIDs // the first is that of no owner
	tenures []tenure    // oldest first
}

func (o *owners) init() {
	if o.sets == nil {
		o.sets = make([]OwnerXIDs, 1)
	}
}

// set notes the owner from a time on, and opens its series.
func (o *owners) set(owner []gpu.Label, at int64) {
	o.init()
	key := keyOfLabels(owner)
	for i := range o.tenures { // none begins later, unless the clock was set back
		o.tenures[i].from = min(o.tenures[i].from, at)
	}
	if n := len(o.tenures); n == 0 || o.tenures[n-1].key != key {
		if n == maxTenures {
			o.tenures = slices.Delete(o.tenures, 0, 1)
		}
		o.tenures = append(o.tenures, tenure{from: at, key: key, owner: owner})
	}
	// Owners who are gone and had no XID leave nothing behind.
	o.sets = append(o.sets[:1], slices.DeleteFunc(o.sets[1:], func(s OwnerXIDs) bool {
		return s.key != key && !slices.ContainsFunc(s.XIDs, func(c XIDCount) bool { return c.Count > 0 })
	})...)
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

// present returns the key of the present owner.
func (o *owners) present() string {
	if n := len(o.tenures); n > 0 {
		return o.tenures[n-1].key
	}
	return ""
}

// of returns what happened under an owner. Where there are too many, the one that was not seen for
// longest becomes part of no owner's.
func (o *owners) of(owner []gpu.Label, at int64) *OwnerXIDs {
	o.init()
	key := keyOfLabels(owner)
	for i := range o.sets {
		if s := &o.sets[i]; s.key == key {
			s.seen = max(s.seen, at)
			return s
		}
	}
	if len(o.sets) > maxOwnerSets {
		oldest := 0
		for i := 1; i < len(o.sets); i++ {
			if o.sets[i].key != o.present() && (oldest == 0 || o.sets[i].seen < o.sets[oldest].seen) {
				oldest = i
			}
		}
		for _, c := range o.sets[oldest].XIDs {
			o.sets[0].add(c.Code, c.Count, c.Last, math.MaxInt64)
		}
		o.sets = slices.Delete(o.sets, oldest, oldest+1)
	}
	o.sets = append(o.sets, OwnerXIDs{key: key, Labels: owner, seen: at})
	return &o.sets[len(o.sets)-1]
}

// count adds an XID.
func (o *owners) count(owner []gpu.Label, v event, now int64) {
	o.of(owner, now).add(v.value, 1, v.at, now)
}

// add counts. A time of the last XID that is yet to come is that of a clock that was wrong, and
// makes way.
func (s *OwnerXIDs) add(code, count, at, now int64) {
	c := s.of(code)
	c.Count = plus(c.Count, count)
	if at > c.Last || c.Last > now {
		c.Last = at
	}
}

// plus is a+b for counts, and the largest number where that is too large.
func plus(a, b int64) int64 {
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}

// of returns the count of an XID, or that of the others if there are too many.
func (s *OwnerXIDs) of(code int64) *XIDCount {
	at, found := slices.BinarySearchFunc(s.XIDs, code, func(c XIDCount, code int64) int { return cmp.Compare(c.Code, code) })
	if found {
		return &s.XIDs[at]
	}
	if len(s.XIDs) >= maxCodes && code != otherXIDs {
		return s.of(otherXIDs)
	}
	label := "other"
	if code != otherXIDs {
		label = strconv.FormatInt(code, 10)
	}
	s.XIDs = slices.Insert(s.XIDs, at, XIDCount{Code: code, labels: []gpu.Label{{Name: "xid", Value: label}}})
	return &s.XIDs[at]
}

// totals appends the counts of a GPU's XIDs. Those that alerts name are there for the present owner
// before they occur, where a witness would report them.
func (o *owners) totals(series []gpu.Series, row int, reported bool) []gpu.Series {
	o.init()
	present := o.present()
	for i := range o.sets {
		s := &o.sets[i]
		if reported && s.key == present {
			for _, code := range catalog.AlertXIDs() {
				s.of(code)
			}
		}
		for j := range s.XIDs {
			c := &s.XIDs[j]
			series = append(series, gpu.Series{Row: row, Labels: c.labels, NoOwner: true, Owner: s.Labels, Value: gpu.Int(c.Count)})
		}
	}
	return series
}

// lastSeen appends when XIDs occurred last, in Unix seconds.
func (o *owners) lastSeen(series []gpu.Series, row int) []gpu.Series {
	for i := range o.sets {
		s := &o.sets[i]
		for j := range s.XIDs {
			if c := &s.XIDs[j]; c.Last > 0 {
				series = append(series, gpu.Series{Row: row, Labels: c.labels, NoOwner: true, Owner: s.Labels, Value: gpu.Float(float64(c.Last) / 1e9)})
			}
		}
	}
	return series
}

func sortedLabels(labels []gpu.Label) []gpu.Label {
	out := slices.DeleteFunc(slices.Clone(labels), func(x gpu.Label) bool { return x.Value == "" })
	slices.SortStableFunc(out, func(a, b gpu.Label) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func keyOfLabels(labels []gpu.Label) string {
	var b strings.Builder
	for _, x := range labels {
		b.WriteString(strconv.Quote(x.Name) + "=" + strconv.Quote(x.Value) + ",")
	}
	return b.String()
}
