package exposition

import (
	"bytes"
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// ContentType is the media type of a Page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Options are what a user can choose about a page. The zero value is a page without a host label.
type Options struct {
	// Hostname is the value of the host label; empty leaves it out.
	Hostname string
	// EngineHost puts the host of a remote engine (Topology.Host), where there is one, in the place of
	// Hostname.
	EngineHost bool
	// HostnameLabel is the name of the host label.
	HostnameLabel gpu.HostnameLabel
	// OldNamespace spells UUID, pod, namespace and container as the reference does with
	// --use-old-namespace.
	OldNamespace bool
	// ReplaceBlanksInModelName puts a dash for every run of blanks in modelName.
	ReplaceBlanksInModelName bool
	// NoHealth leaves the health families out.
	NoHealth bool
	// Without, where set, reports which derived families are left out, by name.
	Without func(name string) bool
	// JobCopies repeats every series of an entity that several HPC jobs share for each of them, as
	// dcgm-exporter does. Without it such series carry no job.
	JobCopies bool
	// VirtualGPUs repeats every series of a shared entity for each replica that a pod has, as
	// dcgm-exporter does under --kubernetes-virtual-gpus.
	VirtualGPUs bool
	// Limit bounds the page.
	Limit Limit
	// Strict writes the page as dcgm-exporter does, where this project would not: see Strict.
	Strict Strict
	// Trailer, where set, appends further families in the text format, whose names occur nowhere else
	// on the page. It is called once per page.
	Trailer func(dst []byte) []byte
}

// Strict says which of dcgm-exporter's habits a page keeps. The zero value keeps none.
type Strict struct {
	// On spells floats with six decimals, repeats the values of a GPU for each of its MIG instances,
	// labels a shared entity with one of its owners, and shows HELP without a text.
	On bool
	// HidePartitioned leaves out the series of GPUs that are partitioned by MIG, HideGPUs those of all
	// GPUs. Health and peer states stay.
	HidePartitioned, HideGPUs bool
}

// An Encoder writes snapshots as pages. Encode is for one goroutine; everything else is for any.
type Encoder struct {
	opts Options
	seed maphash.Seed
	seen map[uint64]struct{}

	// Working memory, which no page shares.
	page  []byte
	text  []byte
	spans []span

	duplicates, dropped atomic.Uint64
	limited             [3]atomic.Int64 // of the latest page, by step
}

// NewEncoder returns an Encoder.
func NewEncoder(opts Options) *Encoder {
	return &Encoder{opts: opts, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}}
}

// DuplicatesDropped returns how many samples were left out so far because their family already had
// one with the same labels.
func (e *Encoder) DuplicatesDropped() uint64 { return e.duplicates.Load() }

// LabelsDropped returns how many labels were left out so far because the series already had one of
// that name.
func (e *Encoder) LabelsDropped() uint64 { return e.dropped.Load() }

// Encode returns s as a page. It keeps nothing of s.
//
// The order is total: first the families of the columns in their order (that of the counters file),
// then the derived ones in theirs, then the health families, then the trailer; within a family
// column by column, and the rows of a column in the order of the topology. Families without samples
// are left out. Sources of one family name are merged where the first of them stands.
func (e *Encoder) Encode(s *gpu.Snapshot) *Page {
	w := &writer{Encoder: e, s: s, page: e.page[:0], loose: map[*gpu.Label]*block{}}
	w.labels = newLabels(e, s, false)
	for _, f := range w.limit(e.families(s)) {
		w.family(f)
	}
	if e.opts.Trailer != nil {
		w.page = e.opts.Trailer(w.page)
		if n := len(w.page); n > 0 && w.page[n-1] != '\n' {
			w.page = append(w.page, '\n')
		}
	}
	e.page, e.text, e.spans = w.page, w.labels.text, w.labels.spans
	e.dropped.Add(uint64(w.labels.dropped + w.dropped))
	return NewPage(bytes.Clone(w.page))
}

// A family is one metric family of the page and where its samples come from.
type family struct {
	name, help string
	typ        gpu.MetricType
	columns    []*gpu.Column
	derived    []*gpu.Family
	health     func(*writer, *family)
	parted     bool // owners have parts of their own, and the columns are the device's
}

// families returns the families of a snapshot in the order of the page.
func (e *Encoder) families(s *gpu.Snapshot) []*family {
	list := make([]*family, 0, len(s.Columns)+len(s.Families)+3)
	byName := make(map[string]*family, cap(list))
	named := func(name, help string, typ gpu.MetricType) *family {
		name = text.MetricName(name)
		f := byName[name]
		if f == nil {
			f = &family{name: name, help: help, typ: typ}
			byName[name] = f
			list = append(list, f)
		}
		return f
	}
	for i := range s.Columns {
		if c := s.Columns[i].Counter; c.Type != gpu.MetricLabel {
			f := named(c.Name, c.Help, c.Type)
			f.columns = append(f.columns, &s.Columns[i])
		}
	}
	for i := range s.Families {
		d := &s.Families[i]
		if e.opts.Without == nil || !e.opts.Without(d.Name) {
			f := named(d.Name, d.Help, d.Type)
			f.derived = append(f.derived, d)
			f.parted = f.parted || d.OwnersOnly
		}
	}
	if !e.opts.NoHealth {
		for _, h := range healthFamilies {
			named(h.name, h.help, gpu.MetricGauge).health = h.write
		}
	}
	return list
}

// A writer writes one page.
type writer struct {
	*Encoder
	s       *gpu.Snapshot
	labels  *labels
	page    []byte
	loose   map[*gpu.Label]*block // labels of series without an entity, by the slice that has them
	extra   []gpu.Label           // scratch
	dropped int                   // labels
}

func (w *writer) family(f *family) {
	start := len(w.page)
	w.header(f)
	body := len(w.page)
	clear(w.seen)
	for _, c := range f.columns {
		w.column(f, c)
	}
	for _, d := range f.derived {
		w.derived(f, d)
	}
	if f.health != nil {
		f.health(w, f)
	}
	if len(w.page) == body {
		w.page = w.page[:start]
	}
}

func (w *writer) header(f *family) {
	// Blanks around a help text are no part of it for those who read the page.
	if help := strings.Trim(f.help, " \t"); help != "" || w.opts.Strict.On {
		w.page = append(w.page, "# HELP "...)
		w.page = append(w.page, f.name...)
		w.page = append(w.page, ' ')
		w.page = appendText(w.page, help, false)
		w.page = append(w.page, '\n')
	}
	w.page = append(w.page, "# TYPE "...)
	w.page = append(w.page, f.name...)
	w.page = append(w.page, ' ')
	w.page = append(w.page, f.typ.String()...)
	w.page = append(w.page, '\n')
}

func (w *writer) column(f *family, c *gpu.Column) {
	// Rows of one column differ, unless entities do not.
	dst, differ := w.page, w.labels.differ && len(f.columns) == 1 && len(f.derived) == 0
	for row := range min(len(c.Values), len(w.labels.rows)) {
		v := w.shown(c, row)
		if v.IsAbsent() || v.IsText() {
			continue
		}
		blocks := w.labels.rows[row].blocks(f.parted)
		for i := range blocks {
			if b := &blocks[i]; differ || w.isNew(b.hash) {
				dst = w.sample(dst, f, b, v)
			}
		}
	}
	w.page = dst
}

// shown returns the value that a page shows for a row of a column: its own, and under Strict for an
// instance without one that of its GPU.
func (w *writer) shown(c *gpu.Column, row int) gpu.Value {
	v := c.Values[row]
	if !w.opts.Strict.On {
		return v
	}
	r := &w.labels.rows[row]
	switch {
	case r.hidden:
		return gpu.Value{}
	case v.IsAbsent() && c.Counter.OfGPUs && r.whole >= 0 && r.whole < len(c.Values):
		return c.Values[r.whole]
	default:
		return v
	}
}

// sample appends a sample with the labels of a block.
func (w *writer) sample(dst []byte, f *family, b *block, v gpu.Value) []byte {
	dst = append(dst, f.name...)
	dst = append(dst, b.text...)
	return w.value(dst, v)
}

// once appends a sample with the labels of a block, unless the family has one with the same labels.
func (w *writer) once(f *family, b *block, v gpu.Value) {
	if w.isNew(b.hash) {
		w.page = w.sample(w.page, f, b, v)
	}
}

// isNew reports whether the family has no sample yet with a set of labels, and counts those that it
// has. The hash of a set is the sum of the seeded 64-bit hashes of its labels, so that it does not
// depend on their order: two sets of one family collide with a probability of samples² / 2⁶⁵.
func (w *writer) isNew(hash uint64) bool {
	n := len(w.seen)
	w.seen[hash] = struct{}{}
	if len(w.seen) == n {
		w.duplicates.Add(1)
		return false
	}
	return true
}

// value appends a number as the page spells it, and ends the line. dcgm-exporter formats what the
// engine calls a double with %f (gpu_collector.go, toString).
func (w *writer) value(dst []byte, v gpu.Value) []byte {
	if _, ok := v.Int64(); ok || !w.opts.Strict.On {
		dst = appendNumber(dst, v)
	} else {
		f, _ := v.Number()
		dst = strconv.AppendFloat(dst, f, 'f', 6, 64)
	}
	return append(dst, '\n')
}

func (w *writer) derived(f *family, d *gpu.Family) {
	for i := range d.Series {
		sr := &d.Series[i]
		if sr.Value.IsAbsent() || sr.Value.IsText() || sr.Row < gpu.AllRows || sr.Row >= len(w.labels.rows) {
			continue
		}
		switch {
		case sr.Row == gpu.AllRows:
			w.once(f, w.looseBlock(sr.Labels), sr.Value)
		case sr.NoOwner:
			w.extended(f, &w.labels.rows[sr.Row].noOwner, w.labels.owned(sr), sr.Value)
		case d.OfGPUs:
			w.ofGPU(f, sr)
		default:
			w.entity(f, sr.Row, sr)
		}
	}
}

// looseBlock renders the labels of a series without an entity. Families that share them, such as
// those of one owner, have them rendered once.
func (w *writer) looseBlock(list []gpu.Label) *block {
	if len(list) == 0 {
		return &block{text: []byte{' '}}
	}
	b := w.loose[&list[0]]
	if b == nil || b.labels != len(list) {
		rendered := w.labels.block(w.valid(&block{}, list), 0)
		b = &rendered
		b.labels = len(list)
		w.loose[&list[0]] = b
	}
	return b
}

// entity appends a series for each set of labels that an entity has.
func (w *writer) entity(f *family, row int, sr *gpu.Series) {
	for _, b := range w.labels.rows[row].blocks(false) {
		w.extended(f, &b, sr.Labels, sr.Value)
	}
}

// ofGPU appends a series of a GPU where that is shown, and under Strict for each of its instances,
// as dcgm-exporter does (expCollector.getMetrics), but for those that its labels say are not meant.
func (w *writer) ofGPU(f *family, sr *gpu.Series) {
	r := &w.labels.rows[sr.Row]
	if !r.hidden {
		w.entity(f, sr.Row, sr)
	}
	for _, row := range r.instances {
		if !w.labels.rows[row].block[0].contradicts(sr.Labels) {
			w.entity(f, row, sr)
		}
	}
}

// extended appends a sample with labels beyond those of its block, unless the family has one with
// the same labels. A label of the block that identifies the entity wins over a new one of that name;
// every other makes way for it.
func (w *writer) extended(f *family, b *block, extra []gpu.Label, v gpu.Value) {
	dst := append(w.page, f.name...)
	open := len(dst)
	extra = w.valid(b, extra)
	var hash uint64
	for i := range b.spans {
		sp := &b.spans[i]
		if has(extra, sp.name) {
			w.dropped++
			continue
		}
		dst = append(dst, ',')
		dst = append(dst, b.text[sp.start:sp.end]...)
		hash += sp.hash
	}
	for _, l := range extra {
		dst = append(dst, ',')
		at := len(dst)
		dst = appendLabel(dst, l.Name, l.Value)
		hash += maphash.Bytes(w.seed, dst[at:])
	}
	if !w.isNew(hash) {
		return
	}
	if len(dst) > open {
		dst[open] = '{'
		dst = append(dst, '}')
	}
	w.page = w.value(append(dst, ' '), v)
}

// valid returns those of extra that a series with block b may carry, with valid names. The result
// lives until the next call.
func (w *writer) valid(b *block, extra []gpu.Label) []gpu.Label {
	w.extra = w.extra[:0]
next:
	for _, l := range extra {
		if l.Value == "" {
			continue
		}
		l.Name = text.LabelName(l.Name)
		for i := range b.spans {
			if b.spans[i].identity && b.spans[i].name == l.Name {
				w.dropped++
				continue next
			}
		}
		if has(w.extra, l.Name) {
			w.dropped++
			continue
		}
		w.extra = append(w.extra, l)
	}
	return w.extra
}

func has(labels []gpu.Label, name string) bool {
	for i := range labels {
		if labels[i].Name == name {
			return true
		}
	}
	return false
}
