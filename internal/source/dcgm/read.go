package dcgm

import (
	"context"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

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
