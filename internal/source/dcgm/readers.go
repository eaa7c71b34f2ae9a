package dcgm

import (
	"errors"
	"slices"

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
