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
func (ws *watchSet) slot(row, field int) *slot { return &ws.slots[row*len(ws.plan.Fields)+field] }

// arrange creates the readers for the current watches, unless they exist.
func (ws *watchSet) arrange() error {
	if ws.arranged {
		return nil
	}
	ws.arranged = true
	if ws.slots == nil {
		ws.slots = make([]slot, len(ws.top.Devices)*len(ws.plan.Fields))
	}
	for i := range ws.slots {
		ws.slots[i].watch = nil
	}
	for _, w := range ws.list {
		for _, row := range w.group.rows {
			for _, f := range w.fields {
				ws.slot(row, f).watch = w
			}
		}
	}
	if err := ws.dropReaders(0); err != nil {
		return err
	}
	for _, a := range scopes {
		if err := ws.arrangeFor(a); err != nil {
			return err
		}
	}
	return reopenOnly(ws.dropIdleGroups())
}

// arrangeFor creates the readers of one scope: one for all watches, or one for each if the engine has no room.
func (ws *watchSet) arrangeFor(a scope) error {
	var watches []*watch
	var rows, fields []int
	for _, w := range ws.list {
		if scopeOf(ws.top.Devices[w.group.rows[0]].Entity) == a {
			watches = append(watches, w)
			rows, fields = append(rows, w.group.rows...), append(fields, w.fields...)
		}
	}
	if len(watches) > 1 {
		first := len(ws.readers)
		err := ws.share(sortedSet(rows), sortedSet(fields))
		if err == nil {
			return nil
		}
		ws.log.Debug("Reading each watch separately", "error", err)
		if err := reopenOnly(errors.Join(err, ws.dropReaders(first))); err != nil {
			return err
		}
	}
	for _, w := range watches {
		ws.readers = append(ws.readers, &reader{group: w.group, handle: w.handle, fields: w.fields})
	}
	return nil
}

// share creates readers for fields that several watches sample.
func (ws *watchSet) share(rows, fields []int) error {
	for r := range slices.Chunk(rows, maxEntities) {
		g, _, err := ws.groupOf(r)
		if err != nil {
			return err
		}
		if g == nil {
			continue // all rows have been lost meanwhile
		}
		for f := range slices.Chunk(fields, maxFields) {
			h, err := ws.engine.createFieldGroup(ws.nextName(), ws.ids(f))
			if err != nil {
				return err
			}
			ws.readers = append(ws.readers, &reader{group: g, handle: h, own: true, fields: f})
		}
	}
	return nil
}

// dropReaders drops the readers from an index on.
func (ws *watchSet) dropReaders(first int) error {
	var errs []error
	for _, r := range ws.readers[first:] {
		if r.own {
			errs = append(errs, ws.engine.destroyFieldGroup(r.handle))
		}
	}
	ws.readers = ws.readers[:first]
	return reopenOnly(errors.Join(errs...))
}

// failReader appends faults for everything that a reader reads.
func (ws *watchSet) failReader(b *gpu.Batch, r *reader, err error) {
	for _, row := range r.group.rows {
		for _, f := range r.fields {
			if ws.slot(row, f).watch != nil {
				b.Fail(row, f, err)
			}
		}
	}
}
