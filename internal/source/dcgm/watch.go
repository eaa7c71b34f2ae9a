package dcgm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Limits of the engine. A field group takes one field less than the constant in the header
// (DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP).
const (
	maxFields   = 127
	maxEntities = 1024
)

// If only the newest sample of a field is read, the engine keeps keepSamples samples. Otherwise it keeps all samples of
// the last keepIntervals intervals, but at least of minKeepAge, because a Read may be late.
const (
	keepSamples   = 2
	minKeepAge    = 5 * time.Minute
	keepIntervals = 10
)

// A group is an entity group at the engine. Several watches may use it.
type group struct {
	handle handle
	rows   []int
}

// A watch is a field group that is sampled for a group.
type watch struct {
	group  *group
	handle handle // handle of the field group
	fields []int  // indexes in the plan
	sampling
	// State of the current Read: the time of the newest sample (for profiling, of the newest sample with a value),
	// whether a field had a fault, and the slots with several new samples.
	latest   int64
	faults   bool
	moved    []*slot
	newest   int64     // highest value of latest so far
	advanced time.Time // for profiling: when newest last changed
}

// A sampling holds what the fields of a watch have in common.
type sampling struct {
	interval  time.Duration
	every     bool // gpu.Field.AllSamples
	profiling bool
	sporadic  bool // XIDs: samples are events, not a sampled state
}

// A watchSet holds everything that the engine samples for a session, and the calls that read it.
type watchSet struct {
	*inventory

	list   []*watch
	groups []*group

	readers  []*reader
	arranged bool   // the readers match the watches
	slots    []slot // by row and field

	faults   []gpu.Fault    // faults of fields that cannot be watched, added to every Read
	reported int            // how many of them were logged
	refused  []refusedWatch // watches that the engine rejects temporarily

	renewed  time.Time     // time of the last renew
	patience time.Duration // time between two new watches of contradicted fields
	advanced time.Time     // when a watch of non-profiling fields last had a new value
	resumed  time.Time     // when these watches had values again after a freeze of the engine
}

// firstDeviceField is the first field of devices. Fields before it belong to the node.
const firstDeviceField = 50

func samplingOf(plan *gpu.Plan, index int) sampling {
	f := &plan.Fields[index]
	return sampling{plan.IntervalOf(index), f.AllSamples, f.Profiling, f.ID == catalog.XIDErrors}
}

// keepAge returns how long the engine must keep every sample.
func (k sampling) keepAge() time.Duration { return max(minKeepAge, keepIntervals*k.interval) }

// A grouping is a multimap whose keys keep their insertion order.
type grouping[K comparable, V any] struct {
	keys   []K
	values map[K][]V
}

func (g *grouping[K, V]) add(key K, value V) {
	if g.values == nil {
		g.values = map[K][]V{}
	}
	if _, ok := g.values[key]; !ok {
		g.keys = append(g.keys, key)
	}
	g.values[key] = append(g.values[key], value)
}

// watchAll watches every field of the plan for the rows that have it. Rejected fields become faults.
func (ws *watchSet) watchAll() error {
	ws.unserved()
	for _, a := range scopes {
		var rows []int
		for row := range ws.top.Devices {
			if scopeOf(ws.top.Devices[row].Entity) == a {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		var fields grouping[sampling, int]
		for f := range ws.plan.Fields {
			if a.has(&ws.plan.Fields[f]) {
				fields.add(samplingOf(ws.plan, f), f)
			}
		}
		for _, key := range fields.keys {
			if err := ws.watchCapable(rows, fields.values[key], key); err != nil {
				return err
			}
		}
	}
	ws.reportFaults()
	return ws.arrange()
}

// dropIdleGroups destroys groups that no watch and no reader uses.
func (ws *watchSet) dropIdleGroups() error {
	var errs []error
	ws.groups = slices.DeleteFunc(ws.groups, func(g *group) bool {
		used := slices.ContainsFunc(ws.list, func(w *watch) bool { return w.group == g }) ||
			slices.ContainsFunc(ws.readers, func(r *reader) bool { return r.group == g })
		if !used {
			errs = append(errs, ws.engine.destroyGroup(g.handle))
		}
		return !used
	})
	return errors.Join(errs...)
}

// watchCapable watches profiling fields for the GPUs that have them, and other fields for all rows.
func (ws *watchSet) watchCapable(rows, fields []int, key sampling) error {
	if !key.profiling {
		return ws.watchChunks(rows, fields, key, maxEntities, maxFields)
	}
	var alike grouping[string, int] // rows by their fields
	fieldsOf := map[string][]int{}
	for _, row := range rows {
		if ws.absent[row] {
			continue
		}
		has, err := ws.capability(row, fields)
		if err != nil {
			return err
		}
		if len(has) > 0 {
			id := fmt.Sprint(has)
			fieldsOf[id] = has
			alike.add(id, row)
		}
	}
	for _, id := range alike.keys {
		if err := ws.watchChunks(alike.values[id], fieldsOf[id], key, maxEntities, maxFields); err != nil {
			return err
		}
	}
	return nil
}

// capability returns the profiling fields that the GPU of a row has, and adds faults for the others. If the query fails
// and may succeed later, it returns all fields: watching them shows which ones are supported.
func (ws *watchSet) capability(row int, fields []int) (has []int, err error) {
	id := ws.top.Devices[row].GPU
	ids, err := ws.engine.profiling(id)
	switch severity := severityOf(err); {
	case severity == reopen:
		return nil, err
	case hasCode(err, codeGPULost):
		ws.leaveOut(row)
		return nil, nil
	case severity == retry:
		return fields, nil
	case err == nil:
		err = fmt.Errorf("%w: the GPU does not have this profiling field", gpu.ErrNotSupported)
	}
	for _, f := range fields {
		if slices.Contains(ids, ws.plan.Fields[f].ID) {
			has = append(has, f)
			continue
		}
		ws.faults = appendFaults(ws.faults, []int{row}, []int{f}, ws.profilingError(err))
	}
	return has, nil
}

// watchChunks watches in chunks of at most some rows and fields.
func (ws *watchSet) watchChunks(rows, fields []int, key sampling, maxRows, maxFields int) error {
	for r := range slices.Chunk(rows, maxRows) {
		for f := range slices.Chunk(fields, maxFields) {
			if err := ws.watchOrSplit(r, f, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// watchOrSplit watches, and splits a rejected watch in halves, so that only the field or entity that is the cause is
// left out.
func (ws *watchSet) watchOrSplit(rows, fields []int, key sampling) error {
	err := ws.tryWatch(rows, fields, key)
	byRows := hasCode(err, codeGroupIncompatible, codeGPULost, codeGPUNotSupported, codeProfilingMissing)
	switch {
	case err == nil:
		return nil
	case severityOf(err) == reopen || errors.Is(err, gpu.ErrTimeout):
		return err
	case isHopeless(err) || len(rows) == 1 && len(fields) == 1:
		ws.decline(rows, fields, key, err)
		return nil
	case len(rows) > 1 && (byRows || len(fields) == 1):
		return ws.watchChunks(rows, fields, key, (len(rows)+1)/2, len(fields))
	default:
		return ws.watchChunks(rows, fields, key, len(rows), (len(fields)+1)/2)
	}
}

// isHopeless reports whether a part of a rejected watch would be rejected as well.
func isHopeless(err error) bool {
	return errors.Is(err, gpu.ErrPermission) || errors.Is(err, gpu.ErrVersion) || errors.Is(err, gpu.ErrUnavailable) ||
		hasCode(err, codeModuleNotLoaded)
}

// decline adds a fault for a rejected watch, or tries the watch again later if the engine may then accept it.
func (ws *watchSet) decline(rows, fields []int, key sampling, err error) {
	if key.profiling {
		err = ws.profilingError(err)
	}
	if severityOf(err) == skip {
		ws.faults = appendFaults(ws.faults, rows, fields, ws.withVersions(err))
	} else {
		ws.addRefused(rows, fields, key, ws.withVersions(err), time.Now().Add(ws.retryAfter))
	}
}

// tryWatch watches fields of rows with one watch. Rows that the engine rejects are declined.
func (ws *watchSet) tryWatch(rows, fields []int, key sampling) error {
	g, refused, err := ws.groupOf(rows)
	if err != nil {
		return err
	}
	if g != nil {
		h, err := ws.engine.createFieldGroup(ws.nextName(), ws.ids(fields))
		if err != nil {
			return err
		}
		keepAge, keep := time.Duration(0), keepSamples
		if key.every || key.sporadic {
			keepAge, keep = key.keepAge(), 0
		}
		if err := ws.engine.watch(g.handle, h, key.interval, keepAge, keep); err != nil {
			return errors.Join(err, ws.engine.destroyFieldGroup(h))
		}
		ws.list = append(ws.list, &watch{group: g, handle: h, fields: fields, sampling: key, advanced: time.Now()})
		ws.arranged = false
	}
	for _, x := range refused {
		ws.decline([]int{x.at}, fields, key, x.err)
	}
	return nil
}

// groupOf returns the engine's group of the rows that are not lost or rejected. It is nil if there is none.
func (ws *watchSet) groupOf(rows []int) (g *group, refused []refusal, err error) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(row int) bool { return ws.absent[row] })
	for _, g := range ws.groups {
		if slices.Equal(g.rows, rows) {
			return g, nil, nil
		}
	}
	if len(rows) == 0 {
		return nil, nil, nil
	}
	h, refusals, err := ws.engine.createGroup(ws.nextName(), ws.entitiesOf(rows))
	if err != nil {
		return nil, nil, err
	}
	for _, x := range slices.Backward(refusals) { // ascending by index
		row := rows[x.at]
		rows = slices.Delete(rows, x.at, x.at+1)
		if hasCode(x.err, codeGPULost) {
			ws.leaveOut(row)
		} else {
			refused = append(refused, refusal{row, x.err})
		}
	}
	if h != 0 {
		g = &group{handle: h, rows: rows}
		ws.groups = append(ws.groups, g)
	}
	return g, refused, nil
}

// unwatchAll undoes watchAll. Errors do not stop it.
func (ws *watchSet) unwatchAll() error {
	errs := []error{ws.dropReaders(0)}
	for _, w := range ws.list {
		errs = append(errs, ws.unwatch(w))
	}
	ws.list = nil
	return errors.Join(append(errs, ws.dropIdleGroups())...)
}

// unwatch ends a watch. For a field group with a field of the node, the engine returns -16 (not watched) although the
// watch existed and has ended.
func (ws *watchSet) unwatch(w *watch) error {
	err := ws.engine.unwatch(w.group.handle, w.handle)
	if hasCode(err, codeNotWatched) {
		err = nil
	}
	return errors.Join(err, ws.engine.destroyFieldGroup(w.handle))
}

// A reader is one batched call for the newest samples of entities of one kind. It covers all fields of these entities,
// whichever watches sample them, because libdcgm takes the same time for one field as for all.
type reader struct {
	group  *group
	handle handle // handle of the field group
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
