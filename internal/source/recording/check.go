package recording

import (
	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// takers check a line by its member, and add it to the recording.
var takers = map[string]func(*reader, *line) error{
	"recording": func(p *reader, l *line) error { return p.header(l.Header) },
	"device":    func(p *reader, l *line) error { return p.device(l.Device) },
	"part":      func(p *reader, l *line) error { return p.part(l.Part) },
	"pair":      func(p *reader, l *line) error { return p.pair(l.Pair) },
	"field":     func(p *reader, l *line) error { return p.field(l.Field) },
	"owners":    func(p *reader, l *line) error { return p.owners(l.Owners) },
	"pod":       func(p *reader, l *line) error { return p.pod(l.Pod) },
	"read":      func(p *reader, l *line) error { return p.read(l.Read) },
	"end":       func(p *reader, l *line) error { return p.end(l.End) },
}

func (p *reader) header(h *Header) error {
	switch {
	case p.begun():
		return p.errorf("a second recording, expected one in a file")
	case h.Format != format:
		return p.errorf("format %q, expected %q", h.Format, format)
	case h.Version != version:
		return p.errorf("version %d of the format, this program reads version %d", h.Version, version)
	case h.Interval <= 0 || h.Interval > maxInterval:
		return p.errorf("interval_us is %d, expected more than 0, and a day at most", h.Interval)
	case h.Source == "":
		return p.errorf("source is empty, expected dcgm, nvml or sim")
	}
	p.rec.Header = *h
	return nil
}

func (p *reader) device(d *Device) error {
	var ok bool
	e := gpu.Entity{ID: d.ID, Parent: d.Parent}
	if e.Kind, ok = kinds.of(d.Kind); !ok {
		return p.errorf("unknown kind %q of a device, %s", d.Kind, text.Suggest(d.Kind, kinds.words()))
	}
	if e.ParentKind, ok = kinds.of(d.ParentKind); !ok && d.ParentKind != "" {
		return p.errorf("unknown parent_kind %q, %s", d.ParentKind, text.Suggest(d.ParentKind, kinds.words()))
	}
	isGPU := e.Kind == gpu.KindGPU || e.Kind == gpu.KindGPUInstance
	switch _, again := p.rows[e]; {
	case again:
		return p.errorf("%v again", e)
	case p.parents[e]:
		return p.errorf("%v comes behind a device that is part of it, expected before", e)
	case len(p.rec.Devices) == maxDevices:
		return p.errorf("more than %d devices", maxDevices)
	case isGPU && (d.UUID == "" || d.PCIBusID == "" || d.Model == ""):
		return p.errorf("%v has UUID %q, PCI bus id %q and model %q, expected each", e, d.UUID, d.PCIBusID, d.Model)
	}
	p.rows[e] = len(p.rec.Devices)
	if e.ParentKind != gpu.KindNone {
		p.parents[gpu.Entity{Kind: e.ParentKind, ID: e.Parent}] = true
	}
	p.rec.Devices = append(p.rec.Devices, *d)
	return nil
}

// row returns an error where there is no device of a row.
func (p *reader) row(row int) error {
	if row < 0 || row >= len(p.rec.Devices) {
		return p.errorf("row %d, the recording has %d devices before this line", row, len(p.rec.Devices))
	}
	return nil
}

// is reports whether the device of a row is of a kind.
func (p *reader) is(row int, kind gpu.Kind) bool {
	return p.row(row) == nil && p.rec.Devices[row].Kind == kind.String()
}

func (p *reader) part(c *Part) error {
	if !p.is(c.Instance, gpu.KindGPUInstance) {
		return p.errorf("a part of row %d, expected the row of a GPU instance", c.Instance)
	}
	if n := len(p.rec.Parts); n > 0 {
		if last := &p.rec.Parts[n-1]; last.Instance > c.Instance || last.Instance == c.Instance && last.ID >= c.ID {
			return p.errorf("part %d of row %d comes behind part %d of row %d, expected parts in order, each once", c.ID, c.Instance, last.ID, last.Instance)
		}
	}
	p.rec.Parts = append(p.rec.Parts, *c)
	return nil
}

func (p *reader) pair(c *Pair) error {
	var last Pair
	if n := len(p.rec.Pairs); n > 0 {
		last = p.rec.Pairs[n-1]
	}
	_, known := paths.of(c.Path)
	switch {
	case !p.is(c.A, gpu.KindGPU) || !p.is(c.B, gpu.KindGPU) || c.A >= c.B:
		return p.errorf("a pair of rows %d and %d, expected two GPUs, the smaller row first", c.A, c.B)
	case last.A > c.A || last.A == c.A && last.B >= c.B:
		return p.errorf("the pair of rows %d and %d comes behind that of %d and %d, expected pairs in order, each once", c.A, c.B, last.A, last.B)
	case c.NVLinks < 0 || c.Generation < 0:
		return p.errorf("%d NVLinks of generation %d, expected 0 at least", c.NVLinks, c.Generation)
	case !known:
		return p.errorf("unknown path %q, expected PSB, PIX, PXB, PHB, NODE, SYS or none", c.Path)
	}
	p.rec.Pairs = append(p.rec.Pairs, *c)
	return nil
}

func (p *reader) field(f *Field) error {
	if p.ids[f.ID] {
		return p.errorf("field %d again", f.ID)
	}
	p.ids[f.ID] = true
	e, _ := catalog.ByID(f.ID)
	p.rec.Fields = append(p.rec.Fields, Field{ID: f.ID, Name: e.Name, Unit: f.Unit})
	return nil
}

func (p *reader) owners(o *Owners) error {
	for i := range o.Uses {
		u := &o.Uses[i]
		if err := p.row(u.Row); err != nil {
			return err
		}
		if u.Replicas < 0 {
			return p.errorf("%d replicas, expected 0 at least", u.Replicas)
		}
		if _, known := sharings.of(u.Sharing); !known && u.Sharing != "" {
			return p.errorf("sharing %q, expected time-slicing, mps or dra", u.Sharing)
		}
		for j := range u.Owners {
			if part := u.Owners[j].Part; part < 0 || part > 1 {
				return p.errorf("an owner of %v of a GPU instance, expected 0 to 1", part)
			}
		}
	}
	p.rec.Owners = append(p.rec.Owners, *o)
	return nil
}

func (p *reader) pod(l *pod) error {
	if _, again := p.rec.Pods[l.PID]; again {
		return p.errorf("process %d again", l.PID)
	}
	p.rec.Pods[l.PID] = l.UID
	return nil
}

func (p *reader) read(r *Read) error {
	for _, check := range []func(*Read) error{p.time, p.samples, p.faults, p.processes, p.rowsAndAges} {
		if err := check(r); err != nil {
			return err
		}
	}
	p.rec.Reads = append(p.rec.Reads, *r)
	if p.facts += r.facts(); p.facts > maxFacts {
		return p.errorf("more than %d samples, faults and processes until this read, which is the limit", maxFacts)
	}
	return nil
}

func (p *reader) time(r *Read) error {
	n := len(p.rec.Reads)
	switch {
	case r.At < 0 || r.At > maxTime:
		return p.errorf("at_us is %d, expected 0 to %d", r.At, maxTime)
	case n == 0 && r.At != 0:
		return p.errorf("the first read is at %d us, expected 0", r.At)
	case n > 0 && r.At <= p.rec.Reads[n-1].At:
		return p.errorf("the read at %d us comes behind one at %d us, expected a later one", r.At, p.rec.Reads[n-1].At)
	}
	return nil
}

func (p *reader) samples(r *Read) error {
	for i := range r.Samples {
		s := &r.Samples[i]
		if s.Field < 0 || s.Field >= len(p.rec.Fields) {
			return p.errorf("samples of field %d, the recording has %d fields before this line", s.Field, len(p.rec.Fields))
		}
		id := p.rec.Fields[s.Field].ID
		if len(s.Values) != len(s.Rows) || s.Ages != nil && len(s.Ages) != len(s.Rows) {
			return p.errorf("field %d has %d rows, %d values and %d ages, expected as many of each (or no ages)", id, len(s.Rows), len(s.Values), len(s.Ages))
		}
		e, known := catalog.ByID(id)
		for _, v := range s.Values {
			if known && v.IsText() != (e.Type == catalog.Text) {
				return p.errorf("field %d (%s) has the value %.20q, expected a value of type %s", id, e.Name, v, e.Type)
			}
		}
	}
	return nil
}

func (p *reader) faults(r *Read) error {
	for i := range r.Faults {
		f := &r.Faults[i]
		if gpu.Reason(errorOf(f.Reason)) != f.Reason {
			return p.errorf("unknown reason %q, %s", f.Reason, text.Suggest(f.Reason, gpu.Reasons()))
		}
		if f.Field < gpu.FieldPeerStates || f.Field >= len(p.rec.Fields) {
			return p.errorf("a fault of field %d, the recording has %d fields before this line", f.Field, len(p.rec.Fields))
		}
	}
	return nil
}

func (p *reader) processes(r *Read) error {
	for i := range r.Processes {
		if q := &r.Processes[i]; q.Busy.IsText() || q.Memory.IsText() {
			return p.errorf("process %d is busy %.20q and has the memory %.20q, expected numbers", q.PID, q.Busy, q.Memory)
		}
	}
	for i := range r.Utilizations {
		u := &r.Utilizations[i]
		if busy, ok := u.Busy.Number(); !ok || busy < 0 || busy > 1 {
			return p.errorf("row %d was busy %.20q, expected a number from 0 to 1", u.Row, u.Busy)
		}
	}
	return nil
}

// rowsAndAges checks what every part of a Read has.
func (p *reader) rowsAndAges(r *Read) error {
	var wrong error
	row := func(row int) {
		if err := p.row(row); err != nil && wrong == nil {
			wrong = err
		}
	}
	age := func(age int64) {
		if (age < 0 || age > maxAge) && wrong == nil {
			wrong = p.errorf("an age of %d us, expected 0 to %d", age, maxAge)
		}
	}
	for i := range r.Samples {
		each(row, r.Samples[i].Rows)
		each(age, r.Samples[i].Ages)
	}
	for i := range r.Faults {
		each(func(at int) {
			if at != gpu.AllRows {
				row(at)
			}
		}, r.Faults[i].Rows)
	}
	each(func(q Process) { row(q.Row); age(q.Age) }, r.Processes)
	each(func(u Utilization) { row(u.Row) }, r.Utilizations)
	each(func(h Health) { row(h.Row); age(h.Age) }, r.Health)
	each(func(s Peer) { row(s.Row); row(s.Peer) }, r.Peers)
	return wrong
}

func each[T any](check func(T), list []T) {
	for _, x := range list {
		check(x)
	}
}

func (p *reader) end(l *end) error {
	if len(p.rec.Reads) == 0 || l.Reads != len(p.rec.Reads) {
		return p.errorf("the end says %d reads, found %d; expected one at least", l.Reads, len(p.rec.Reads))
	}
	p.ended = true
	return nil
}

// A vocabulary is the words of a type whose values count from first to last.
type vocabulary[T interface {
	~uint8
	String() string
}] struct{ first, last T }

var (
	kinds    = vocabulary[gpu.Kind]{gpu.KindGPU, gpu.KindNode}
	paths    = vocabulary[gpu.Path]{gpu.PathUnknown, gpu.PathSystem}
	sharings = vocabulary[gpu.Sharing]{gpu.SharingNone, gpu.SharingDRA}
)

// of is the inverse of String.
func (v vocabulary[T]) of(word string) (T, bool) {
	for x := v.first; x <= v.last; x++ {
		if x.String() == word {
			return x, true
		}
	}
	return 0, false
}

func (v vocabulary[T]) words() []string {
	var words []string
	for x := v.first; x <= v.last; x++ {
		words = append(words, x.String())
	}
	return words
}
