package dcgm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Session is an open connection to an engine. It reads the entities of its inventory.
type Session struct {
	gpu.Lifecycle
	closed bool

	*inventory
	watches *watchSet  // what the engine samples
	gpus    *inspector // lost GPUs and changes of the entities

	fields []int // see indexFields
	clock  clock
	xids   xidWatch
	health healthWatch
}

// newSession returns a session that is not open yet.
func newSession(c *conn, plan *gpu.Plan) *Session {
	inv := &inventory{conn: c, plan: plan}
	gpus := &inspector{inventory: inv}
	return &Session{
		Lifecycle: gpu.NewLifecycle(), inventory: inv, watches: &watchSet{inventory: inv, gpus: gpus}, gpus: gpus,
		fields: indexFields(plan), clock: clock{foreign: !c.addr.IsLocal()},
		xids: xidWatch{histories: map[entity]*xidHistory{}},
	}
}

// open does the work of Source.Open. If it fails, abandon cleans up.
func (s *Session) open(ctx context.Context) error {
	// If the engine rejects the health watches, readHealth tries again.
	openHealth := func() error { return reopenOnly(s.watchHealth()) }
	steps := []func() error{
		s.readVersions, s.discover, s.gpus.start, s.watches.watchAll, s.watchXIDs, openHealth, s.engine.update,
	}
	for _, step := range steps {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	s.log.Debug("DCGM session open", "libdcgm", s.library, "engine_version", s.version, "entities", len(s.top.Devices),
		"watches", len(s.watches.list), "refused", len(s.watches.faults))
	return nil
}

// Topology returns the entities of the session.
func (s *Session) Topology() *gpu.Topology { return s.top }

// Read appends the current samples. It makes one call for each kind of entity. If every sample of a field is requested
// and several are new, it makes another call for them. Occasionally it also inspects the entities. Fields that cannot
// be read become faults. It returns an error if the engine is gone or nothing could be read.
func (s *Session) Read(ctx context.Context, req gpu.ReadRequest, b *gpu.Batch) error {
	if s.closed {
		return fmt.Errorf("dcgm: %w: the session is closed", gpu.ErrUnavailable)
	}
	if err := s.Err(); err != nil {
		return err
	}
	begin := time.Now()
	if err := s.watches.retryRefused(begin); err != nil {
		return s.End(s.lostError(err))
	}
	s.watches.addFaults(b)
	read, failed := s.readAll(ctx, b, begin)
	switch {
	case severityOf(failed) == reopen:
		return s.End(s.lostError(failed))
	case ctx.Err() != nil:
		return fmt.Errorf("dcgm: %w", ctx.Err())
	case !read && failed != nil:
		return fmt.Errorf("dcgm: %w", failed)
	}
	err := s.gpus.inspect(b, begin)
	if change := s.gpus.change; change != nil {
		_ = s.End(change)
	}
	if severityOf(err) == reopen {
		return s.End(s.lostError(err))
	}
	if err := s.watches.renew(begin, req.Contradicted); err != nil {
		return s.End(s.lostError(err))
	}
	// An embedded engine loses its XIDs when the session ends.
	if err := s.readXIDs(b, begin, s.Err() != nil); err != nil {
		return s.End(s.lostError(err))
	}
	b.DropSamples(s.gpus.lost)
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

// errNoProcesses is the fault if processes are requested: DCGM only accounts for processes that have exited, and has no
// live utilization.
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
		errs = append(errs, s.unwatchHealth(), s.unwatchXIDs(), s.watches.unwatchAll())
	}
	switch err := errors.Join(append(errs, s.engine.close())...); {
	case err == nil:
		return nil
	case ended:
		s.log.Debug("Closing the connection to a lost engine failed", "error", err)
		return nil
	default:
		return fmt.Errorf("dcgm: close: %w", err)
	}
}
