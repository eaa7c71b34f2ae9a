package exposition

import (
	"hash/maphash"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// labelCache keeps the rendered labels of series whose labels are fixed, by the slice that has
// them: the key keeps it from being used again.
type labelCache struct {
	blocks map[*gpu.Label]*cachedLabels
	used   int // since the last page ended
}

type cachedLabels struct {
	labels  int
	text    []byte // from the brace to the blank before the value
	hash    uint64
	dropped int
}

// trim ends a page: where most of what is kept was not on it, all of it goes.
func (x *labelCache) trim() {
	if len(x.blocks) > 2*x.used+1024 {
		clear(x.blocks)
	}
	x.used = 0
}

// A cachedSeries is what a family was made of on the last page, if that was fixed series alone and
// no two of them had equal labels. As long as a page has the same ones in the same order, there is
// no need to look for their labels again, nor for duplicates.
type cachedSeries struct {
	items []cachedItem
	text  []byte // of all, each up to its value: read from front to end
}

type cachedItem struct {
	key     *gpu.Label
	labels  int
	end     int // in text
	dropped int
}

func (l *cachedSeries) clear() { l.items, l.text = l.items[:0], l.text[:0] }

// isFixed reports whether the labels of a series are fixed, and all it has.
func isFixed(sr *gpu.Series) bool {
	return sr.Fixed && sr.Row == gpu.AllRows && len(sr.Labels) > 0
}

// same reports whether series are those of the list, and fills it with them if they are not and a
// list can hold them.
func (e *Encoder) same(l *cachedSeries, name string, series []gpu.Series) bool {
	if len(series) == len(l.items) {
		i := 0
		for i < len(series) && isFixed(&series[i]) && &series[i].Labels[0] == l.items[i].key && len(series[i].Labels) == l.items[i].labels {
			i++
		}
		if i == len(series) {
			return i > 0
		}
	}
	l.clear()
	e.seen.reset()
	for i := range series {
		sr := &series[i]
		if !isFixed(sr) {
			l.clear()
			break
		}
		b := e.cached(sr.Labels)
		if !e.seen.add(b.hash) {
			l.clear()
			break
		}
		l.text = append(append(l.text, name...), b.text...)
		l.items = append(l.items, cachedItem{key: &sr.Labels[0], labels: len(sr.Labels), end: len(l.text), dropped: b.dropped})
	}
	e.seen.reset()
	return len(l.items) > 0
}

// appendList appends the series of a list.
func (e *Encoder) appendList(dst []byte, l *cachedSeries, series []gpu.Series) []byte {
	e.cache.used += len(series)
	start := 0
	for i := range l.items {
		item := &l.items[i]
		if v := series[i].Value; !v.IsAbsent() && !v.IsText() {
			dst = append(dst, l.text[start:item.end]...)
			dst = appendNumber(dst, v)
			dst = append(dst, '\n')
			e.labels.dropped += item.dropped
		}
		start = item.end
	}
	return dst
}

// appendOneCached is appendExtended for a series of no entity with fixed labels.
func (e *Encoder) appendOneCached(dst []byte, f *family, sr *gpu.Series) []byte {
	b := e.cached(sr.Labels)
	e.cache.used++
	e.labels.dropped += b.dropped
	if !e.seen.add(b.hash) {
		e.duplicates.Add(1)
		return dst
	}
	return appendCached(dst, f, b, sr.Value)
}

func appendCached(dst []byte, f *family, b *cachedLabels, v gpu.Value) []byte {
	dst = append(dst, f.name...)
	dst = append(dst, b.text...)
	dst = appendNumber(dst, v)
	return append(dst, '\n')
}

// cached returns the rendered labels, from those that are kept if it can.
func (e *Encoder) cached(labels []gpu.Label) *cachedLabels {
	b, ok := e.cache.blocks[&labels[0]]
	if !ok || b.labels != len(labels) {
		b = e.render(labels)
		if e.cache.blocks == nil {
			e.cache.blocks = map[*gpu.Label]*cachedLabels{}
		}
		e.cache.blocks[&labels[0]] = b
	}
	return b
}

func (e *Encoder) render(labels []gpu.Label) *cachedLabels {
	before := e.labels.dropped
	b := &cachedLabels{labels: len(labels)}
	for i, l := range e.validLabels(&block{}, labels) {
		b.text = append(b.text, "{,"[min(i, 1)])
		at := len(b.text)
		b.text = appendLabel(b.text, l.Name, l.Value)
		b.hash += maphash.Bytes(e.labels.seed, b.text[at:])
	}
	if len(b.text) > 0 {
		b.text = append(b.text, '}')
	}
	b.text = slices.Clip(append(b.text, ' '))
	b.dropped, e.labels.dropped = e.labels.dropped-before, before
	return b
}
