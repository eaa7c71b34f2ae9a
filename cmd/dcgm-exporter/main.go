// Command dcgm-exporter serves metrics of NVIDIA GPUs to Prometheus.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// version is set by the linker.
var version = "unknown"

// Exit codes. A supervisor restarts the process after any of them; the last
// tells that only this could help.
const (
	exitOK     = 0
	exitFailed = 1
	exitWedged = 3
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 {
		if command, ok := commands()[os.Args[1]]; ok {
			return command(ctx, os.Args[2:])
		}
	}
	err := app.Run(ctx, app.Process{
		Args: os.Args[1:], Env: os.LookupEnv, Out: os.Stdout, Err: os.Stderr,
		Hangup: hangups(ctx), Start: time.Now(), Version: version,
	})
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, gpu.ErrWedged):
		fmt.Fprintln(os.Stderr, "dcgm-exporter:", err)
		return exitWedged
	default:
		fmt.Fprintln(os.Stderr, "dcgm-exporter:", err)
		return exitFailed
	}
}

// hangups returns a channel that gets a value per SIGHUP. Signals that arrive
// while a reload is under way count as one.
func hangups(ctx context.Context) <-chan struct{} {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	out := make(chan struct{})
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			select {
			case <-ctx.Done():
				return
			case out <- struct{}{}:
			}
		}
	}()
	return out
}
