package dcgm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/counters"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// maxAgeIntervals is how many sampling intervals old a sample can be while the
// engine works, with room for an engine that is late.
const maxAgeIntervals = 3

// A Session is a connection to an engine with everything that it watches.
type Session struct {
	plan   *gpu.Plan
	engine engine
	addr   address
	log    *slog.Logger
	name   string // of groups and field groups, with a number
	made   int

	library, version string // of libdcgm and of the engine
	release          release

	top     *gpu.Topology
	layout  layout
	rows    map[entity]int
	members []entity // per row
	wanted  map[audience]bool
	fields  []int32 // plan index by field id, -1 for none

	watches []*watch
	groups  []*group
	faults  []gpu.Fault // of what cannot be watched, part of every Read
	maxAge  time.Duration

	texts map[cell]string
	every newestSamples // of the fields of which every sample is asked for
	again bool          // the next Read reports XIDs again, from the engine's oldest on
	clock clock
	lost  []bool  // per row, of the Read under way
	gone  []error // per row, why the GPU is not read; made once each

	health healthWatch
	peers  peerWatch
	prof   profilingState

	done   chan struct{}
	err    error
	closed bool
}

// A cell is one field of one entity.
type cell struct{ row, field int }

// open does the work of Source.Open. What it leaves half done, abandon undoes.
func (s *Session) open(ctx context.Context) error {
	steps := []func() error{s.readVersions, s.beginPaused, s.discover, s.watchAll, s.watchHealth, s.engine.update}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	s.log.Debug("DCGM session open", "libdcgm", s.library, "engine_version", s.version, "entities", len(s.top.Devices),
		"watches", len(s.watches), "refused", len(s.faults))
	return nil
}

func (s *Session) readVersions() error {
	library, version, err := s.engine.versions()
	s.library, s.version = versionOf(library), versionOf(version)
	if err != nil {
		return err
	}
	s.release = releaseOf(s.version)
	if own := releaseOf(s.library); own != s.release {
		s.log.Warn("libdcgm and the engine are of different versions; some requests may fail",
			"libdcgm", s.library, "engine_version", s.version)
	}
	return nil
}

// inWords adds both versions to an error of a version mismatch.
func (s *Session) inWords(err error) error {
	if !errors.Is(err, gpu.ErrVersion) {
		return err
	}
	version := s.version
	if version == "" {
		version = "of unknown version"
	}
	return fmt.Errorf("libdcgm %s and the engine %s at %v do not understand each other; install the same DCGM version on both sides: %w",
		s.library, version, s.addr, err)
}

// Topology returns the entities of the session.
func (s *Session) Topology() *gpu.Topology { return s.top }

// Done is closed when the session is over: the engine is gone, or the set of
// entities is another one.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why Done is closed; nil while it is not.
func (s *Session) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// end closes Done, once.
func (s *Session) end(err error) error {
	select {
	case <-s.done:
	default:
		s.err = err
		close(s.done)
	}
	return s.err
}

// Read appends the current samples: one call to the engine per watch, and
// three for the state of the GPUs and the topology, whatever their number.
// What cannot be read becomes a fault. It returns an error if the engine is
// gone, or if no watch could be read.
func (s *Session) Read(ctx context.Context, b *gpu.Batch) error {
	if s.closed {
		return fmt.Errorf("dcgm: %w: the session is closed", gpu.ErrUnavailable)
	}
	if err := s.Err(); err != nil {
		return err
	}
	start, xids := len(b.Samples), len(b.XIDs)
	begin := time.Now()
	if err := s.retryHeld(begin); err != nil {
		return s.end(s.overInWords(err))
	}
	b.Faults = append(b.Faults, s.faults...)
	b.XIDsRepeat, s.again = b.XIDsRepeat || s.again, false
	s.blameHeld(b)
	clear(s.lost)

	var newest int64
	var failed error
	read := 0
	for _, w := range s.watches {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("dcgm: %w", err)
		}
		if w.profiling && s.prof.paused {
			blame(b, w.group.rows, w.fields, errPaused)
			continue
		}
		samples, faults := len(b.Samples), len(b.Faults)
		at, err := s.readWatch(w, b)
		if s.isOver(err) || s.isForgotten(err) {
			return s.end(s.overInWords(err))
		}
		if err != nil {
			failed = s.inWords(err)
			blame(b, w.group.rows, w.fields, failed)
			continue
		}
		s.rewind(w, at)
		s.follow(w, at, b.Samples[samples:], b.Faults[faults:], begin)
		newest = max(newest, at)
		read++
	}
	if read == 0 && failed != nil {
		return fmt.Errorf("dcgm: %w", failed)
	}
	if shift := s.clock.observe(newest*1000, time.Now().UnixNano(), s.maxAge); shift != 0 {
		s.log.Info("The engine's clock differs from this machine's", "offset", time.Duration(s.clock.offset))
		for i := range b.Samples[start:] {
			b.Samples[start+i].Time += shift
		}
		for i := range b.XIDs[xids:] {
			b.XIDs[xids+i].Time += shift
		}
		s.every.shift(shift)
	}
	if err := s.watchGPUs(b); s.isOver(err) {
		return s.end(s.overInWords(err))
	}
	if err := s.renewStale(begin); err != nil {
		return s.end(s.overInWords(err))
	}
	s.drop(b, start)
	if err := errors.Join(s.readHealth(b), s.readPeers(b)); err != nil {
		return s.end(s.overInWords(err))
	}
	declineProcesses(b)
	return nil
}

// errNoProcesses: DCGM accounts for processes when they have ended and for
// groups that ask for it, which is not how busy each keeps a GPU now.
var errNoProcesses = fmt.Errorf("dcgm: the processes of a GPU: %w", gpu.ErrNotSupported)

func declineProcesses(b *gpu.Batch) {
	for row, wanted := range b.WantProcesses {
		if wanted {
			b.Fail(row, gpu.FieldProcesses, errNoProcesses)
		}
	}
}

// isOver reports whether an error means that the engine is gone for good.
func (s *Session) isOver(err error) bool {
	var r *resultError
	return errors.As(err, &r) && endsSession(r.code)
}

// isForgotten reports whether an error of a read means that the engine no
// longer knows our groups, as one that was restarted beneath the connection
// does. Only new groups help, and so only a new session.
func (s *Session) isForgotten(err error) bool {
	var r *resultError
	return errors.As(err, &r) && r.code == codeNotConfigured
}

func (s *Session) overInWords(err error) error {
	if s.isForgotten(err) {
		return fmt.Errorf("dcgm: %w: the engine at %v was restarted: %w", gpu.ErrLost, s.addr, err)
	}
	return fmt.Errorf("dcgm: the engine at %v is gone: %w", s.addr, err)
}

// blame makes faults of fields that could not be read of some rows.
func blame(b *gpu.Batch, rows, fields []int, err error) {
	for _, f := range fields {
		for _, row := range rows {
			b.Fail(row, f, err)
		}
	}
}

// readWatch appends what a watch has to tell, and returns the time of its
// newest sample in the engine's microseconds.
func (s *Session) readWatch(w *watch, b *gpu.Batch) (newest int64, err error) {
	var r readout
	if w.every() {
		var next int64
		if r, next, err = s.engine.since(w.group.handle, w.handle, w.from); err == nil {
			w.from = next
		}
	} else {
		r, err = s.engine.latest(w.group.handle, w.handle)
	}
	if err != nil {
		return 0, err
	}
	start := len(b.Samples)
	var last entity // its row, since samples come an entity after another
	row, known := 0, false
	for i := range r.samples {
		x := &r.samples[i]
		if w.after > 0 && x.at <= w.after {
			continue // of before a pause
		}
		if x.status == 0 {
			newest = max(newest, x.at)
		}
		f := s.fieldOf(x.field)
		if f < 0 {
			continue
		}
		if x.group == groupNone { // a field of the node, asked of every entity
			for _, row := range w.group.rows {
				s.add(b, row, f, x, r)
			}
			continue
		}
		if e := (entity{x.group, x.entity}); i == 0 || e != last {
			last = e
			row, known = s.rows[e]
		}
		if known {
			s.add(b, row, f, x, r)
		}
	}
	if w.every() {
		s.every.complete(w, b, start, time.Now().UnixNano())
	}
	return newest, nil
}

// rewind begins anew with the samples that the engine keeps if the newest one of
// a watch shows that the engine's clock was set back: it would give none that is
// older than the last one that it gave.
func (s *Session) rewind(w *watch, newest int64) {
	if w.every() || w.profiling || newest == 0 || newest >= w.newest-tolerance.Microseconds() {
		return
	}
	s.log.Info("The engine's clock was set back", "by", time.Duration(w.newest-newest)*time.Microsecond)
	for _, other := range s.watches {
		if other.events {
			other.from, s.again = 0, true
		}
		if !other.profiling {
			other.newest = min(other.newest, newest)
		}
	}
}

func (s *Session) fieldOf(id uint16) int {
	if int(id) >= len(s.fields) {
		return -1
	}
	return int(s.fields[id])
}

// add appends one sample, or the fault that stands in its place.
func (s *Session) add(b *gpu.Batch, row, f int, x *sample, r readout) {
	field := &s.plan.Fields[f]
	text := r.textOf(x)
	if field.Text && x.kind == kindText && x.status == 0 && x.at > 0 {
		// Texts hardly ever change: the string is made when they do.
		key := cell{row, f}
		if known, ok := s.texts[key]; ok && string(text) == known {
			b.AddAt(row, f, gpu.Text(known), s.timeOf(x))
			return
		}
		if v, _ := decode(field, x, text); !v.IsAbsent() {
			s.texts[key] = v.String()
		}
	}
	v, err := decode(field, x, text)
	if err != nil {
		b.Fail(row, f, err)
		return
	}
	if field.ID == counters.FieldXID {
		s.addXID(b, row, v, x)
		return
	}
	if unit, ok := asRead(field.ID, s.release, x.kind == kindDouble); ok {
		v = convert(v, unit, field.Unit)
	}
	b.AddAt(row, f, v, s.timeOf(x))
}

// addXID appends an XID. The engine's own time of it is what it is known by in
// every session. 0 is how an engine says that there was none yet.
func (s *Session) addXID(b *gpu.Batch, row int, v gpu.Value, x *sample) {
	if n, ok := v.Number(); ok && n != 0 {
		b.XIDs = append(b.XIDs, gpu.XID{Row: row, Code: int64(n), ID: x.at, Time: s.timeOf(x)})
	}
}

func (s *Session) timeOf(x *sample) int64 { return x.at*1000 + s.clock.offset }

// drop takes the samples of lost rows out of a batch, from start on.
func (s *Session) drop(b *gpu.Batch, start int) {
	if !slices.Contains(s.lost, true) {
		return
	}
	kept := slices.DeleteFunc(b.Samples[start:], func(x gpu.Sample) bool { return s.lost[x.Row] })
	b.Samples = b.Samples[:start+len(kept)]
}

// Close gives up everything that the session holds at the engine. An engine
// that is gone holds nothing any more.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	ended := s.Err() != nil && !errors.Is(s.err, gpu.ErrTopology)
	if ended {
		_ = s.leaveProfiling(true) // asks nothing of an engine that is gone
		if err := s.engine.close(); err != nil {
			s.log.Debug("Close of the connection to an engine that is gone", "error", err)
		}
		return nil
	}
	if err := errors.Join(s.unwatchHealth(), s.unwatchAll(), s.leaveProfiling(false), s.engine.close()); err != nil {
		return fmt.Errorf("dcgm: close: %w", err)
	}
	return nil
}

// abandon closes a session that could not be opened because of err.
func (s *Session) abandon(err error) {
	if s.isOver(err) {
		s.end(err)
	}
	if err := s.Close(); err != nil {
		s.log.Debug("Close of a session that did not open", "error", err)
	}
}
