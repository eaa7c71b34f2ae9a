package dcgm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Session is a connection to an engine, with everything that it watches.
type Session struct {
	plan   *gpu.Plan
	engine engine
	addr   gpu.EngineAddress
	log    *slog.Logger
	name   string // prefix of the names of groups and field groups
	made   int

	library, version string // of libdcgm and the engine

	top     *gpu.Topology
	layout  layout
	rows    map[entity]int
	members []entity // by row
	// Index in the plan by field ID, or -1: for links, and for everything else.
	linkFields, fields []int32

	unidentified []entity  // devices that did not report their identity and may do so later
	identified   time.Time // time of the last attempt

	watches  []*watch
	groups   []*group
	readers  []*reader
	arranged bool // the readers match the watches
	slots    []slot
	faults   []gpu.Fault    // faults of fields that cannot be watched, added to every Read
	reported int            // how many of them were logged
	refused  []refusedWatch // watches that the engine rejects temporarily
	retry    time.Duration
	renewed  time.Time     // time of the last renew
	patience time.Duration // time between two new watches of contradicted fields

	mayNotProfile bool // see Options

	xids xidWatch

	foreign bool  // the engine runs on another machine and has another clock
	now     int64 // when the latest call for newest samples returned, in Unix nanoseconds
	newest  int64 // newest sample of a remote engine, in its microseconds; see dateOf

	absent    []bool // by row: the GPU was lost when the session opened, so it is in no group
	lost      []bool // by row: lost according to the latest inspection
	detached  []bool // by row: the GPU was detached in this session, so the engine has dropped its watches
	unwatched []bool // by row: in the current Read, the engine reported that a field is not watched
	valued    []int  // by row: number of fields with a value in the current Read
	valuedBy  []int  // by row: the same for the previous Read
	inspected time.Time

	health   healthWatch
	advanced time.Time // when a watch of non-profiling fields last had a new value

	gpu.Lifecycle
	closed bool
}

// open does the work of Source.Open. If it fails, abandon cleans up.
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

func (s *Session) openHealth() error { return reopenOnly(s.watchHealth()) }

// Topology returns the entities of the session.
func (s *Session) Topology() *gpu.Topology { return s.top }

// Read appends the current samples. It makes one call for each kind of entity, and one more for fields of which all
// samples are requested, if there was more than one. Occasionally it also inspects the entities. Fields that cannot be
// read become faults. It returns an error if the engine is gone or nothing could be read.
func (s *Session) Read(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
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
	case severityOf(failed) == reopen:
		return s.End(s.lostError(failed))
	case ctx.Err() != nil:
		return fmt.Errorf("dcgm: %w", ctx.Err())
	case !read && failed != nil:
		return fmt.Errorf("dcgm: %w", failed)
	}
	if err := s.inspect(b, begin); severityOf(err) == reopen {
		return s.End(s.lostError(err))
	}
	if err := s.renew(begin, req.Contradicted); err != nil {
		return s.End(s.lostError(err))
	}
	// An embedded engine loses its XIDs when the session ends.
	if err := s.readXIDs(b, begin, s.Err() != nil); err != nil {
		return s.End(s.lostError(err))
	}
	b.DropSamples(s.lost)
	if err := errors.Join(s.readHealth(b), s.readPeers(b)); err != nil {
		return s.End(s.lostError(err))
	}
	for row, requested := range req.Processes {
		if requested {
			b.FailPart(row, gpu.PartProcesses, errNoProcesses)
		}
	}
	return nil
}

// errNoProcesses is the fault of processes: DCGM only accounts for processes that have exited, and has no live
// utilization.
var errNoProcesses = fmt.Errorf("dcgm: the processes of a GPU: %w", gpu.ErrNotSupported)

// Close releases everything that the session holds at the engine. A remote engine releases it when the connection
// closes, without the ERROR lines that it would log for some unwatches.
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
		s.log.Debug("Closing the connection to a lost engine failed", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("dcgm: close: %w", err)
	}
	return nil
}

// abandon closes a session that could not be opened because of err.
func (s *Session) abandon(err error) {
	if severityOf(err) == reopen {
		_ = s.End(err)
	}
	if err := s.Close(); err != nil {
		s.log.Debug("Closing a session that could not be opened failed", "error", err)
	}
}
