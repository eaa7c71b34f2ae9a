package events

import (
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A tally counts events by key. It is sorted by key.
type tally[K key[K]] []counted[K]

// A key says which events are counted together.
type key[K any] interface {
	compare(K) int
	labels() []gpu.Label // of the series
	other() K            // the key of the events for which a tally has no room
}

// A counted is how often the events of one key occurred.
type counted[K key[K]] struct {
	key         K
	count, last int64 // last occurrence in Unix nanoseconds; 0 if never
	labels      []gpu.Label
}

// of returns the counter of a key. In a tally with the given number of keys, new keys share a counter.
func (t *tally[K]) of(key K, most int) *counted[K] {
	at, found := slices.BinarySearchFunc(*t, key, func(c counted[K], key K) int { return c.key.compare(key) })
	if !found {
		if other := key.other(); len(*t) >= most && key.compare(other) != 0 {
			return t.of(other, most)
		}
		*t = slices.Insert(*t, at, counted[K]{key: key, labels: key.labels()})
	}
	return &(*t)[at]
}

// add adds count events, the latest of which happened at the given time. A recorded time after now came from a wrong
// clock and is replaced.
func (c *counted[K]) add(count, at, now int64) {
	c.count += count
	if at > c.last || c.last > now {
		c.last = at
	}
}

// happened reports whether an event was seen, counted or not.
func (c counted[K]) happened() bool { return c.count > 0 || c.last > 0 }

// series appends the number of events of each key, with the labels of their owner.
func (t tally[K]) series(series []gpu.Series, row int, owner []gpu.Label) []gpu.Series {
	for _, c := range t {
		n := gpu.Int(c.count)
		series = append(series, gpu.Series{Row: row, Labels: c.labels, NoOwner: true, Owner: owner, Value: n})
	}
	return series
}

// lastSeen appends the Unix time in seconds of the latest event of each key, with the labels of their owner.
func (t tally[K]) lastSeen(series []gpu.Series, row int, owner []gpu.Label) []gpu.Series {
	for _, c := range t {
		if c.last > 0 {
			at := gpu.Float(float64(c.last) / 1e9)
			series = append(series, gpu.Series{Row: row, Labels: c.labels, NoOwner: true, Owner: owner, Value: at})
		}
	}
	return series
}
