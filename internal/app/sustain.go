package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// sustainPause is how long a part of the exporter rests after a panic.
const sustainPause = 10 * time.Second

// sustained runs a part of the exporter until ctx is done or it returns. After a panic it
// runs again, and the log has the stack of the first one: no part ends the process.
func sustained(ctx context.Context, log *slog.Logger, part string, run func(context.Context)) {
	for first := true; ; first = false {
		err := gpu.Protect(func() error {
			run(ctx)
			return nil
		})
		var p *gpu.Panic
		if !errors.As(err, &p) {
			return
		}
		line := []any{"part", part, "error", err}
		if first {
			line = append(line, "stack", string(p.Stack))
		}
		log.Error("A part of the exporter panicked; it begins again", line...)
		timer := time.NewTimer(sustainPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
