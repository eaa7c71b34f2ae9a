package dcgm

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The limits of an engine. A field group takes one field less than the
// constant of the header says (DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP).
const (
	maxFields   = 127
	maxEntities = 1024
)

// keepSamples is how many samples of a field the engine keeps of which the
// newest alone is read.
const keepSamples = 2

// A group is an entity group at the engine, shared by its watches.
type group struct {
	handle handle
	rows   []int
}

// A watch is a field group that is sampled for a group.
type watch struct {
	group  *group
	handle handle // of the field group
	fields []int  // plan indexes
	sampling
	from     int64     // where the next read of every sample goes on, in the engine's microseconds
	after    int64     // samples up to here are of before a pause, in the engine's microseconds
	newest   int64     // of its samples; see follow
	advanced time.Time // of a profiling watch, when newest was seen
	renewed  time.Time // of a profiling watch; see renewStale
}

// A sampling is what the fields of one watch have in common.
type sampling struct {
	interval  time.Duration
	events    bool // gpu.Field.Events
	burst     bool // gpu.Field.Burst of a field without Events
	profiling bool
}

// every reports whether every sample is read, and not the newest alone.
func (k sampling) every() bool { return k.events || k.burst }

// watchAll watches every field of the plan for the rows that have it. What the
// engine refuses becomes a standing fault; only a lost engine is an error.
func (s *Session) watchAll() error {
	s.texts = map[cell]string{}
	s.indexFields()
	s.every.set(s.plan, len(s.top.Devices))
	s.unserved()
	for _, a := range audiences {
		var rows []int
		for row := range s.top.Devices {
			if audienceOf(s.top.Devices[row].Entity) == a {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		var order []sampling
		fields := map[sampling][]int{}
		for f := range s.plan.Fields {
			field := &s.plan.Fields[f]
			if !a.has(field) {
				continue
			}
			key := sampling{s.plan.IntervalOf(f), field.Events, field.Burst && !field.Events, field.Profiling}
			if fields[key] == nil {
				order = append(order, key)
			}
			fields[key] = append(fields[key], f)
		}
		for _, key := range order {
			if err := s.watchCapable(rows, fields[key], key); err != nil {
				return err
			}
		}
	}
	return s.dropGroups(func(g *group) bool {
		return !slices.ContainsFunc(s.watches, func(w *watch) bool { return w.group == g })
	})
}

// dropGroups destroys the groups that unused picks.
func (s *Session) dropGroups(unused func(*group) bool) error {
	var errs []error
	s.groups = slices.DeleteFunc(s.groups, func(g *group) bool {
		if !unused(g) {
			return false
		}
		errs = append(errs, s.engine.destroyGroup(g.handle))
		return true
	})
	return errors.Join(errs...)
}

// indexFields makes the way back from field ids to the plan.
func (s *Session) indexFields() {
	s.maxAge = maxAgeIntervals * s.plan.Interval
	for f := range s.plan.Fields {
		field := &s.plan.Fields[f]
		for len(s.fields) <= int(field.ID) {
			s.fields = append(s.fields, -1)
		}
		s.fields[field.ID] = int32(f)
		s.maxAge = max(s.maxAge, maxAgeIntervals*s.plan.IntervalOf(f))
	}
}

// watchCapable watches profiling fields for the GPUs that have them, GPUs of
// equal capability together, and all other fields for all rows.
func (s *Session) watchCapable(rows, fields []int, key sampling) error {
	if !key.profiling {
		return s.watchChunks(rows, fields, key)
	}
	type part struct{ rows, fields []int }
	var parts []*part
	for _, row := range rows {
		has, err := s.engine.profiling(s.top.Devices[row].GPU)
		if s.isOver(err) {
			return err
		}
		var own []int
		for _, f := range fields {
			if slices.Contains(has, s.plan.Fields[f].ID) {
				own = append(own, f)
				continue
			}
			why := err
			if why == nil {
				why = fmt.Errorf("%w: GPU %d does not profile it", gpu.ErrNotSupported, s.top.Devices[row].GPU)
			}
			s.refuse([]int{row}, []int{f}, why)
		}
		if len(own) == 0 {
			continue
		}
		i := slices.IndexFunc(parts, func(p *part) bool { return slices.Equal(p.fields, own) })
		if i < 0 {
			i = len(parts)
			parts = append(parts, &part{fields: own})
		}
		parts[i].rows = append(parts[i].rows, row)
	}
	for _, p := range parts {
		if s.prof.paused {
			s.prof.held = append(s.prof.held, heldWatch{p.rows, p.fields, key, errPaused})
			continue
		}
		if err := s.watchChunks(p.rows, p.fields, key); err != nil {
			return err
		}
	}
	return nil
}

// watchChunks watches in pieces that an engine takes.
func (s *Session) watchChunks(rows, fields []int, key sampling) error {
	for r := range slices.Chunk(rows, maxEntities) {
		for f := range slices.Chunk(fields, maxFields) {
			if err := s.watchOrSplit(r, f, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// watchOrSplit watches, and halves what the engine refuses until it is known
// which field of which entity it is, so that one costs only itself.
func (s *Session) watchOrSplit(rows, fields []int, key sampling) error {
	err := s.tryWatch(rows, fields, key)
	switch byRows, hopeless := s.refusal(err); {
	case err == nil:
		return nil
	case s.isOver(err) || errors.Is(err, gpu.ErrTimeout):
		return err
	case key.profiling && isHeld(err):
		s.hold(rows, fields, key, s.inWords(err))
		return nil
	case hopeless || len(rows) == 1 && len(fields) == 1:
		s.refuse(rows, fields, s.inWords(err))
		return nil
	case len(rows) > 1 && (byRows || len(fields) == 1):
		if err := s.watchOrSplit(rows[:len(rows)/2], fields, key); err != nil {
			return err
		}
		return s.watchOrSplit(rows[len(rows)/2:], fields, key)
	default:
		if err := s.watchOrSplit(rows, fields[:len(fields)/2], key); err != nil {
			return err
		}
		return s.watchOrSplit(rows, fields[len(fields)/2:], key)
	}
}

// refusal says whether an error is about some of the entities rather than some
// of the fields, and whether a smaller watch would meet it just as well.
func (s *Session) refusal(err error) (byRows, hopeless bool) {
	var r *resultError
	if !errors.As(err, &r) {
		return false, false
	}
	switch r.code {
	case codeGroupIncompatible, codeGPULost, codeGPUNotSupported, codeProfilingMissing:
		return true, false
	case codeNoPermission, codeRequiresRoot, codeMaxLimit, codeModuleNotLoaded, codeVersionMismatch, codePaused, codeInUse:
		return false, true
	default:
		return false, false
	}
}

func (s *Session) refuse(rows, fields []int, err error) {
	for _, f := range fields {
		s.log.Warn("A field is not watched", "field", s.plan.Fields[f].Name, "entities", len(rows), "error", err)
		for _, row := range rows {
			s.faults = append(s.faults, gpu.Fault{Row: row, Field: f, Err: err})
		}
	}
}

func (s *Session) tryWatch(rows, fields []int, key sampling) error {
	ids := make([]gpu.FieldID, len(fields))
	for i, f := range fields {
		ids[i] = s.plan.Fields[f].ID
	}
	fieldGroup, err := s.engine.createFieldGroup(s.nextName(), ids)
	if err != nil {
		return err
	}
	g, err := s.groupOf(rows)
	if err == nil {
		err = s.startWatch(g, fieldGroup, key)
	}
	if err != nil {
		return errors.Join(err, s.engine.destroyFieldGroup(fieldGroup))
	}
	s.watches = append(s.watches, &watch{group: g, handle: fieldGroup, fields: fields, sampling: key,
		from: s.firstSample(key), advanced: time.Now()})
	return nil
}

// startWatch has the engine sample a field group for a group.
func (s *Session) startWatch(g *group, fieldGroup handle, key sampling) error {
	keepAge, keep := s.retention(key)
	return s.engine.watch(g.handle, fieldGroup, key.interval, keepAge, keep)
}

// groupOf returns the engine's group of these rows, made if need be.
func (s *Session) groupOf(rows []int) (*group, error) {
	for _, g := range s.groups {
		if slices.Equal(g.rows, rows) {
			return g, nil
		}
	}
	members := make([]entity, len(rows))
	for i, row := range rows {
		members[i] = s.members[row]
	}
	h, err := s.engine.createGroup(s.nextName(), members)
	if err != nil {
		return nil, err
	}
	g := &group{handle: h, rows: slices.Clone(rows)}
	s.groups = append(s.groups, g)
	return g, nil
}

// nextName returns a name that no other group of the engine has.
func (s *Session) nextName() string {
	s.made++
	return fmt.Sprintf("%s-%d", s.name, s.made)
}

// unwatchAll undoes watchAll. Errors do not stop it.
func (s *Session) unwatchAll() error {
	var errs []error
	for _, w := range s.watches {
		errs = append(errs, s.engine.unwatch(w.group.handle, w.handle), s.engine.destroyFieldGroup(w.handle))
	}
	s.watches = nil
	errs = append(errs, s.dropGroups(func(*group) bool { return true }))
	return errors.Join(errs...)
}
