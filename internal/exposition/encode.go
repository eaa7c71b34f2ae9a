package exposition

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// ContentType is the media type of a Page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Options configure the pages of an Encoder. The zero value is a page without a host label.
type Options struct {
	HostLabels   []string // names of the host label; nil means hostname
	Hostname     string   // value of the host label; if empty, pages have none
	EngineHost   bool     // use the host of a remote engine (Topology.Host) instead of Hostname
	OldNamespace bool     // spell UUID, pod, namespace and container as --use-old-namespace does
	// ReplaceBlanksInModelName replaces every run of spaces in modelName with a dash.
	ReplaceBlanksInModelName bool
	NoHealth                 bool                   // leave out the health families
	Without                  func(name string) bool // reports whether to leave out a derived family; nil means no
	// OwnersOnInfo omits owner labels from device series; only the series of owners have them.
	OwnersOnInfo bool
	// AppendFloat formats numbers that are not integers; nil means in the shortest form.
	AppendFloat func(dst []byte, v float64) []byte
	EmptyHelp   bool // write HELP lines without text
	Limit       Limit
	// Trailer, if not nil, appends more families in the text format to each page. Their names must not occur elsewhere
	// on the page.
	Trailer func(dst []byte) []byte
}

// An Encoder renders snapshots as pages. Only one goroutine may call Encode; the other methods are safe for concurrent
// use.
type Encoder struct {
	opts Options
	seed maphash.Seed
	// Scratch.
	seen   map[uint64]struct{} // hashes of the label sets of one family
	list   []family
	byName map[string]*family

	// State of the latest page.
	size      int // in bytes
	isLimited bool
	leftOut   []string // names of the families that the limit left out
	labels    *labels
	loose     map[*gpu.Label]*block

	compressor compressor
	spare      chan []byte // of released pages, for the next ones

	duplicates, dropped atomic.Uint64
	limited             atomic.Pointer[map[string]int] // see LimitedBy; nil if the latest page is complete
}

// NewEncoder returns an Encoder with the given options.
func NewEncoder(opts Options) *Encoder {
	// Two: one page is served while the next is rendered.
	return &Encoder{
		opts: opts, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, byName: map[string]*family{},
		spare: make(chan []byte, 2),
	}
}

// DuplicatesDropped returns how many samples were dropped because their family already had one with the same labels.
func (e *Encoder) DuplicatesDropped() uint64 { return e.duplicates.Load() }

// LabelsDropped returns how many labels were dropped because their series already had a label of that name.
func (e *Encoder) LabelsDropped() uint64 { return e.dropped.Load() }

// Encode renders s as a page, which the caller holds.
//
// The families of the columns come first, in the order of the counters file. Derived families, health families and the
// trailer follow. Within a family, samples are in the order of columns and then of rows. Families without samples are
// left out. If several families have the same name, their samples are merged into the first one.
func (e *Encoder) Encode(s *gpu.Snapshot) *Page {
	e.limited.Store(nil)
	families := e.families(s)
	w := e.write(e.buffer(), s, families, false)
	if e.isLimited = e.exceeds(w.series); e.isLimited {
		w = e.limit(w, s, families, e.opts.Limit.Series)
	} else {
		e.leftOut = nil
	}
	if e.opts.Trailer != nil {
		w.page = e.opts.Trailer(w.page)
		if n := len(w.page); n > 0 && w.page[n-1] != '\n' {
			w.page = append(w.page, '\n')
		}
	}
	e.size, e.loose = len(w.page), w.loose
	e.duplicates.Add(uint64(w.duplicateSamples))
	e.dropped.Add(uint64(w.labels.dropped + w.droppedLabels))
	return newPage(w.page, &e.compressor, e.spare)
}

// buffer returns an empty buffer for a page: that of a released page, if there is one.
func (e *Encoder) buffer() []byte {
	select {
	case b := <-e.spare:
		return b[:0]
	default:
		return make([]byte, 0, e.size+e.size/16)
	}
}

// write renders the families into an empty buffer. If dropOwners is set, it leaves out the owners' own labels and the
// copies of shared entities.
func (e *Encoder) write(page []byte, s *gpu.Snapshot, families []*family, dropOwners bool) *writer {
	w := &writer{encoder: e, s: s, labels: e.labelsOf(s, dropOwners), page: page, loose: map[*gpu.Label]*block{}}
	for _, f := range families {
		w.family(f)
		if most := e.opts.Limit.Series; most > 0 && w.series > most && !dropOwners {
			w.page = w.page[:0] // only the count of series is needed
		}
	}
	return w
}

// A family is one metric family of the page with the sources of its samples.
type family struct {
	name, help string
	typ        gpu.MetricType
	columns    []*gpu.Column
	derived    []*gpu.Family
	health     func(*writer, *family)
	series     int // number of series on the latest page
}

// isSplitByOwner reports whether derived series split the columns, which hold the device's values, by owner.
func (f *family) isSplitByOwner() bool {
	return slices.ContainsFunc(f.derived, func(d *gpu.Family) bool { return d.OwnersOnly })
}

// families returns the families of a snapshot in page order. They are valid until the next call.
func (e *Encoder) families(s *gpu.Snapshot) []*family {
	most := len(s.Columns) + len(s.Families) + len(healthFamilies)
	e.list = slices.Grow(e.list[:0], most)
	list := make([]*family, 0, most)
	clear(e.byName)
	named := func(name, help string, typ gpu.MetricType) *family {
		name = text.MetricName(name)
		f := e.byName[name]
		if f == nil {
			e.list = e.list[:len(e.list)+1]
			f = &e.list[len(e.list)-1]
			*f = family{name: name, help: help, typ: typ, columns: f.columns[:0], derived: f.derived[:0]}
			e.byName[name] = f
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
		}
	}
	if !e.opts.NoHealth {
		for _, h := range healthFamilies {
			named(h.Name, h.HelpLine(), h.Type).health = h.write
		}
	}
	return list
}

// A writer renders one page of an Encoder.
type writer struct {
	encoder *Encoder
	s       *gpu.Snapshot
	labels  *labels
	page    []byte
	series  int // number of series, not counting those of health

	loose        map[*gpu.Label]*block // label blocks of series without an entity, keyed by their first label
	extra, owner []gpu.Label           // scratch

	duplicateSamples, droppedLabels int
}

func (w *writer) family(f *family) {
	start := len(w.page)
	w.header(f)
	body := len(w.page)
	clear(w.encoder.seen)
	f.series = 0
	for _, c := range f.columns {
		w.column(f, c)
	}
	for _, d := range f.derived {
		w.derived(f, d)
	}
	if f.health != nil {
		f.health(w, f)
	} else {
		w.series += f.series
	}
	if len(w.page) == body {
		w.page = w.page[:start]
	}
}

func (w *writer) header(f *family) {
	// Parsers of the text format ignore spaces around a help text.
	if help := strings.Trim(f.help, " \t"); help != "" || w.encoder.opts.EmptyHelp {
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
	// Rows of a column have distinct labels, except when two entities share all labels.
	dst, differ, isSplit := w.page, w.labels.differ && len(f.columns) == 1 && len(f.derived) == 0, f.isSplitByOwner()
	for row := range min(len(c.Values), len(w.labels.rows)) {
		v := c.Values[row]
		if v.IsAbsent() || v.IsText() {
			continue
		}
		blocks := w.labels.rows[row].blocks(isSplit)
		for i := range blocks {
			if b := &blocks[i]; differ || w.isNew(b.hash) {
				dst = w.sample(dst, f, b, v)
			}
		}
	}
	w.page = dst
}

// sample appends a sample with the labels of b.
func (w *writer) sample(dst []byte, f *family, b *block, v gpu.Value) []byte {
	dst = append(dst, f.name...)
	dst = append(dst, b.text...)
	return w.value(f, dst, v)
}

// once appends a sample with the labels of b, unless the family already has a sample with the same labels.
func (w *writer) once(f *family, b *block, v gpu.Value) {
	if w.isNew(b.hash) {
		w.page = w.sample(w.page, f, b, v)
	}
}

// isNew reports whether the family has no sample yet with the given hash of its labels, and records the hash. The hash
// is a sum of seeded 64-bit hashes, so that the order of labels does not matter. The probability of a collision within
// a family is samples² / 2⁶⁵.
func (w *writer) isNew(hash uint64) bool {
	seen := w.encoder.seen
	n := len(seen)
	seen[hash] = struct{}{}
	if len(seen) == n {
		w.duplicateSamples++
		return false
	}
	return true
}

// value appends the number and ends the line of the sample.
func (w *writer) value(f *family, dst []byte, v gpu.Value) []byte {
	f.series++
	if _, ok := v.Int64(); ok || w.encoder.opts.AppendFloat == nil {
		dst = appendNumber(dst, v)
	} else {
		n, _ := v.Number()
		dst = w.encoder.opts.AppendFloat(dst, n)
	}
	return append(dst, '\n')
}

func (w *writer) derived(f *family, d *gpu.Family) {
	for i := range d.Series {
		sr := &d.Series[i]
		if sr.Value.IsAbsent() || sr.Value.IsText() || sr.Row >= len(w.labels.rows) {
			continue
		}
		switch {
		case sr.Row == gpu.AllRows && d.OfNode:
			w.once(f, w.looseBlock(w.labels.host(slices.Clone(sr.Labels))), sr.Value)
		case sr.Row == gpu.AllRows:
			w.once(f, w.looseBlock(sr.Labels), sr.Value)
		case sr.NoOwner:
			w.extended(f, &w.labels.rows[sr.Row].noOwner, w.owned(sr), sr.Value)
		default:
			for _, b := range w.labels.rows[sr.Row].blocks(false) {
				w.extended(f, &b, sr.Labels, sr.Value)
			}
		}
	}
}

// looseBlock renders the labels of a series without an entity. Series with the same slice, such as those of one owner,
// share the result. The next page reuses it.
func (w *writer) looseBlock(list []gpu.Label) *block {
	if len(list) == 0 {
		return &block{text: []byte{' '}}
	}
	first := &list[0]
	b := cmp.Or(w.loose[first], w.encoder.loose[first])
	if b == nil || b.labels != len(list) {
		rendered := newBlock(w.encoder.seed, w.valid(&block{}, list), 0)
		b = &rendered
		b.labels = len(list)
	}
	w.loose[first] = b
	return b
}

// owned returns the labels of a series other than those of its entity: the owner's, with the names of this page, and
// its own. The result is valid until the next call.
func (w *writer) owned(sr *gpu.Series) []gpu.Label {
	if len(sr.Owner) == 0 {
		return sr.Labels
	}
	w.owner = w.owner[:0]
	for _, label := range sr.Owner {
		if !w.labels.isDropped(label.Name) {
			w.owner = append(w.owner, gpu.Label{Name: w.encoder.opts.name(label.Name), Value: label.Value})
		}
	}
	w.owner = append(w.owner, sr.Labels...)
	return w.owner
}

// extended appends a sample with the labels of a block and extra ones, unless the family already has one with the same
// labels. If the block and extra have a label of the same name, the block's wins if it identifies the entity, and
// extra's otherwise.
func (w *writer) extended(f *family, b *block, extra []gpu.Label, v gpu.Value) {
	dst := append(w.page, f.name...)
	open := len(dst)
	extra = w.valid(b, extra)
	var hash uint64
	for i := range b.spans {
		sp := &b.spans[i]
		if has(extra, sp.name) {
			w.droppedLabels++
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
		hash += maphash.Bytes(w.encoder.seed, dst[at:])
	}
	if !w.isNew(hash) {
		return
	}
	if len(dst) > open {
		dst[open] = '{'
		dst = append(dst, '}')
	}
	w.page = w.value(f, append(dst, ' '), v)
}

// valid returns the extra labels that a series with block b may have, with valid names. The result is valid until the
// next call.
func (w *writer) valid(b *block, extra []gpu.Label) []gpu.Label {
	w.extra = w.extra[:0]
	for _, l := range extra {
		if l.Value == "" {
			continue
		}
		l.Name = text.LabelName(l.Name)
		taken := has(w.extra, l.Name)
		for i := range b.spans {
			taken = taken || b.spans[i].identity && b.spans[i].name == l.Name
		}
		if taken {
			w.droppedLabels++
			continue
		}
		w.extra = append(w.extra, l)
	}
	return w.extra
}
