// Command dcgm-exporter serves metrics of NVIDIA GPUs to Prometheus.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
)

// version is set by the linker.
var version = "unknown"

// Exit codes, as docs/operations.md lists them; 2 is the subcommands'. A
// supervisor restarts the process after any but the first.
const (
	exitOK     = 0
	exitFailed = 1
	exitWedged = 3 // a driver call did not return
	exitForced = 4 // something else did not end after SIGTERM
)

// endLimit is how long the process may take to end after SIGTERM. Everything in
// it has a shorter limit of its own; this is for what hangs in spite of that.
const endLimit = 4750 * time.Millisecond

// lastLines is how long the end of the process waits for the log.
const lastLines = 200 * time.Millisecond

func main() { os.Exit(run()) }

func run() int {
	ctx := untilTerminated()
	if len(os.Args) > 1 {
		if command, ok := commands()[os.Args[1]]; ok {
			return command(ctx, os.Args[2:])
		}
	}
	hangup := make(chan struct{})
	release, acquire := make(chan struct{}), make(chan struct{})
	forward(ctx, 1, map[os.Signal]chan<- struct{}{syscall.SIGHUP: hangup})
	forward(ctx, 16, map[os.Signal]chan<- struct{}{syscall.SIGUSR1: release, syscall.SIGUSR2: acquire})
	// A reader of standard error that went away must not end the process.
	signal.Ignore(syscall.SIGPIPE)
	log := app.NewLogWriter(os.Stderr)
	defer log.Flush(lastLines)
	err := app.Run(ctx, app.Process{
		Args: os.Args[1:], Env: os.LookupEnv, Out: os.Stdout, Err: log, Logging: adopt,
		Hangup: hangup, Release: release, Acquire: acquire, Start: time.Now(), Version: version,
	})
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, app.ErrReplaced):
		return again(err, log)
	case errors.Is(err, gpu.ErrWedged):
		fmt.Fprintln(log, "dcgm-exporter:", err)
		return exitWedged
	default:
		fmt.Fprintln(log, "dcgm-exporter:", err)
		return exitFailed
	}
}

// untilTerminated returns a context that ends with the first SIGINT or SIGTERM. The
// second one ends the process, and so does the time limit: whatever blocks.
func untilTerminated() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		select {
		case <-signals:
		case <-time.After(endLimit):
		}
		os.Exit(exitForced)
	}()
	return ctx
}

// adopt makes libraries that log by themselves use the exporter's logger: they
// would write to standard error, and wait for it.
func adopt(log *slog.Logger) {
	slog.SetDefault(log) // also what package log writes, as go-dcgm does
	kube.LogTo(log)
}

// again puts a fresh process in the place of this one, under the same number,
// so that no supervisor counts a crash. It returns only if that is impossible:
// with sockets of systemd, which go to one process, a restart has to do.
func again(why error, log *app.LogWriter) int {
	fmt.Fprintln(log, "dcgm-exporter:", why)
	log.Flush(lastLines)
	if _, handed := os.LookupEnv("LISTEN_FDS"); handed {
		return exitWedged
	}
	// What is signalled before the fresh process listens would end it. It is lost
	// instead: an ignored signal stays so until somebody asks for it.
	signal.Ignore(syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	// Not os.Executable: a file that was replaced as well has another name.
	if err := syscall.Exec("/proc/self/exe", os.Args, os.Environ()); err != nil {
		fmt.Fprintln(log, "dcgm-exporter:", err)
	}
	return exitWedged
}

// forward sends a value to the channel of every signal that arrives, in the
// order in which they arrive. While nobody receives, so many wait and the rest
// are lost.
func forward(ctx context.Context, waiting int, to map[os.Signal]chan<- struct{}) {
	signals := make(chan os.Signal, waiting)
	for s := range to {
		signal.Notify(signals, s)
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				select {
				case <-ctx.Done():
					return
				case to[s] <- struct{}{}:
				}
			}
		}
	}()
}
