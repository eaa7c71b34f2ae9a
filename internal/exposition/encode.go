package exposition

import (
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

// An Encoder writes snapshots as pages. Owners of one Topology are distinguished by their
// generation, so another attributor comes with a new Topology or a new Encoder. Encode is for one
// goroutine; everything else is for any.
type Encoder struct {
	labels  labeler
	opts    Options
	trailer func([]byte) []byte
	pages   *pool

	families []family
	columns  []*gpu.Counter // what families was planned for
	derived  []gpu.Family   // likewise, without the series
	seen     labelSets
	cache    labelCache
	extra    []gpu.Label
	owner    []gpu.Label

	duplicates, dropped atomic.Uint64
}

// A family is one metric family of the page and where its samples come from.
type family struct {
	name    string
	header  string // its HELP and TYPE lines
	columns []source
	derived []int // indexes of Snapshot.Families
	health  healthFamily
	cached  cachedSeries // of the only entry of derived, if there is nothing else
	parted  bool         // owners have parts of their own, and the columns are the device's
}

// A source is a column that a family shows.
type source struct {
	column int  // index of Snapshot.Columns
	whole  bool // they are of whole GPUs, and no instance has one of its own
}

// NewEncoder returns an Encoder.
func NewEncoder(opts Options) *Encoder {
	return &Encoder{
		labels:  labeler{opts: opts, seed: maphash.MakeSeed()},
		opts:    opts,
		trailer: opts.Trailer,
		pages:   &pool{},
	}
}

// DuplicatesDropped returns how many samples were left out so far because their family already had
// one with the same labels.
func (e *Encoder) DuplicatesDropped() uint64 { return e.duplicates.Load() }

// LabelsDropped returns how many labels were left out so far because the series already had one of
// that name.
func (e *Encoder) LabelsDropped() uint64 { return e.dropped.Load() }

// Encode writes s as a page; the caller has the only reference to it. It keeps nothing of s but its
// topology and the counters of its columns.
//
// The order is total: first the families of the columns in their order (that of the counters file),
// then the derived ones in theirs, then the health families, then the trailer; within a family
// column by column, and the rows of a column in the order of the topology. Families without samples
// are left out. Sources of one family name are merged where the first of them stands.
func (e *Encoder) Encode(s *gpu.Snapshot) *Page {
	if !e.planned(s) {
		e.plan(s)
	}
	e.labels.update(s)
	p := e.pages.take()
	dst := p.body
	for i := range e.families {
		dst = e.appendFamily(dst, s, &e.families[i])
	}
	if e.trailer != nil {
		dst = e.trailer(dst)
		if n := len(dst); n > 0 && dst[n-1] != '\n' {
			dst = append(dst, '\n')
		}
	}
	p.body = dst
	e.cache.trim()
	e.dropped.Add(uint64(e.labels.dropped))
	e.labels.dropped = 0
	return p
}

// planned reports whether s has the columns and families of the last one.
func (e *Encoder) planned(s *gpu.Snapshot) bool {
	if e.families == nil || len(s.Columns) != len(e.columns) || len(s.Families) != len(e.derived) {
		return false
	}
	for i := range s.Columns {
		if s.Columns[i].Counter != e.columns[i] {
			return false
		}
	}
	for i := range s.Families {
		a, b := &s.Families[i], &e.derived[i]
		if a.Name != b.Name || a.Type != b.Type || a.Help != b.Help || a.OwnersOnly != b.OwnersOnly {
			return false
		}
	}
	return true
}

func (e *Encoder) plan(s *gpu.Snapshot) {
	e.families, e.columns, e.derived = []family{}, nil, nil
	byName := map[string]int{}
	named := func(name, help string, typ gpu.MetricType) *family {
		name = text.MetricName(name)
		i, ok := byName[name]
		if !ok {
			i = len(e.families)
			byName[name] = i
			e.families = append(e.families, family{name: name, header: header(name, help, typ, e.opts.Strict.On)})
		}
		return &e.families[i]
	}
	for i := range s.Columns {
		c := s.Columns[i].Counter
		e.columns = append(e.columns, c)
		if c.Type != gpu.MetricLabel {
			f := named(c.Name, c.Help, c.Type)
			f.columns = append(f.columns, source{column: i, whole: isWhole(c.Name)})
		}
	}
	for i := range s.Families {
		d := s.Families[i]
		d.Series = nil
		e.derived = append(e.derived, d)
		if e.opts.Without != nil && e.opts.Without(d.Name) {
			continue
		}
		f := named(d.Name, d.Help, d.Type)
		f.derived = append(f.derived, i)
		f.parted = f.parted || d.OwnersOnly
	}
	for _, h := range healthFamilies() {
		if e.opts.NoHealth {
			break
		}
		named(h.name, h.help, gpu.MetricGauge).health = h.append
	}
	e.labels.plan(s)
}

func header(name, help string, typ gpu.MetricType, always bool) string {
	var b []byte
	// Blanks around a help text are no part of it for those who read the page.
	if help = strings.Trim(help, " \t"); help != "" || always {
		b = append(b, "# HELP "...)
		b = append(b, name...)
		b = append(b, ' ')
		b = appendText(b, help, false)
		b = append(b, '\n')
	}
	b = append(b, "# TYPE "...)
	b = append(b, name...)
	b = append(b, ' ')
	b = append(b, typ.String()...)
	return string(append(b, '\n'))
}

func (e *Encoder) appendFamily(dst []byte, s *gpu.Snapshot, f *family) []byte {
	start := len(dst)
	dst = append(dst, f.header...)
	body := len(dst)
	e.seen.reset()
	for _, src := range f.columns {
		dst = e.appendColumn(dst, f, &s.Columns[src.column], src.whole)
	}
	for _, i := range f.derived {
		series := s.Families[i].Series
		if len(f.derived) == 1 && len(f.columns) == 0 && e.same(&f.cached, f.name, series) {
			dst = e.appendList(dst, &f.cached, series)
			continue
		}
		dst = e.appendDerived(dst, f, &s.Families[i])
	}
	if f.health != nil {
		dst = f.health(e, dst, f, s)
	}
	if len(dst) == body {
		return dst[:start]
	}
	return dst
}

func (e *Encoder) appendColumn(dst []byte, f *family, c *gpu.Column, whole bool) []byte {
	rows := min(len(c.Values), len(e.labels.rows))
	for row := range rows {
		v := e.shown(c, row, whole)
		if v.IsAbsent() || v.IsText() {
			continue
		}
		r := &e.labels.rows[row]
		if r.copies == nil || f.parted {
			dst = e.appendSample(dst, f, &r.block, v)
			continue
		}
		for i := range r.copies {
			dst = e.appendSample(dst, f, &r.copies[i], v)
		}
	}
	return dst
}

// appendSample appends a sample with the labels of a block, unless the family has one with the same
// labels.
func (e *Encoder) appendSample(dst []byte, f *family, b *block, v gpu.Value) []byte {
	if !e.seen.add(b.hash) {
		e.duplicates.Add(1)
		return dst
	}
	dst = append(dst, f.name...)
	dst = append(dst, e.labels.arena[b.start:b.end]...)
	dst = e.appendValue(dst, v)
	return append(dst, '\n')
}

// shown returns the value that a page shows for a row of a column: its own, and under Strict for an
// instance without one that of its GPU.
func (e *Encoder) shown(c *gpu.Column, row int, whole bool) gpu.Value {
	v := c.Values[row]
	if !e.opts.Strict.On {
		return v
	}
	r := &e.labels.rows[row]
	switch {
	case r.hidden:
		return gpu.Value{}
	case v.IsAbsent() && whole && r.whole >= 0 && r.whole < len(c.Values):
		return c.Values[r.whole]
	default:
		return v
	}
}

// appendValue appends a number as the page spells it. dcgm-exporter formats what the engine calls a
// double with %f (gpu_collector.go, toString).
func (e *Encoder) appendValue(dst []byte, v gpu.Value) []byte {
	if _, ok := v.Int64(); ok || !e.opts.Strict.On {
		return appendNumber(dst, v)
	}
	f, _ := v.Number()
	return strconv.AppendFloat(dst, f, 'f', 6, 64)
}

// appendEntity is appendExtended for each set of labels that an entity has.
func (e *Encoder) appendEntity(dst []byte, f *family, row int, extra []gpu.Label, v gpu.Value) []byte {
	r := &e.labels.rows[row]
	if r.copies == nil {
		return e.appendExtended(dst, f, &r.block, extra, v)
	}
	for i := range r.copies {
		dst = e.appendExtended(dst, f, &r.copies[i], extra, v)
	}
	return dst
}

// appendEvents appends what is reported of a GPU for each of its instances, and for the GPU where
// it is shown, as dcgm-exporter does (expCollector.getMetrics).
func (e *Encoder) appendEvents(dst []byte, f *family, sr *gpu.Series) []byte {
	r := &e.labels.rows[sr.Row]
	if !r.hidden {
		dst = e.appendEntity(dst, f, sr.Row, sr.Labels, sr.Value)
	}
	for _, row := range r.instances {
		dst = e.appendEntity(dst, f, row, sr.Labels, sr.Value)
	}
	return dst
}

func (e *Encoder) appendDerived(dst []byte, f *family, from *gpu.Family) []byte {
	for i := range from.Series {
		sr := &from.Series[i]
		if sr.Value.IsAbsent() || sr.Value.IsText() || sr.Row < gpu.AllRows || sr.Row >= len(e.labels.rows) {
			continue
		}
		if isFixed(sr) {
			dst = e.appendOneCached(dst, f, sr)
			continue
		}
		switch {
		case sr.Row == gpu.AllRows:
			dst = e.appendExtended(dst, f, &block{}, sr.Labels, sr.Value)
		case sr.NoOwner:
			dst = e.appendExtended(dst, f, &e.labels.rows[sr.Row].noOwner, e.owned(sr), sr.Value)
		case from.OfGPUs:
			dst = e.appendEvents(dst, f, sr)
		default:
			dst = e.appendEntity(dst, f, sr.Row, sr.Labels, sr.Value)
		}
	}
	return dst
}

// appendExtended appends a sample with labels beyond those of its block, unless the family has one
// with the same labels. A label of the block that identifies the entity wins over a new one of that
// name; every other makes way for it.
func (e *Encoder) appendExtended(dst []byte, f *family, b *block, extra []gpu.Label, v gpu.Value) []byte {
	start := len(dst)
	dst = append(dst, f.name...)
	open := len(dst)
	extra = e.validLabels(b, extra)
	var hash uint64
	for i := range b.spans {
		sp := &b.spans[i]
		if has(extra, sp.name) {
			e.labels.dropped++
			continue
		}
		dst = append(dst, ',')
		dst = append(dst, e.labels.arena[sp.start:sp.end]...)
		hash += sp.hash
	}
	for _, l := range extra {
		dst = append(dst, ',')
		at := len(dst)
		dst = appendLabel(dst, l.Name, l.Value)
		hash += maphash.Bytes(e.labels.seed, dst[at:])
	}
	if !e.seen.add(hash) {
		e.duplicates.Add(1)
		return dst[:start]
	}
	if len(dst) > open {
		dst[open] = '{'
		dst = append(dst, '}')
	}
	dst = append(dst, ' ')
	dst = e.appendValue(dst, v)
	return append(dst, '\n')
}

// owned returns the labels of a series beyond those of its entity alone: its own owner's, under the
// names that owners' labels have on this page, and what else it says. The result lives until the
// next call.
func (e *Encoder) owned(sr *gpu.Series) []gpu.Label {
	if len(sr.Owner) == 0 {
		return sr.Labels
	}
	e.owner = e.owner[:0]
	for _, l := range sr.Owner {
		e.owner = append(e.owner, gpu.Label{Name: e.labels.ownerName(l.Name), Value: l.Value})
	}
	e.owner = append(e.owner, sr.Labels...)
	return e.owner
}

// validLabels returns those of extra that a series with block b may carry, with valid names. The
// result lives until the next call.
func (e *Encoder) validLabels(b *block, extra []gpu.Label) []gpu.Label {
	e.extra = e.extra[:0]
next:
	for _, l := range extra {
		if l.Value == "" {
			continue
		}
		l.Name = text.LabelName(l.Name)
		for i := range b.spans {
			if b.spans[i].identity && b.spans[i].name == l.Name {
				e.labels.dropped++
				continue next
			}
		}
		if has(e.extra, l.Name) {
			e.labels.dropped++
			continue
		}
		e.extra = append(e.extra, l)
	}
	return e.extra
}

func has(labels []gpu.Label, name string) bool {
	for i := range labels {
		if labels[i].Name == name {
			return true
		}
	}
	return false
}
