package dcgm

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A reader is one batched call for the newest samples of entities of one kind. It covers all fields of these entities,
// whichever watches sample them, because libdcgm takes the same time for one field as for all.
type reader struct {
	group  *group
	handle handle // of the field group
	own    bool   // the field group belongs to the reader, not to a watch
	fields []int  // indexes in the plan
}

// A slot is the state of one field of one entity.
type slot struct {
	watch *watch // watch that samples the field; without one, samples are dropped
	at    int64  // time of the newest sample read, in the engine's microseconds
	date  int64  // the same time in this machine's clock
	// moved is true from the newest sample (next) until the samples before it are read.
	moved  bool
	next   gpu.Sample
	nextAt int64
}

// slot returns the slot of a field of a row.
func (s *Session) slot(row, field int) *slot { return &s.slots[row*len(s.plan.Fields)+field] }

// arrange creates the readers for the current watches.
func (s *Session) arrange() error {
	s.arranged = true
	if s.slots == nil {
		s.slots = make([]slot, len(s.top.Devices)*len(s.plan.Fields))
	}
	for i := range s.slots {
		s.slots[i].watch = nil
	}
	for _, w := range s.watches {
		for _, row := range w.group.rows {
			for _, f := range w.fields {
				s.slot(row, f).watch = w
			}
		}
	}
	if err := s.dropReaders(0); err != nil {
		return err
	}
	for _, a := range scopes {
		if err := s.arrangeFor(a); err != nil {
			return err
		}
	}
	return reopenOnly(s.dropIdleGroups())
}

// arrangeFor creates the readers of one scope: one for all watches, or one for each if the engine has no room.
func (s *Session) arrangeFor(a scope) error {
	var watches []*watch
	var rows, fields []int
	for _, w := range s.watches {
		if scopeOf(s.top.Devices[w.group.rows[0]].Entity) == a {
			watches = append(watches, w)
			rows, fields = append(rows, w.group.rows...), append(fields, w.fields...)
		}
	}
	if len(watches) > 1 {
		first := len(s.readers)
		err := s.share(sortedSet(rows), sortedSet(fields))
		if err == nil {
			return nil
		}
		s.log.Debug("Reading each watch separately", "error", err)
		if err := reopenOnly(errors.Join(err, s.dropReaders(first))); err != nil {
			return err
		}
	}
	for _, w := range watches {
		s.readers = append(s.readers, &reader{group: w.group, handle: w.handle, fields: w.fields})
	}
	return nil
}

// share creates readers for fields that several watches sample.
func (s *Session) share(rows, fields []int) error {
	for r := range slices.Chunk(rows, maxEntities) {
		g, _, err := s.groupOf(r)
		if err != nil {
			return err
		}
		if g == nil {
			continue // all rows have been lost meanwhile
		}
		for f := range slices.Chunk(fields, maxFields) {
			h, err := s.engine.createFieldGroup(s.nextName(), s.ids(f))
			if err != nil {
				return err
			}
			s.readers = append(s.readers, &reader{group: g, handle: h, own: true, fields: f})
		}
	}
	return nil
}

// dropReaders drops the readers from an index on.
func (s *Session) dropReaders(first int) error {
	var errs []error
	for _, r := range s.readers[first:] {
		if r.own {
			errs = append(errs, s.engine.destroyFieldGroup(r.handle))
		}
	}
	s.readers = s.readers[:first]
	return reopenOnly(errors.Join(errs...))
}

func sortedSet[T cmp.Ordered](list []T) []T {
	slices.Sort(list)
	return slices.Compact(list)
}

// readAll appends samples. It returns whether anything was read, and the error of a failed call.
func (s *Session) readAll(ctx context.Context, b *gpu.Batch, begin time.Time) (read bool, failed error) {
	if !s.arranged {
		if err := s.arrange(); err != nil {
			return false, err
		}
	}
	for _, w := range s.watches {
		w.latest, w.faults = 0, false
	}
	clear(s.valued)
	clear(s.unwatched)
	for _, r := range s.readers {
		if err := ctx.Err(); err != nil {
			return read, err
		}
		err := s.readNewest(r, b)
		if severityOf(err) == reopen {
			return read, err
		}
		if err != nil {
			failed = s.withVersions(err)
			s.failReader(b, r, failed)
			continue
		}
		read = true
	}
	for _, w := range s.watches {
		if len(w.moved) == 0 {
			continue
		}
		if err := s.readTrail(w, b); severityOf(err) == reopen {
			return read, err
		}
	}
	for _, w := range s.watches {
		s.follow(w, begin)
	}
	return read, failed
}

// failReader appends faults for everything that a reader reads.
func (s *Session) failReader(b *gpu.Batch, r *reader, err error) {
	for _, row := range r.group.rows {
		for _, f := range r.fields {
			if s.slot(row, f).watch != nil {
				b.Fail(row, f, err)
			}
		}
	}
}

// readNewest appends the newest samples of a reader, and marks slots that have more.
func (s *Session) readNewest(rd *reader, b *gpu.Batch) error {
	r, err := s.engine.latest(rd.group.handle, rd.handle)
	if err != nil {
		return err
	}
	s.now = time.Now().UnixNano()
	s.setNewest(r)
	s.each(r, rd.group.rows, func(row, f int, x *sample) { s.addSample(b, row, f, x, r) })
	return nil
}

// maxEngineTime is later than any sample of an engine, in microseconds. It is in the year 2112.
const maxEngineTime = 1 << 52

// each calls do for every requested sample of a readout. Other samples are dropped.
func (s *Session) each(r readout, rows []int, do func(row, field int, x *sample)) {
	var last entity // entity of row; samples are sorted by entity
	row, known := 0, false
	for i := range r.samples {
		x := &r.samples[i]
		f := s.fieldOf(x)
		if f < 0 || x.at > maxEngineTime {
			continue
		}
		if x.group == groupNone { // a field of the node, which is read for every entity
			for _, row := range rows {
				do(row, f, x)
			}
			continue
		}
		if e := (entity{x.group, x.entity}); i == 0 || e != last {
			last = e
			row, known = s.rows[e]
		}
		if known {
			do(row, f, x)
		}
	}
}

func (s *Session) fieldOf(x *sample) int {
	index := s.fields
	if x.group == groupLink {
		index = s.linkFields
	}
	if int(x.field) >= len(index) {
		return -1
	}
	return int(index[x.field])
}

// addSample appends the newest sample of a slot, or its fault.
func (s *Session) addSample(b *gpu.Batch, row, f int, x *sample, r readout) {
	c := s.slot(row, f)
	w := c.watch
	if w == nil {
		return
	}
	if x.status == 0 && !w.profiling {
		w.latest = max(w.latest, x.at)
	}
	if x.status == codeNotWatched {
		s.unwatched[row] = true
	}
	value, err := s.decode(f, x, r)
	if w.sporadic && x.status == 0 && x.at > 0 {
		h := s.xids.of(s.members[row], row)
		h.shown, h.code = x.at, xidCode(value)
		if h.code == noXID {
			b.WithoutXID = append(b.WithoutXID, row)
		}
	}
	switch {
	case err != nil:
		b.Fail(row, f, err)
		w.faults = true
		return
	case value.IsAbsent():
		return
	}
	w.latest = max(w.latest, x.at)
	if w.sporadic {
		return
	}
	if s.plan.Fields[f].ID >= firstDeviceField {
		s.valued[row]++
	}
	if !w.every {
		b.AddAt(row, f, value, s.dateOf(c, x))
		return
	}
	switch gap := x.at - c.at; {
	case gap == 0:
		b.AddAt(row, f, value, c.date)
	case gap > 0 && w.skips(gap, c.at == 0):
		if !c.moved {
			c.moved, w.moved = true, append(w.moved, row)
		}
		c.next, c.nextAt = gpu.Sample{Row: row, Field: f, Value: value}, x.at
	default: // the next sample, or the first one after the engine's clock was set back
		s.addTrail(b, c, row, f, value, x)
		s.addNewest(b, c)
	}
}

// addTrail appends a sample to the trails.
func (s *Session) addTrail(b *gpu.Batch, c *slot, row, f int, value gpu.Value, x *sample) {
	date := s.dateOf(c, x)
	b.TrailAt(row, f, value, date)
	c.next = gpu.Sample{Row: row, Field: f, Value: value, Time: date}
}

// addNewest appends the latest sample in the trail of a slot.
func (s *Session) addNewest(b *gpu.Batch, c *slot) {
	b.AddAt(c.next.Row, c.next.Field, c.next.Value, c.next.Time)
}

// skips reports whether other samples may lie between two samples that are gap microseconds apart.
func (w *watch) skips(gap int64, first bool) bool {
	return first || gap*2 >= 3*w.interval.Microseconds()
}

// dateOf returns the time of a sample and makes the sample the newest of its slot. A sample has the same time in every
// Read. Trails stay in time order unless the engine's clock is set back.
func (s *Session) dateOf(c *slot, x *sample) int64 {
	if x.at == c.at {
		return c.date
	}
	date := s.dateAt(x.at)
	if c.watch.every && x.at > c.at {
		date = max(date, c.date+1)
	}
	c.at, c.date = x.at, date
	return date
}

// dateAt returns the time of a new sample. The clock of a remote engine may be wrong, drift, or be set. So the time is
// that of the first Read that has the sample, minus the sample's distance to the newest sample of that Read. It is at
// most one interval too late.
func (s *Session) dateAt(at int64) int64 {
	if !s.foreign {
		return at * 1000
	}
	date := at * 1000
	if s.newest > 0 {
		date = s.now - (s.newest-at)*1000
	}
	return min(date, s.now)
}

// setNewest records the newest sample of a remote engine. XIDs and failed samples are ignored.
func (s *Session) setNewest(r readout) {
	if !s.foreign {
		return
	}
	newest := int64(0)
	s.each(r, nil, func(row, f int, x *sample) {
		if w := s.slot(row, f).watch; w != nil && !w.sporadic && x.status == 0 {
			newest = max(newest, x.at)
		}
	})
	if newest > 0 {
		s.newest = newest
	}
}

// decode returns the value of a sample in the unit of its field, or the error if there is none.
func (s *Session) decode(f int, x *sample, r readout) (gpu.Value, error) {
	field := &s.plan.Fields[f]
	v, err := decode(field, x, r.textOf(x))
	if err != nil && field.Profiling {
		err = s.profilingError(err)
	}
	if field.ID == catalog.GPUUtil {
		v = utilization(v, x.kind == kindDouble, field.Unit)
	}
	return v, err
}

// readTrail appends every new sample of the moved slots of a watch, oldest first.
func (s *Session) readTrail(w *watch, b *gpu.Batch) error {
	defer func() { w.moved = w.moved[:0] }()
	rows := sortedSet(w.moved)
	from := int64(-1)
	s.eachMoved(w, rows, func(c *slot) {
		since := c.at + 1
		if c.at == 0 {
			since = 0
		}
		if from < 0 || since < from {
			from = since
		}
	})
	r, err := s.engine.since(w.group.handle, w.handle, from)
	if err == nil {
		s.each(r, rows, func(row, f int, x *sample) {
			if c := s.slot(row, f); c.moved && c.watch == w && x.at > c.at {
				s.takeTrail(b, c, row, f, x, r)
			}
		})
	}
	s.eachMoved(w, rows, func(c *slot) {
		c.moved = false
		if err != nil {
			b.Fail(c.next.Row, c.next.Field, s.withVersions(err)) // the next Read requests it again
			return
		}
		if c.at < c.nextAt { // the engine has dropped it
			e := s.members[c.next.Row]
			x := sample{at: c.nextAt, group: e.group, entity: e.id, field: uint16(s.plan.Fields[c.next.Field].ID)}
			s.addTrail(b, c, c.next.Row, c.next.Field, c.next.Value, &x)
		}
		s.addNewest(b, c)
	})
	return err
}

func (s *Session) takeTrail(b *gpu.Batch, c *slot, row, f int, x *sample, r readout) {
	if v, err := s.decode(f, x, r); err == nil && !v.IsAbsent() {
		s.addTrail(b, c, row, f, v, x)
	}
}

// eachMoved calls do for the moved slots of a watch.
func (s *Session) eachMoved(w *watch, rows []int, do func(*slot)) {
	for _, row := range rows {
		for _, f := range w.fields {
			if c := s.slot(row, f); c.watch == w && c.moved {
				do(c)
			}
		}
	}
}

func (s *Session) entitiesOf(rows []int) []entity {
	members := make([]entity, len(rows))
	for i, row := range rows {
		members[i] = s.members[row]
	}
	return members
}

func (s *Session) ids(fields []int) []gpu.FieldID {
	ids := make([]gpu.FieldID, len(fields))
	for i, f := range fields {
		ids[i] = s.plan.Fields[f].ID
	}
	return ids
}
