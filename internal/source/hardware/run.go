package hardware

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
)

const (
	// restoreInterval is the first pause between attempts to open an embedded engine while NVML is read.
	restoreInterval = 10 * time.Second
	// maxRestorePause bounds the growing pauses between attempts to open an engine that listens or is embedded.
	maxRestorePause = 5 * time.Minute
	// lookInterval is how often Run checks whether the host engine listens, or whether a missing driver or library
	// exists now.
	lookInterval = time.Second
)

// ErrReplaced means that the driver or a library that worked before was replaced. A process keeps the library that it
// loaded first, so only a new process can load the new one.
var ErrReplaced = errors.New("the driver or its library was replaced; only a new process can load the new library")

// Run keeps loop on the best driver until ctx is done. It returns ErrReplaced as soon as the driver or its library is
// found to be replaced, even while an attempt to open DCGM hangs.
func (s *Source) Run(ctx context.Context, loop *collector.Loop) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-s.replaced:
			return ErrReplaced
		}
	})
	group.Go(func() error {
		s.watch(ctx, loop)
		return nil
	})
	return group.Wait()
}

// watch makes the loop open a session as soon as a missing engine, driver or library is there, because the loop's own
// attempts may be far apart by then. It replaces NVML's session as soon as DCGM can be opened. NVML is read until DCGM
// has been read once.
func (s *Source) watch(ctx context.Context, loop *collector.Loop) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	first := lookInterval // the first pause; an engine that does not open now may take long to start
	if s.opt.Engine.IsEmbedded() {
		first = restoreInterval
	}
	tried, pause := time.Now(), first // pause is the minimum time from tried to the next attempt
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if r := s.missing.Load(); r != nil && r.isMet(ctx, s) && s.missing.CompareAndSwap(r, nil) {
			loop.Retry()
		}
		switch {
		case !s.onFallback.Load() || !s.isListening(ctx):
			tried, pause = time.Now(), first
		case time.Since(tried) >= pause:
			if err := loop.Reopen(ctx, collector.SourceOf(s.openDCGM)); err != nil {
				s.opt.Log.Debug("DCGM is still unavailable", "error", err)
			}
			pause, tried = min(2*pause, maxRestorePause), time.Now()
		}
	}
}

// A requirement is something that an attempt to open may find missing. It can be checked without opening.
type requirement struct {
	err   error // the error of Open if it is missing; nil for the host engine
	isMet func(context.Context, *Source) bool
}

var (
	requirements = []requirement{
		{nvml.ErrNoLibrary, func(context.Context, *Source) bool { return nvml.Loadable() }},
		{nvml.ErrNoDriver, func(context.Context, *Source) bool {
			_, err := os.Stat("/proc/driver/nvidia/version")
			return err == nil
		}},
		{dcgm.ErrLibrary, func(context.Context, *Source) bool { return dcgm.Loadable() }},
	}
	hostEngine = requirement{nil, func(ctx context.Context, s *Source) bool { return s.isListening(ctx) }}
)

// noteMissing records what an attempt to open did not find. It changes nothing if everything is there by now, or if the
// error is of another kind: then the loop's pauses apply.
func (s *Source) noteMissing(ctx context.Context, err error, unreachable bool) {
	switch {
	case err == nil:
		s.missing.Store(nil)
	case unreachable:
		s.missing.Store(&hostEngine)
	default:
		for i := range s.requirements {
			if r := &s.requirements[i]; errors.Is(err, r.err) && !r.isMet(ctx, s) {
				s.missing.Store(r)
				return
			}
		}
	}
}

// reportReplaced makes Run return ErrReplaced.
func (s *Source) reportReplaced() {
	select {
	case s.replaced <- struct{}{}:
	default: // reported already
	}
}

// isOutdated reports whether DCGM failed to open because this process has loaded an older library. If the driver is
// newer than the NVML of an embedded engine, the errors vary; if a remote engine was upgraded, it rejects this libdcgm.
// The upgrade has deleted the file of the loaded library in both cases.
func (s *Source) isOutdated(err error) bool {
	if s.opt.Engine.IsEmbedded() {
		return !errors.Is(err, context.Canceled) && isDeleted("/libdcgm.so", "/libnvidia-ml.so")
	}
	return errors.Is(err, gpu.ErrVersion) && isDeleted("/libdcgm.so")
}

// isDeleted reports whether the file of one of the libraries was deleted after this process loaded it.
func isDeleted(libraries ...string) bool {
	maps, _ := os.ReadFile("/proc/self/maps") // unreadable: not known to be deleted
	for line := range strings.Lines(string(maps)) {
		isOf := func(library string) bool { return strings.Contains(line, library) }
		if strings.HasSuffix(line, " (deleted)\n") && slices.ContainsFunc(libraries, isOf) {
			return true
		}
	}
	return false
}
