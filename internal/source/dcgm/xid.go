package dcgm

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// lateXID is how long after its date an XID may be stored: the engine stores those of the kernel's
// log a second or two later, behind XIDs that have been read.
const lateXID = 10 * time.Second

// An xidWatch reads the XIDs of the GPUs and of their MIG instances: the engine stores an XID that
// names an instance on that alone. The batched read shows which entities have new ones. Their
// histories are read then, and again until no late ones are to be expected.
type xidWatch struct {
	parts     handle // the group of the instances, 0 where there are none or the engine refuses them
	fields    handle // the field group of the parts' watch
	histories map[entity]*xidHistory
	order     []entity // of histories
}

// An xidHistory is the XIDs of one entity, in the engine's microseconds.
type xidHistory struct {
	row         int
	instance    instance // that the XIDs name; the zero instance is the GPU
	shown, last int64    // the newest that the engine shows in this Read, and that it showed before
	code        int64    // of the newest
	from        int64    // where the read of the history begins
	due         bool
	until       time.Time         // when it was due last: it is due once more after this
	told, found map[xidReport]int // how often each was reported, and was found by this Read
}

// An xidReport identifies an XID.
type xidReport struct{ at, code int64 }

// of returns the history of an entity, which is the GPU of a row or an instance of it.
func (x *xidWatch) of(e entity, row int) *xidHistory {
	h := x.histories[e]
	if h == nil {
		h = &xidHistory{row: row, told: map[xidReport]int{}, found: map[xidReport]int{}}
		if x.histories == nil {
			x.histories = map[entity]*xidHistory{}
		}
		x.histories[e] = h
		x.order = append(x.order, e)
	}
	return h
}

// xidsOfGPUs returns a watch of the XIDs of GPUs, nil where there is none.
func (s *Session) xidsOfGPUs() *watch {
	if i := slices.IndexFunc(s.watches, func(w *watch) bool { return w.sporadic }); i >= 0 {
		return s.watches[i]
	}
	return nil
}

// watchXIDs has the engine keep the XIDs of the instances of the watched GPUs. Only a lost engine is
// an error.
func (s *Session) watchXIDs() error {
	w := s.xidsOfGPUs()
	if w == nil {
		return nil
	}
	var parts []entity
	for _, p := range s.layout.instances {
		if row, ok := s.rows[entity{groupGPU, s.gpuOf(p.entity)}]; ok && !s.absent[row] {
			parts = append(parts, p.entity)
			s.xids.of(p.entity, row).instance = p
		}
	}
	if len(parts) == 0 {
		return nil
	}
	group, _, err := s.engine.createGroup(s.nextName(), parts)
	if err == nil && group != 0 {
		if err = s.engine.watch(group, w.handle, w.interval, w.keepAge(), 0); err == nil {
			s.xids.parts, s.xids.fields = group, w.handle
			return nil
		}
		err = errors.Join(err, s.engine.destroyGroup(group))
	}
	if err != nil {
		s.log.Info("The engine does not watch the XIDs of MIG instances", "error", s.withVersions(err))
	}
	return s.onlyOver(err)
}

// unwatchXIDs undoes watchXIDs.
func (s *Session) unwatchXIDs() error {
	if s.xids.parts == 0 {
		return nil
	}
	return errors.Join(s.engine.unwatch(s.xids.parts, s.xids.fields), s.engine.destroyGroup(s.xids.parts))
}

// readXIDs appends the new XIDs in the order of their dates. An error ends the session.
func (s *Session) readXIDs(b *gpu.Batch, now time.Time) error {
	w := s.xidsOfGPUs()
	if w == nil {
		return nil
	}
	x := &s.xids
	if x.parts != 0 {
		r, err := s.engine.latest(x.parts, x.fields)
		if err != nil {
			return s.failXIDs(b, w.fields[0], err, x.order)
		}
		s.eachXID(r, func(h *xidHistory, report xidReport) { h.shown, h.code = report.at, report.code })
	}
	var due []entity
	from, repeats := int64(-1), false
	for _, e := range x.order {
		h := x.histories[e]
		if h.last == 0 && h.code == 0 {
			h.last = h.shown // the engine begins with a 0, before which nothing happened
		}
		if h.shown != h.last {
			h.due, h.until = true, now.Add(lateXID)
		}
		if !h.due {
			continue
		}
		if h.from = max(0, h.last-lateXID.Microseconds()); h.shown < h.last { // the engine's clock was set back
			h.from, repeats = 0, true
			clear(h.told)
		}
		clear(h.found)
		due = append(due, e)
		if from < 0 || h.from < from {
			from = h.from
		}
	}
	if len(due) == 0 {
		return nil
	}
	first := len(b.XIDs)
	report := func(h *xidHistory, x xidReport) {
		if !h.due || x.at < h.from {
			return
		}
		if h.found[x]++; h.found[x] > h.told[x] {
			h.told[x]++
			b.XIDs = append(b.XIDs, gpu.XID{
				Row: h.row, InstanceID: h.instance.nvml, OnInstance: h.instance.group != groupNone,
				Code: x.code, ID: x.at, Time: s.dateAt(x.at),
			})
		}
	}
	if err := s.xidsSince(due, w, from, report); err != nil {
		return s.failXIDs(b, w.fields[0], err, due)
	}
	for _, e := range due {
		h := x.histories[e]
		if x := (xidReport{h.shown, h.code}); h.code != 0 && h.found[x] == 0 { // the engine does not keep it any more
			report(h, x)
		}
	}
	slices.SortStableFunc(b.XIDs[first:], func(a, b gpu.XID) int { return cmp.Compare(a.Time, b.Time) })
	b.XIDsRepeat = b.XIDsRepeat || repeats
	for _, e := range due {
		h := x.histories[e]
		h.last, h.due = h.shown, now.Before(h.until)
		maps.DeleteFunc(h.told, func(r xidReport, _ int) bool { return r.at < h.last-lateXID.Microseconds() })
	}
	return nil
}

// failXIDs makes faults of the XIDs that an error leaves unknown, unless the session is over.
func (s *Session) failXIDs(b *gpu.Batch, field int, err error, of []entity) error {
	if s.isGone(err) {
		return err
	}
	rows := make([]int, len(of))
	for i, e := range of {
		rows[i] = s.xids.histories[e].row
	}
	b.Faults = appendFaults(b.Faults, sortedSet(rows), []int{field}, s.withVersions(err))
	return nil
}

// xidsSince calls do with the XIDs of entities from a time on, or of all entities where the engine
// has no room for another group.
func (s *Session) xidsSince(of []entity, w *watch, from int64, do func(*xidHistory, xidReport)) error {
	group, _, err := s.engine.createGroup(s.nextName(), of)
	if s.isOver(err) {
		return err
	}
	read := func(group handle) error {
		r, err := s.engine.since(group, w.handle, from)
		if err == nil {
			s.eachXID(r, do)
		}
		return err
	}
	if err == nil && group != 0 {
		err := read(group)
		return errors.Join(err, s.onlyOver(s.engine.destroyGroup(group)))
	}
	var errs []error
	for _, w := range s.watches {
		if w.sporadic {
			errs = append(errs, read(w.group.handle))
		}
	}
	if s.xids.parts != 0 {
		errs = append(errs, read(s.xids.parts))
	}
	return errors.Join(errs...)
}

// eachXID calls do with every XID of a readout. 0 is how an engine reports that there was none yet.
func (s *Session) eachXID(r readout, do func(*xidHistory, xidReport)) {
	for i := range r.samples {
		x := &r.samples[i]
		f := s.fieldOf(x)
		if f < 0 || x.at <= 0 || x.at > maxEngineTime {
			continue
		}
		v, err := decode(&s.plan.Fields[f], x, nil)
		code, ok := v.Int64()
		if h := s.xids.histories[entity{x.group, x.entity}]; h != nil && err == nil && ok && code != 0 {
			do(h, xidReport{x.at, code})
		}
	}
}
