package dcgm

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Options say how to reach DCGM. The zero Options use an engine embedded in this process and log
// nothing.
type Options struct {
	// Remote is the address of a host engine; the zero address is the embedded engine. For an engine
	// on the same host a unix socket answers batches some 80 times sooner than TCP does.
	Remote gpu.EngineAddress
	// EngineLog turns on the log that libdcgm itself writes, to standard output: one of NONE, FATAL,
	// ERROR, WARN, INFO, DEBUG and VERB. Empty leaves what the environment says (__DCGM_DBG_LVL). It
	// takes effect when the process loads the library, once.
	EngineLog string
	// Log receives the findings of sessions; nil means nowhere.
	Log *slog.Logger
	// retry stands in for retryRefused where it is not 0.
	retry time.Duration
}

// A Source opens sessions at one engine; two may overlap during a reload. DCGM is one per process,
// and so should the Source be.
type Source struct {
	opt     Options
	connect connector
	run     string // part of the names of this process's groups; process ids repeat between containers
}

// New returns a Source. It neither loads the library nor connects.
func New(opt Options) *Source {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &Source{opt: opt, connect: newConnector(), run: rand.Text()[:10]}
}

// Open connects, discovers the entities that the plan selects, and starts watching. The first
// samples are taken when it returns. The error wraps gpu.ErrUnavailable where there is no library,
// no engine or no GPU, and gpu.ErrVersion where the library is too old or does not understand the
// engine. ctx is looked at between calls; a call that the engine does not answer goes on.
func (s *Source) Open(ctx context.Context, plan *gpu.Plan) (*Session, error) {
	addr := s.opt.Remote
	engine, err := s.connect(addr, s.opt)
	if err != nil {
		return nil, fmt.Errorf("dcgm: %w", err)
	}
	session := &Session{
		Lifecycle: gpu.NewLifecycle(),

		plan:    plan,
		engine:  engine,
		addr:    addr,
		log:     s.opt.Log.With("engine", addr.String()),
		name:    fmt.Sprintf("dcgm-exporter-%s-%s", s.run, rand.Text()[:10]),
		foreign: !addr.IsLocal(),
		retry:   cmp.Or(s.opt.retry, retryRefused),
	}
	if err := session.open(ctx); err != nil {
		session.abandon(err)
		if hasCode(err, codeNVMLNotLoaded) || hasCode(err, codeGPUsDetached) {
			return nil, fmt.Errorf("dcgm: %w: the engine at %s has no driver; load the NVIDIA driver where it runs: %v", gpu.ErrUnavailable, addr, err)
		}
		return nil, fmt.Errorf("dcgm: %w", session.withVersions(err))
	}
	return session, nil
}
