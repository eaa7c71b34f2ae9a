// Package exposition renders a gpu.Snapshot as a page in the Prometheus text format 0.0.4. It does so once per
// collection cycle, so a scrape only writes bytes.
//
// An Encoder belongs to the goroutine of the collector. It renders the labels of an entity only when they change, and
// otherwise copies them and appends numbers. Pages hands the current Page to any number of readers. A Page does not
// change until every reader has released it; then the Encoder may write a later page over it.
//
// No label can break a page: values are escaped, names are made valid, and if two samples have equal labels, the second
// one is dropped and counted. The package reads no device. It computes only the families about the collection's health.
package exposition

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

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
	Trailer    func(dst []byte) []byte
	Registerer prometheus.Registerer // for the metrics about pages; may be nil
}

// An Encoder renders snapshots as pages. Only one goroutine may use it.
type Encoder struct {
	opts Options
	seed maphash.Seed
	// Scratch.
	seen   map[uint64]struct{} // hashes of the label sets of one family
	list   []family
	byName map[string]*family

	// State of the latest page.
	size    int // size in bytes
	labels  *labels
	loose   map[*gpu.Label]*block
	limiter limiter

	spare               chan []byte // buffers of released pages, for the next pages
	duplicates, dropped prometheus.Counter
}

// NewEncoder returns an Encoder with the given options.
func NewEncoder(opts Options) *Encoder {
	if opts.HostLabels == nil {
		opts.HostLabels = []string{"hostname"}
	}
	metrics := promauto.With(opts.Registerer)
	limited := metrics.NewGaugeVec(prometheus.GaugeOpts{
		Name: "dcgm_exporter_max_series_dropped",
		Help: "Pod labels and series that the latest page omits because of --max-series, by kind.",
	}, []string{"reason"})
	return &Encoder{
		opts: opts, seed: maphash.MakeSeed(), seen: map[uint64]struct{}{}, byName: map[string]*family{},
		spare: make(chan []byte, 2), // one page is served while the next is rendered
		limiter: limiter{
			Limit:  opts.Limit,
			labels: limited.WithLabelValues("pod_labels"), copies: limited.WithLabelValues("copies"),
			families: limited.WithLabelValues("families"),
		},
		duplicates: metrics.NewCounter(prometheus.CounterOpts{
			Name: "dcgm_exporter_duplicate_samples_dropped_total",
			Help: "Samples dropped because their family already had one with the same labels.",
		}),
		dropped: metrics.NewCounter(prometheus.CounterOpts{
			Name: "dcgm_exporter_labels_dropped_total",
			Help: "Labels dropped because their series already had a label of that name.",
		}),
	}
}

// Encode renders s as a page, which the caller holds.
//
// The families of the columns come first, in the order of the counters file. Derived families, health families and the
// trailer follow. Within a family, samples are in the order of columns and then of rows. Families without samples are
// left out. If several families have the same name, their samples are merged into the first one.
func (e *Encoder) Encode(s *gpu.Snapshot) *Page {
	var page []byte
	select {
	case page = <-e.spare:
	default:
		page = make([]byte, 0, e.size+e.size/16)
	}
	families := e.families(s)
	w := e.limit(e.write(page[:0], s, families, false), s, families)
	page = w.page
	if e.opts.Trailer != nil {
		page = e.opts.Trailer(page)
		if n := len(page); n > 0 && page[n-1] != '\n' {
			page = append(page, '\n')
		}
	}
	e.size, e.loose = len(page), w.loose
	e.duplicates.Add(float64(w.duplicateSamples))
	e.dropped.Add(float64(w.labels.dropped + w.droppedLabels))
	return (&Page{body: page, spare: e.spare}).Hold()
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
	split      bool // derived series split the columns, which hold the device's values, by owner
	health     func(*writer, *family)
	series     int // number of series on the latest page
}

// families returns the families of a snapshot in page order. They are valid until the next call.
func (e *Encoder) families(s *gpu.Snapshot) []*family {
	most := len(s.Columns) + len(s.Families) + len(healthFamilies)
	e.list = slices.Grow(e.list[:0], most) // so that pointers to its elements stay valid
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
			f.split = f.split || d.OwnersOnly
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
	write := func(texts ...string) {
		for _, t := range texts {
			w.page = append(w.page, t...)
		}
	}
	// Parsers of the text format ignore spaces around a help text.
	if help := strings.Trim(f.help, " \t"); help != "" || w.encoder.opts.EmptyHelp {
		write("# HELP ", f.name, " ")
		w.page = appendEscaped(w.page, help, helpEscapes)
		write("\n")
	}
	write("# TYPE ", f.name, " ", f.typ.String(), "\n")
}

func (w *writer) column(f *family, c *gpu.Column) {
	// Rows of a column have distinct labels, except when two entities share all labels.
	differ := w.labels.differ && len(f.columns) == 1 && len(f.derived) == 0
	for row := range min(len(c.Values), len(w.labels.rows)) {
		v := c.Values[row]
		if v.IsAbsent() || v.IsText() {
			continue
		}
		blocks := w.labels.rows[row].copies
		if f.split {
			blocks = w.labels.rows[row].own
		}
		for i := range blocks {
			if differ {
				w.sample(f, &blocks[i], v)
			} else {
				w.once(f, &blocks[i], v)
			}
		}
	}
}

// once appends a sample with the labels of b, unless the family already has a sample with the same labels.
func (w *writer) once(f *family, b *block, v gpu.Value) {
	if w.isNew(b.hash) {
		w.sample(f, b, v)
	}
}

// sample appends a sample with the labels of b.
func (w *writer) sample(f *family, b *block, v gpu.Value) {
	w.page = w.value(f, append(append(w.page, f.name...), b.text...), v)
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
			copies := w.labels.rows[sr.Row].copies
			for i := range copies {
				w.extended(f, &copies[i], sr.Labels, sr.Value)
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
