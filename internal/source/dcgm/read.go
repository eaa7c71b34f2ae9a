package dcgm

import (
	"cmp"
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
	clear(s.valued)
	clear(s.unwatched)
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
		if err := s.readTrails(w, b); severityOf(err) == reopen {
			return read, err
		}
	}
	s.watches.follow(begin)
	return read, failed
}

// readNewest appends the newest samples of a reader, and marks slots that have more.
func (s *Session) readNewest(reader *reader, b *gpu.Batch) error {
	found, err := s.engine.latest(reader.group.handle, reader.handle)
	if err != nil {
		return err
	}
	s.clock.now = time.Now().UnixNano()
	s.setNewest(found)
	s.each(found, reader.group.rows, func(row, field int, raw *sample) {
		s.addSample(b, row, field, raw, found.textOf(raw))
	})
	return nil
}

// setNewest records the newest sample of a remote engine. XIDs and failed samples are ignored.
func (s *Session) setNewest(found readout) {
	if !s.clock.foreign {
		return
	}
	newest := int64(0)
	s.each(found, nil, func(row, field int, raw *sample) {
		if w := s.watches.slot(row, field).watch; w != nil && !w.sporadic && raw.status == 0 {
			newest = max(newest, raw.at)
		}
	})
	s.clock.newest = cmp.Or(newest, s.clock.newest)
}

// maxEngineTime is later than any sample of an engine, in microseconds. It is in the year 2112.
const maxEngineTime = 1 << 52

// each calls do for every requested sample of a readout. Other samples are dropped.
func (s *Session) each(found readout, rows []int, do func(row, field int, raw *sample)) {
	var last entity // entity of row; samples are sorted by entity
	row, known := 0, false
	for i := range found.samples {
		raw := &found.samples[i]
		field := s.fieldOf(raw)
		if field < 0 || raw.at > maxEngineTime {
			continue
		}
		if raw.group == groupNone { // a field of the node, which is read for every entity
			for _, row := range rows {
				do(row, field, raw)
			}
			continue
		}
		if e := (entity{raw.group, raw.entity}); i == 0 || e != last {
			last = e
			row, known = s.rows[e]
		}
		if known {
			do(row, field, raw)
		}
	}
}

// keyOf returns the key of a field in Session.fields. Links have fields of their own, whose IDs other fields may have
// too.
func keyOf(id gpu.FieldID, ofLink bool) int {
	if ofLink {
		return 2*int(id) + 1
	}
	return 2 * int(id)
}

// indexFields returns the index in the plan of each field by its key, or -1. A map would double the time of a cycle.
func indexFields(plan *gpu.Plan) (indexes []int) {
	for i, field := range plan.Fields {
		key := keyOf(field.ID, field.Levels == gpu.KindsOf(gpu.KindNVLink))
		for len(indexes) <= key {
			indexes = append(indexes, -1)
		}
		indexes[key] = i
	}
	return indexes
}

// fieldOf returns the index in the plan of a sample's field, or -1.
func (s *Session) fieldOf(raw *sample) int {
	key := keyOf(gpu.FieldID(raw.field), raw.group == groupLink)
	if key >= len(s.fields) {
		return -1
	}
	return s.fields[key]
}

// addSample appends the newest sample of a slot, or its fault.
func (s *Session) addSample(b *gpu.Batch, row, field int, raw *sample, text []byte) {
	slot := s.watches.slot(row, field)
	w := slot.watch
	if w == nil {
		return
	}
	if raw.status == 0 && !w.profiling {
		w.latest = max(w.latest, raw.at)
	}
	if raw.status == codeNotWatched {
		s.unwatched[row] = true
	}
	value, err := s.decode(field, raw, text)
	if w.sporadic && raw.status == 0 && raw.at > 0 {
		history := s.xids.of(s.members[row], row)
		history.shown, history.code = raw.at, xidCode(value)
		if history.code == noXID {
			b.WithoutXID = append(b.WithoutXID, row)
		}
	}
	if err != nil {
		b.Fail(row, field, err)
		w.faults = true
		return
	}
	if value.IsAbsent() {
		return
	}
	if w.latest = max(w.latest, raw.at); w.sporadic {
		return
	}
	if s.plan.Fields[field].ID >= firstDeviceField {
		s.valued[row]++
	}
	newest := gpu.Sample{Row: row, Field: field, Value: value}
	if w.every {
		s.addToTrail(b, slot, newest, raw.at)
		return
	}
	newest.Time = s.clock.dateOf(slot, raw.at)
	b.Samples = append(b.Samples, newest)
}

// decode returns the value of a sample in the unit of its field, or the error if there is none.
func (s *Session) decode(index int, raw *sample, text []byte) (gpu.Value, error) {
	field := &s.plan.Fields[index]
	value, err := decode(field, raw, text)
	if err != nil && field.Profiling {
		err = s.profilingError(err)
	}
	if field.ID == catalog.GPUUtil {
		value = utilization(value, raw.kind == kindDouble, field.Unit)
	}
	return value, err
}

// addToTrail appends the newest sample of a slot for which all samples are requested. If other samples may lie before
// it, it marks the slot instead, and readTrails appends all of them.
func (s *Session) addToTrail(b *gpu.Batch, slot *slot, newest gpu.Sample, at int64) {
	w := slot.watch
	switch gap := at - slot.at; {
	case gap == 0:
		newest.Time = slot.date
	case gap > 0 && (slot.at == 0 || gap*2 >= 3*w.interval.Microseconds()):
		if !slot.moved {
			slot.moved, w.moved = true, append(w.moved, slot)
		}
		slot.next, slot.nextAt = newest, at
		return
	default: // the next sample, or the first one after the engine's clock was set back
		newest = s.addTrail(b, slot, newest, at)
	}
	b.Samples = append(b.Samples, newest)
}

// addTrail appends a sample to the trails, and returns it with its time.
func (s *Session) addTrail(b *gpu.Batch, slot *slot, sample gpu.Sample, at int64) gpu.Sample {
	sample.Time = s.clock.dateOf(slot, at)
	b.Trails = append(b.Trails, sample)
	return sample
}

// readTrails appends every new sample of the moved slots of a watch, oldest first.
func (s *Session) readTrails(w *watch, b *gpu.Batch) error {
	if len(w.moved) == 0 {
		return nil
	}
	var rows []int
	from := int64(maxEngineTime)
	for _, slot := range w.moved {
		rows = append(rows, slot.next.Row)
		from = min(from, slot.at+1)
	}
	found, err := s.engine.since(w.group.handle, w.handle, from)
	if err == nil {
		s.each(found, rows, func(row, field int, raw *sample) {
			slot := s.watches.slot(row, field)
			if !slot.moved || slot.watch != w || raw.at <= slot.at {
				return
			}
			value, err := s.decode(field, raw, found.textOf(raw))
			if err != nil || value.IsAbsent() {
				return
			}
			sample := s.addTrail(b, slot, gpu.Sample{Row: row, Field: field, Value: value}, raw.at)
			if raw.at >= slot.nextAt {
				slot.next = sample
			}
		})
	}
	for _, slot := range w.moved {
		slot.moved = false
		if err != nil {
			b.Fail(slot.next.Row, slot.next.Field, s.withVersions(err)) // the next Read requests it again
			continue
		}
		if slot.at < slot.nextAt { // the engine has dropped it
			slot.next = s.addTrail(b, slot, slot.next, slot.nextAt)
		}
		b.Samples = append(b.Samples, slot.next)
	}
	w.moved = w.moved[:0]
	return err
}

// A clock converts times of the engine to times of this machine.
type clock struct {
	foreign bool  // the engine runs on another machine and has another clock
	now     int64 // when the latest call for newest samples returned, in Unix nanoseconds
	newest  int64 // newest sample of a remote engine, in its microseconds; see dateAt
}

// dateAt returns the time of a new sample. The clock of a remote engine may be wrong, drift, or be set. So the time is
// that of the first Read that has the sample, minus the sample's distance to the newest sample of that Read. It is at
// most one interval too late.
func (c *clock) dateAt(at int64) int64 {
	date := at * 1000
	if !c.foreign {
		return date
	}
	if c.newest > 0 {
		date = c.now - (c.newest-at)*1000
	}
	return min(date, c.now)
}

// dateOf returns the time of a sample and makes the sample the newest of its slot. A sample has the same time in every
// Read. Trails stay in time order unless the engine's clock is set back.
func (c *clock) dateOf(slot *slot, at int64) int64 {
	if at == slot.at {
		return slot.date
	}
	date := c.dateAt(at)
	if slot.watch.every && at > slot.at {
		date = max(date, slot.date+1)
	}
	slot.at, slot.date = at, date
	return date
}
