package exposition

import (
	"hash/maphash"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// fixedBlocks keeps the rendered labels of series whose labels are fixed, by
// the slice that holds them: the key keeps it from being used again.
type fixedBlocks struct {
	blocks map[*gpu.Label]fixedBlock
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

// appendFixed is appendExtended for a series of no entity with fixed labels.
func (e *Encoder) appendFixed(dst []byte, f *family, sr *gpu.Series) []byte {
	key := &sr.Labels[0]
	b, ok := e.fixed.blocks[key]
	if !ok || b.labels != len(sr.Labels) {
		b = e.renderFixed(sr.Labels)
		if e.fixed.blocks == nil {
			e.fixed.blocks = map[*gpu.Label]fixedBlock{}
		}
		e.fixed.blocks[key] = b
	}
	e.fixed.used++
	e.labels.dropped += b.dropped
	if !e.seen.add(b.hash) {
		e.duplicates.Add(1)
		return dst
	}
	dst = append(dst, f.name...)
	dst = append(dst, b.text...)
	dst = appendNumber(dst, sr.Value)
	return append(dst, '\n')
}

func (e *Encoder) renderFixed(labels []gpu.Label) fixedBlock {
	before := e.labels.dropped
	b := fixedBlock{labels: len(labels)}
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
