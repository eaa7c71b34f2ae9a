package dcgm

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/hostengine"
)

// Options configure a Source. The zero value uses an engine embedded in this process and logs nothing.
type Options struct {
	// Remote is the address of a host engine. The zero value means the embedded engine. On the same host, a Unix socket
	// is about 80 times faster for batched reads than TCP.
	Remote hostengine.Address
	// EngineLog enables libdcgm's own log on standard output. It is one of NONE, FATAL, ERROR, WARN, INFO, DEBUG and
	// VERB. If empty, the environment (__DCGM_DBG_LVL) decides. It only takes effect when the process loads the
	// library.
	EngineLog string
	// MayNotProfile says that the driver does not let this process profile. Only the embedded engine depends on it.
	MayNotProfile bool
	// Log receives the log lines of sessions. Nil discards them.
	Log *slog.Logger
	// retry replaces retryRefused if it is not 0.
	retry time.Duration
}

// A Source opens sessions of one engine. Two sessions may overlap during a reload. DCGM supports one connection per
// process, so a process should have only one Source.
type Source struct {
	opt     Options
	connect connector
}

// New returns a Source. It does not load the library or connect.
func New(opt Options) *Source {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{opt: opt, connect: newConnector()}
}

// Open connects, discovers the entities that the plan selects, and starts watching. When it returns, the first samples
// have been taken. The error wraps gpu.ErrUnavailable if there is no library, engine or GPU. It wraps gpu.ErrVersion if
// the library is too old or does not match the engine. ctx is checked between calls; a call that blocks is not
// interrupted.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	engine, err := s.connect(s.opt)
	if err != nil {
		return nil, fmt.Errorf("dcgm: %w", err)
	}
	session := newSession(engine, s.opt, plan)
	if err := session.open(ctx); err != nil {
		if severityOf(err) == reopen {
			_ = session.End(err)
		}
		if err := session.Close(); err != nil {
			session.log.Debug("Closing a session that could not be opened failed", "error", err)
		}
		if hasCode(err, codeNVMLNotLoaded, codeGPUsDetached) {
			return nil, fmt.Errorf("dcgm: %w: the engine at %s has no driver; load the NVIDIA driver on its host: %v",
				gpu.ErrUnavailable, s.opt.Remote, err)
		}
		return nil, fmt.Errorf("dcgm: %w", session.withVersions(err))
	}
	return session, nil
}

// A Session is an open connection to an engine. It reads the entities of its inventory.
type Session struct {
	gpu.Lifecycle
	closed bool

	*inventory
	watches *watchSet // what the engine samples

	fields []int // see indexFields
	clock  clock
	xids   xidWatch
	health healthWatch
}

// newSession returns a session of a connection. It is not open yet.
func newSession(e engine, opt Options, plan *gpu.Plan) *Session {
	inv := &inventory{plan: plan, conn: conn{
		engine: e, addr: opt.Remote, log: opt.Log.With("engine", opt.Remote.String()), mayNotProfile: opt.MayNotProfile,
		retryAfter: cmp.Or(opt.retry, retryRefused), name: "dcgm-exporter-" + rand.Text(),
	}}
	return &Session{
		Lifecycle: gpu.NewLifecycle(), inventory: inv, watches: &watchSet{inventory: inv},
		fields: indexFields(plan), clock: clock{foreign: !opt.Remote.IsLocal()},
		xids: xidWatch{histories: map[entity]*xidHistory{}},
	}
}

// open does the work of Source.Open. If it fails, Source.Open cleans up.
func (s *Session) open(ctx context.Context) error {
	// If the engine rejects the health watches, readHealth tries again.
	openHealth := func() error { return reopenOnly(s.watchHealth()) }
	steps := []func() error{
		s.readVersions, s.discover, s.watches.watchAll, s.watchXIDs, openHealth, s.engine.update,
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
	err := s.inspect(b, begin)
	if change := s.change; change != nil {
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

// A conn is the connection of a session to its engine.
type conn struct {
	engine engine
	addr   hostengine.Address
	log    *slog.Logger

	library, version string        // versions of libdcgm and the engine
	mayNotProfile    bool          // see Options
	retryAfter       time.Duration // delay before a refused request is tried again

	name string // prefix of the names of groups and field groups; random, since containers share process IDs
	made int    // number of these names
}

// readVersions finds the versions of the library and the engine.
func (c *conn) readVersions() error {
	library, version, err := c.engine.versions()
	c.library, c.version = versionOf(library), versionOf(version)
	if err == nil && releaseOf(c.library) != releaseOf(c.version) {
		c.log.Warn("libdcgm and the engine have different versions; some requests may fail",
			"libdcgm", c.library, "engine_version", c.version)
	}
	return err
}

// versionOf returns the version in DCGM's build information (key:value;key:value), or "".
func versionOf(buildInfo string) string {
	for pair := range strings.SplitSeq(buildInfo, ";") {
		if key, value, ok := strings.Cut(pair, ":"); ok && strings.TrimSpace(key) == "version" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// releaseOf returns the major and minor number of a version, for example "4.6" for "4.6.1".
func releaseOf(version string) string {
	numbers := strings.Split(version, ".")
	return strings.Join(numbers[:min(2, len(numbers))], ".")
}

// withVersions adds both versions to a version mismatch error.
func (c *conn) withVersions(err error) error {
	if !errors.Is(err, gpu.ErrVersion) {
		return err
	}
	return fmt.Errorf("libdcgm %s and the engine %s at %v are incompatible; install the same DCGM version on both "+
		"sides: %w", c.library, cmp.Or(c.version, "of unknown version"), c.addr, err)
}

// logged logs an error that does not end the session, and returns one that does.
func (c *conn) logged(err error, message string, args ...any) error {
	if err != nil && severityOf(err) != reopen {
		c.log.Warn(message, append(args, "error", c.withVersions(err))...)
	}
	return reopenOnly(err)
}

// lostError returns the reason why a session ended, for an error whose severity is reopen.
func (c *conn) lostError(err error) error {
	if hasCode(err, codeNotConfigured) {
		return fmt.Errorf("dcgm: %w: the engine at %v was restarted: %w", gpu.ErrLost, c.addr, err)
	}
	return fmt.Errorf("dcgm: the engine at %v is gone: %w", c.addr, err)
}

// profilingError adds what is missing to the error of a refused watch of profiling fields: the capability SYS_ADMIN or
// DCGM's profiling module. The module does not load in a process without the capability.
func (c *conn) profilingError(err error) error {
	unloaded := hasCode(err, codeModuleNotLoaded)
	switch {
	case errors.Is(err, gpu.ErrPermission), unloaded && c.mayNotProfile && c.addr.IsEmbedded():
		return fmt.Errorf("%w: %w", gpu.ErrNeedsAdmin, err)
	case unloaded:
		return fmt.Errorf("%w (package datacenter-gpu-manager-4-proprietary): %w", gpu.ErrNeedsDCGM, err)
	}
	return err
}

// nextName returns a name that no other group of the engine has.
func (c *conn) nextName() string {
	c.made++
	return fmt.Sprintf("%s-%d", c.name, c.made)
}

// readOnce watches fields until they are sampled, and calls learn for each value.
func (c *conn) readOnce(members []entity, ids []gpu.FieldID, learn func(entity, gpu.FieldID, gpu.Value)) error {
	if len(members) == 0 {
		return nil
	}
	group, _, err := c.engine.createGroup(c.nextName(), members)
	if err != nil || group == 0 {
		return err // without a group, all members are lost and have no values
	}
	defer c.engine.destroyGroup(group)
	fields, err := c.engine.createFieldGroup(c.nextName(), ids)
	if err != nil {
		return err
	}
	defer c.engine.destroyFieldGroup(fields)
	if err := c.engine.watch(group, fields, time.Second, 0, 1); err != nil {
		return err
	}
	defer c.engine.unwatch(group, fields)
	if err := c.engine.update(); err != nil {
		return err
	}
	found, err := c.engine.latest(group, fields)
	if err != nil {
		return err
	}
	for i := range found.samples {
		raw := &found.samples[i]
		value, _ := decode(&gpu.Field{Text: raw.kind == kindText}, raw, found.textOf(raw))
		if !value.IsAbsent() {
			learn(entity{raw.group, raw.entity}, gpu.FieldID(raw.field), value)
		}
	}
	return nil
}
