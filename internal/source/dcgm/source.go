package dcgm

import (
	"context"
	"fmt"
	"log/slog"
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
// were taken. The error wraps gpu.ErrUnavailable if there is no library, engine or GPU. It wraps gpu.ErrVersion if the
// library is too old or does not match the engine. ctx is checked between calls; a call that blocks is not interrupted.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	engine, err := s.connect(s.opt)
	if err != nil {
		return nil, fmt.Errorf("dcgm: %w", err)
	}
	session := newSession(newConn(engine, s.opt), plan)
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
