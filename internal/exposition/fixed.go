package exposition

import (
	"hash/maphash"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// fixedBlocks keeps the rendered labels of series whose labels are fixed, by
// the slice that holds them: the key keeps it from being used again.
type fixedBlocks struct {
	blocks map[*gpu.Label]*fixedBlock
	used   int // since the last page ended
}

type fixedBlock struct {
	labels  int
	text    []byte // from the brace to the blank before the value
	hash    uint64
	dropped int
}

// settle ends a page: where most of what is kept was not on it, all of it goes.
func (x *fixedBlocks) settle() {
	if len(x.blocks) > 2*x.used+1024 {
		clear(x.blocks)
	}
	x.used = 0
}

// A fixedList is what a family was made of on the last page, if that was fixed
// series alone and no two of them had equal labels. As long as a page has the
// same ones in the same order, nobody needs to look for their labels again,
// nor for duplicates.
type fixedList struct {
	items []fixedItem
	text  []byte // of all, each up to its value: read from front to end
}

type fixedItem struct {
	key     *gpu.Label
	labels  int
	end     int // in text
	dropped int
}

func (l *fixedList) clear() { l.items, l.text = l.items[:0], l.text[:0] }

// isFixed reports whether the labels of a series are fixed, and all it has.
func isFixed(sr *gpu.Series) bool {
	return sr.Fixed && sr.Row == gpu.AllRows && len(sr.Labels) > 0
}

// same reports whether series are those of the list, and fills it with them if
// they are not and a list can hold them.
func (e *Encoder) same(l *fixedList, name string, series []gpu.Series) bool {
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
		b := e.fixedBlock(sr.Labels)
		if !e.seen.add(b.hash) {
			l.clear()
			break
		}
		l.text = append(append(l.text, name...), b.text...)
		l.items = append(l.items, fixedItem{key: &sr.Labels[0], labels: len(sr.Labels), end: len(l.text), dropped: b.dropped})
	}
	e.seen.reset()
	return len(l.items) > 0
}

// appendList appends the series of a list.
func (e *Encoder) appendList(dst []byte, l *fixedList, series []gpu.Series) []byte {
	e.fixed.used += len(series)
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

// appendOneFixed is appendExtended for a series of no entity with fixed labels.
func (e *Encoder) appendOneFixed(dst []byte, f *family, sr *gpu.Series) []byte {
	b := e.fixedBlock(sr.Labels)
	e.fixed.used++
	e.labels.dropped += b.dropped
	if !e.seen.add(b.hash) {
		e.duplicates.Add(1)
		return dst
	}
	return appendFixed(dst, f, b, sr.Value)
}

func appendFixed(dst []byte, f *family, b *fixedBlock, v gpu.Value) []byte {
	dst = append(dst, f.name...)
	dst = append(dst, b.text...)
	dst = appendNumber(dst, v)
	return append(dst, '\n')
}

// fixedBlock returns the rendered labels, from those that are kept if it can.
func (e *Encoder) fixedBlock(labels []gpu.Label) *fixedBlock {
	b, ok := e.fixed.blocks[&labels[0]]
	if !ok || b.labels != len(labels) {
		b = e.renderFixed(labels)
		if e.fixed.blocks == nil {
			e.fixed.blocks = map[*gpu.Label]*fixedBlock{}
		}
		e.fixed.blocks[&labels[0]] = b
	}
	return b
}

func (e *Encoder) renderFixed(labels []gpu.Label) *fixedBlock {
	before := e.labels.dropped
	b := &fixedBlock{labels: len(labels)}
	for i, l := range e.admit(&block{}, labels) {
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
