package dcgm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Session is a connection to an engine with everything that it watches.
type Session struct {
	plan   *gpu.Plan
	engine engine
	addr   gpu.EngineAddress
	log    *slog.Logger
	name   string // of groups and field groups, with a number
	made   int

	library, version string // of libdcgm and of the engine

	top     *gpu.Topology
	layout  layout
	rows    map[entity]int
	members []entity // per row
	// Plan indexes by field id, -1 for none: of links, and of everything else.
	linkFields, fields []int32

	unidentified []entity  // what did not say who it is, and may say so later
	identified   time.Time // when it was read last

	watches  []*watch
	groups   []*group
	readers  []*reader
	arranged bool // the readers are those of the watches
	slots    []slot
	faults   []gpu.Fault    // of fields that cannot be watched, part of every Read
	reported int            // how many of them the log has
	refused  []refusedWatch // watches that the engine refuses for now
	retry    time.Duration
	renewed  time.Time     // see renew
	patience time.Duration // between two new watches of contradicted fields

	xids xidWatch

	foreign bool  // the engine has another machine's clock
	now     int64 // when the latest call for newest samples returned, in Unix nanoseconds
	newest  int64 // the newest sample of a foreign engine, in its microseconds; see dateOf

	absent    []bool // by row: the GPU was lost when the session opened, so it is in no group
	lost      []bool // by row: lost according to the latest inspection
	detached  []bool // by row: the GPU was detached in this session, so the engine has dropped its watches
	unwatched []bool // by row: in the current Read, the engine said that it does not watch a field of the row
	valued    []int  // by row: number of fields with a value in the current Read
	valuedBy  []int  // by row: the same for the previous Read
	inspected time.Time

	health   healthWatch
	advanced time.Time // when a watch of other fields than profiling last had a new value

	gpu.Lifecycle
	closed bool
}

// open does the work of Source.Open. What it leaves half done, abandon undoes.
func (s *Session) open(ctx context.Context) error {
	steps := []func() error{s.readVersions, s.discover, s.watchAll, s.watchXIDs, s.openHealth, s.engine.update}
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

func (s *Session) openHealth() error { return s.onlyOver(s.watchHealth()) }

func (s *Session) readVersions() error {
	library, version, err := s.engine.versions()
	s.library, s.version = versionOf(library), versionOf(version)
	if err != nil {
		return err
	}
	if releaseOf(s.library) != releaseOf(s.version) {
		s.log.Warn("libdcgm and the engine are of different versions; some requests may fail",
			"libdcgm", s.library, "engine_version", s.version)
	}
	return nil
}

// versionOf returns the version of DCGM's build information (key:value;key:value), "" without one.
func versionOf(buildInfo string) string {
	for pair := range strings.SplitSeq(buildInfo, ";") {
		if key, value, ok := strings.Cut(pair, ":"); ok && strings.TrimSpace(key) == "version" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// releaseOf returns the major and minor number of a version: "4.6" of "4.6.1".
func releaseOf(version string) string {
	if numbers := strings.Split(version, "."); len(numbers) > 2 {
		return strings.Join(numbers[:2], ".")
	}
	return version
}

// withVersions adds both versions to an error of a version mismatch.
func (s *Session) withVersions(err error) error {
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

// Read appends the current samples: one call to the engine per kind of entity, another for fields
// whose every sample is requested, where several came, and now and then those of inspect. Unreadable
// fields become faults. It returns an error if the engine is gone, or if nothing could be read.
func (s *Session) Read(ctx context.Context, b *gpu.Batch) error {
	if s.closed {
		return fmt.Errorf("dcgm: %w: the session is closed", gpu.ErrUnavailable)
	}
	if err := s.Err(); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.retryRefused(begin); err != nil {
		return s.End(s.lostError(err))
	}
	b.Faults = append(b.Faults, s.faults...)
	for _, h := range s.refused {
		b.Faults = appendFaults(b.Faults, h.rows, h.fields, h.err)
	}
	read, failed := s.readAll(ctx, b, begin)
	switch {
	case s.isGone(failed):
		return s.End(s.lostError(failed))
	case ctx.Err() != nil:
		return fmt.Errorf("dcgm: %w", ctx.Err())
	case !read && failed != nil:
		return fmt.Errorf("dcgm: %w", failed)
	}
	if err := s.inspect(b, begin); s.isOver(err) {
		return s.End(s.lostError(err))
	}
	if err := s.renew(begin, b.Contradicted); err != nil {
		return s.End(s.lostError(err))
	}
	// An embedded engine forgets its XIDs when the session ends.
	if err := s.readXIDs(b, begin, s.Err() != nil); err != nil {
		return s.End(s.lostError(err))
	}
	b.DropSamples(s.lost)
	if err := errors.Join(s.readHealth(b), s.readPeers(b)); err != nil {
		return s.End(s.lostError(err))
	}
	for row, requested := range b.RequestProcesses {
		if requested {
			b.Fail(row, gpu.FieldProcesses, errNoProcesses)
		}
	}
	return nil
}

// DCGM accounts for processes that have ended; how busy one is now it does not know.
var errNoProcesses = fmt.Errorf("dcgm: the processes of a GPU: %w", gpu.ErrNotSupported)

// isOver reports whether an error means that the engine is gone for good.
func (s *Session) isOver(err error) bool {
	var r *resultError
	return errors.As(err, &r) && endsSession(r.code)
}

// isGone reports whether an error of a read means that only a new session helps: the engine is gone,
// or was restarted beneath the connection and does not know our groups.
func (s *Session) isGone(err error) bool { return s.isOver(err) || hasCode(err, codeNotConfigured) }

// onlyOver returns err if it means that the engine is gone.
func (s *Session) onlyOver(err error) error {
	if s.isOver(err) {
		return err
	}
	return nil
}

// onlyGone returns err if it means that only a new session helps.
func (s *Session) onlyGone(err error) error {
	if s.isGone(err) {
		return err
	}
	return nil
}

func (s *Session) lostError(err error) error {
	if hasCode(err, codeNotConfigured) {
		return fmt.Errorf("dcgm: %w: the engine at %v was restarted: %w", gpu.ErrLost, s.addr, err)
	}
	return fmt.Errorf("dcgm: the engine at %v is gone: %w", s.addr, err)
}

// appendFaults appends a fault of each field of each row.
func appendFaults(list []gpu.Fault, rows, fields []int, err error) []gpu.Fault {
	for _, f := range fields {
		for _, row := range rows {
			list = append(list, gpu.Fault{Row: row, Field: f, Err: err})
		}
	}
	return list
}

// Close gives up everything that the session holds at the engine. A remote one forgets it with the
// connection, without a line in its log for each unwatch that it thinks is of nothing.
func (s *Session) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	ended := s.Err() != nil && !errors.Is(s.Err(), gpu.ErrTopology)
	var errs []error
	if s.addr.IsEmbedded() && !ended {
		errs = append(errs, s.unwatchHealth(), s.unwatchXIDs(), s.unwatchAll())
	}
	err := errors.Join(append(errs, s.engine.close())...)
	if err != nil && ended {
		s.log.Debug("Close of the connection to an engine that is gone", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("dcgm: close: %w", err)
	}
	return nil
}

// abandon closes a session that could not be opened because of err.
func (s *Session) abandon(err error) {
	if s.isOver(err) {
		_ = s.End(err)
	}
	if err := s.Close(); err != nil {
		s.log.Debug("Close of a session that did not open", "error", err)
	}
}
