package dcgm

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	// lateXID is how long after its date an XID may be stored. The engine stores XIDs of the kernel log a second or two
	// after their date, and so after later XIDs that have been read already.
	lateXID = 10 * time.Second
	// wholeHistoryInterval is how often the whole history is read. XIDs of the kernel log may be dated minutes off,
	// since the clock of the log drifts.
	wholeHistoryInterval = time.Minute
)

// Special values of xidHistory.code.
const (
	noXID    = 0  // the engine reports that there has been no XID
	blankXID = -1 // a blank sample, which the engine appends while a GPU is lost or cannot be read
)

// xidCode returns the code in a sample of the XID field.
func xidCode(v gpu.Value) int64 {
	if code, ok := v.Int64(); ok {
		return code
	}
	return blankXID
}

// An xidWatch reads the XIDs of the GPUs and of their MIG instances. The engine stores an XID that names an instance
// only for that instance. The batched read shows which entities have a new sample, which may be a blank that hides an
// XID. Their histories are read then, and once more after lateXID.
type xidWatch struct {
	parts     *watch // watch of the instances; nil if there are none or the engine refuses it
	histories map[entity]*xidHistory
	order     []*xidHistory // the histories in the order in which they were added
	whole     time.Time     // when the whole history was last read
}

// An xidHistory holds the XIDs of one entity. Times are the engine's microseconds.
type xidHistory struct {
	entity      entity
	row         int
	instance    instance // the instance that the XIDs name; zero for the GPU
	shown, last int64    // time of the newest sample in this Read, and in the previous one
	code        int64    // code of the newest sample, noXID or blankXID
	from        int64    // where the read of the history starts
	due         bool
	until       time.Time // the history is read until one Read after this time

	reported, found map[xidReport]int // number of times each XID was reported, and found by this Read
}

// An xidReport identifies an XID.
type xidReport struct{ at, code int64 }

// of returns the history of an entity: the GPU of a row, or an instance of it.
func (x *xidWatch) of(e entity, row int) *xidHistory {
	h := x.histories[e]
	if h == nil {
		h = &xidHistory{entity: e, row: row, reported: map[xidReport]int{}, found: map[xidReport]int{}}
		x.histories[e] = h
		x.order = append(x.order, h)
	}
	return h
}

// xidsOfGPUs returns the watch of the XIDs of GPUs, or nil if there is none.
func (s *Session) xidsOfGPUs() *watch {
	if i := slices.IndexFunc(s.watches.list, func(w *watch) bool { return w.sporadic }); i >= 0 {
		return s.watches.list[i]
	}
	return nil
}

// watchXIDs makes the engine keep the XIDs of the instances of the watched GPUs. It only returns an error if the engine
// is lost.
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
	h, _, err := s.engine.createGroup(s.nextName(), parts)
	if err == nil && h != 0 {
		if err = s.engine.watch(h, w.handle, w.interval, w.keepAge(), 0); err == nil {
			s.xids.parts = &watch{group: &group{handle: h}, handle: w.handle, sampling: w.sampling}
			return nil
		}
		err = errors.Join(err, s.engine.destroyGroup(h))
	}
	if err != nil {
		s.log.Info("The engine does not watch the XIDs of MIG instances", "error", s.withVersions(err))
	}
	return reopenOnly(err)
}

// unwatchXIDs undoes watchXIDs.
func (s *Session) unwatchXIDs() error {
	p := s.xids.parts
	if p == nil {
		return nil
	}
	return errors.Join(s.engine.unwatch(p.group.handle, p.handle), s.engine.destroyGroup(p.group.handle))
}

// readXIDs appends the new XIDs in the order of their dates. If whole is set, it reads the whole history. An error ends
// the session.
func (s *Session) readXIDs(b *gpu.Batch, now time.Time, whole bool) error {
	w := s.xidsOfGPUs()
	if w == nil {
		return nil
	}
	x := &s.xids
	if x.parts != nil {
		r, err := s.engine.latest(x.parts.group.handle, x.parts.handle)
		if err != nil {
			return s.failXIDs(b, w.fields[0], err, x.order)
		}
		s.eachXID(r, func(h *xidHistory, report xidReport) { h.shown, h.code = report.at, report.code })
	}
	if x.whole.IsZero() {
		x.whole = now // the first Read reads each history that has a sample
	}
	whole = whole || now.Sub(x.whole) >= wholeHistoryInterval
	due, from, repeats := x.due(now, whole, s.lost)
	if len(due) == 0 {
		return nil
	}
	first := len(b.XIDs)
	if err := s.readHistories(b, due, w, from); err != nil {
		return s.failXIDs(b, w.fields[0], err, due)
	}
	for _, h := range due {
		if newest := (xidReport{h.shown, h.code}); h.code > noXID && h.found[newest] == 0 { // no longer in the history
			s.addXID(b, h, newest)
		}
	}
	slices.SortStableFunc(b.XIDs[first:], func(a, b gpu.XID) int { return cmp.Compare(a.Time, b.Time) })
	b.XIDsRepeat = b.XIDsRepeat || repeats
	x.finish(due, now, whole)
	return nil
}

// addXID appends an XID of a history that is due, unless it was reported before.
func (s *Session) addXID(b *gpu.Batch, h *xidHistory, r xidReport) {
	if !h.due || r.at < h.from || r.code <= noXID {
		return
	}
	if h.found[r]++; h.found[r] <= h.reported[r] {
		return
	}
	h.reported[r]++
	b.XIDs = append(b.XIDs, gpu.XID{
		Row: h.row, InstanceID: h.instance.nvml, OnInstance: h.instance.group != groupNone,
		Code: r.code, ID: r.at, Time: s.clock.dateAt(r.at),
	})
}

// finish records that the due histories were read.
func (x *xidWatch) finish(due []*xidHistory, now time.Time, whole bool) {
	if whole {
		x.whole = now
	}
	for _, h := range due {
		h.last, h.due = h.shown, now.Before(h.until)
		if whole { // forget the XIDs that the engine has dropped
			maps.DeleteFunc(h.reported, func(r xidReport, _ int) bool { return h.found[r] == 0 })
		}
	}
}

// due returns the histories that must be read, and the earliest time from which to read them. If whole is set, these
// are all histories from the beginning. The history of a lost row is read from the beginning in every Read,
// because the next session may not have the row. If repeats is true, XIDs that were reported before will be reported
// again.
func (x *xidWatch) due(now time.Time, whole bool, lost []bool) (due []*xidHistory, from int64, repeats bool) {
	from = maxEngineTime
	for _, h := range x.order {
		if h.last == 0 && h.code == noXID {
			h.last = h.shown // the engine's first sample is 0; there are no XIDs before it
		}
		if h.shown != h.last {
			h.due, h.until = true, now.Add(lateXID)
		}
		isWhole := whole || lost[h.row]
		h.due = h.due || isWhole && h.shown != 0
		if !h.due {
			continue
		}
		h.from = max(0, h.last-lateXID.Microseconds())
		if isWhole {
			h.from = 0
		}
		if h.shown < h.last { // the engine's clock was set back
			h.from, repeats = 0, true
			clear(h.reported)
		}
		clear(h.found)
		due = append(due, h)
		from = min(from, h.from)
	}
	return due, from, repeats
}

// failXIDs adds faults for the XIDs that could not be read. It returns err if that ends the session.
func (s *Session) failXIDs(b *gpu.Batch, field int, err error, unread []*xidHistory) error {
	if severityOf(err) == reopen {
		return err
	}
	rows := mapped(unread, func(h *xidHistory) int { return h.row })
	b.Faults = appendFaults(b.Faults, sortedSet(rows), []int{field}, s.withVersions(err))
	return nil
}

// readHistories appends the XIDs of the due histories since a time. It reads a group of only their entities, because
// the call is costly. If the engine rejects the group, as it does for a lost GPU, all entities are read.
func (s *Session) readHistories(b *gpu.Batch, due []*xidHistory, w *watch, from int64) error {
	members := mapped(due, func(h *xidHistory) entity { return h.entity })
	group, refused, err := s.engine.createGroup(s.nextName(), members)
	if severityOf(err) == reopen {
		return err
	}
	read := func(group, fields handle) error {
		found, err := s.engine.since(group, fields, from)
		if err == nil {
			s.eachXID(found, func(h *xidHistory, report xidReport) { s.addXID(b, h, report) })
		}
		return err
	}
	var errs []error
	if group != 0 && len(refused) == 0 {
		errs = append(errs, read(group, w.handle))
	} else {
		for _, w := range append(slices.Clone(s.watches.list), s.xids.parts) {
			if w != nil && w.sporadic {
				errs = append(errs, read(w.group.handle, w.handle))
			}
		}
	}
	if group != 0 {
		errs = append(errs, reopenOnly(s.engine.destroyGroup(group)))
	}
	return errors.Join(errs...)
}

// eachXID calls do with every sample of the XID field in a readout.
func (s *Session) eachXID(found readout, do func(*xidHistory, xidReport)) {
	for i := range found.samples {
		raw := &found.samples[i]
		field := s.fieldOf(raw)
		if field < 0 || raw.status != 0 || raw.at <= 0 || raw.at > maxEngineTime {
			continue
		}
		if h := s.xids.histories[entity{raw.group, raw.entity}]; h != nil {
			value, _ := decode(&s.plan.Fields[field], raw, nil) // ignore the error: xidCode recognizes a blank
			do(h, xidReport{raw.at, xidCode(value)})
		}
	}
}
