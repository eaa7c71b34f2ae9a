package dcgm

import (
	"context"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// readAll appends samples. It returns whether anything was read, and the error of a failed call.
func (s *Session) readAll(ctx context.Context, b *gpu.Batch, begin time.Time) (read bool, failed error) {
	if err := s.watches.arrange(); err != nil {
		return false, err
	}
	for _, w := range s.watches.list {
		w.latest, w.faults = 0, false
	}
	s.gpus.startRead()
	for _, r := range s.watches.readers {
		if err := ctx.Err(); err != nil {
			return read, err
		}
		err := s.readNewest(r, b)
		if severityOf(err) == reopen {
			return read, err
		}
		if err != nil {
			failed = s.withVersions(err)
			s.watches.failReader(b, r, failed)
			continue
		}
		read = true
	}
	for _, w := range s.watches.list {
		if len(w.moved) == 0 {
			continue
		}
		if err := s.readTrail(w, b); severityOf(err) == reopen {
			return read, err
		}
	}
	s.watches.follow(begin)
	return read, failed
}

// readNewest appends the newest samples of a reader, and marks slots that have more.
func (s *Session) readNewest(rd *reader, b *gpu.Batch) error {
	r, err := s.engine.latest(rd.group.handle, rd.handle)
	if err != nil {
		return err
	}
	s.clock.now = time.Now().UnixNano()
	s.setNewest(r)
	s.each(r, rd.group.rows, func(row, f int, x *sample) { s.addSample(b, row, f, x, r) })
	return nil
}

// setNewest records the newest sample of a remote engine. XIDs and failed samples are ignored.
func (s *Session) setNewest(r readout) {
	if !s.clock.foreign {
		return
	}
	newest := int64(0)
	s.each(r, nil, func(row, f int, x *sample) {
		if w := s.watches.slot(row, f).watch; w != nil && !w.sporadic && x.status == 0 {
			newest = max(newest, x.at)
		}
	})
	if newest > 0 {
		s.clock.newest = newest
	}
}

// maxEngineTime is later than any sample of an engine, in microseconds. It is in the year 2112.
const maxEngineTime = 1 << 52

// each calls do for every requested sample of a readout. Other samples are dropped.
func (s *Session) each(r readout, rows []int, do func(row, field int, x *sample)) {
	var last entity // entity of row; samples are sorted by entity
	row, known := 0, false
	for i := range r.samples {
		x := &r.samples[i]
		f := s.fields.of(x)
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

// A planIndex holds the index in the plan of each field ID, or -1.
type planIndex struct {
	links  []int32 // fields of links
	others []int32 // fields of everything else
}

// indexFields returns the index of a plan's fields.
func indexFields(plan *gpu.Plan) (index planIndex) {
	for f := range plan.Fields {
		field := &plan.Fields[f]
		list := &index.others
		if field.Levels == gpu.KindsOf(gpu.KindNVLink) {
			list = &index.links
		}
		for len(*list) <= int(field.ID) {
			*list = append(*list, -1)
		}
		(*list)[field.ID] = int32(f)
	}
	return index
}

// of returns the index in the plan of a sample's field, or -1.
func (x *planIndex) of(s *sample) int {
	list := x.others
	if s.group == groupLink {
		list = x.links
	}
	if int(s.field) >= len(list) {
		return -1
	}
	return int(list[s.field])
}

// addSample appends the newest sample of a slot, or its fault.
func (s *Session) addSample(b *gpu.Batch, row, f int, x *sample, r readout) {
	c := s.watches.slot(row, f)
	w := c.watch
	if w == nil {
		return
	}
	if x.status == 0 && !w.profiling {
		w.latest = max(w.latest, x.at)
	}
	if x.status == codeNotWatched {
		s.gpus.unwatched[row] = true
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
		s.gpus.valued[row]++
	}
	if w.every {
		s.addToTrail(b, c, row, f, value, x)
	} else {
		b.AddAt(row, f, value, s.clock.dateOf(c, x))
	}
}

// addToTrail appends the newest sample of a slot of which all samples are requested. If other samples may lie before
// it, it marks the slot instead, and readTrail appends all of them.
func (s *Session) addToTrail(b *gpu.Batch, c *slot, row, f int, value gpu.Value, x *sample) {
	w := c.watch
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
	date := s.clock.dateOf(c, x)
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
	s.watches.eachMoved(w, rows, func(c *slot) {
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
			if c := s.watches.slot(row, f); c.moved && c.watch == w && x.at > c.at {
				s.takeTrail(b, c, row, f, x, r)
			}
		})
	}
	s.watches.eachMoved(w, rows, func(c *slot) {
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
