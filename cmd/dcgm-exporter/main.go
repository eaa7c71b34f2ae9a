// Command dcgm-exporter serves metrics of NVIDIA GPUs to Prometheus.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
)

// version, revision and date are set by the linker: the tag, the commit and the commit's date. A
// build without them takes what the Go toolchain recorded.
var version, revision, date string

// Exit codes, as docs/operations.md lists them; 2 is the subcommands'. A supervisor restarts the
// process after any but the first.
const (
	exitOK     = 0
	exitFailed = 1
	exitWedged = 3 // a driver call did not return
	exitForced = 4 // something else did not end after SIGTERM
)

// endLimit is how long the process may take to end after SIGTERM. Everything in it has a shorter
// limit of its own; this is for what hangs in spite of that.
const endLimit = 4750 * time.Millisecond

// endAtLeast is how long the end may take in spite of a second signal. One stop often comes as two:
// timeout(1) signals the process and then its group, and what the driver holds is to be released.
const endAtLeast = 2 * time.Second

// lastLines is how long the end of the process waits for the log.
const lastLines = 200 * time.Millisecond

func main() { os.Exit(run()) }

func run() int {
	ctx := untilTerminated()
	if len(os.Args) > 1 {
		if run, ok := commands()[os.Args[1]]; ok {
			return run(ctx, os.Args[2:])
		}
		// Every setting is a flag: a word at first is a subcommand that was mistyped.
		if !strings.HasPrefix(os.Args[1], "-") {
			return unknown(os.Args[1], os.Stderr)
		}
	}
	return serve(ctx, os.Args[1:])
}

// serve runs the exporter and returns its exit code.
func serve(ctx context.Context, args []string) int {
	hangup := make(chan struct{})
	forward(ctx, syscall.SIGHUP, hangup)
	// A reader of standard error that went away must not end the process.
	signal.Ignore(syscall.SIGPIPE)
	log := app.NewLogWriter(os.Stderr)
	defer log.Flush(lastLines)
	err := app.Run(ctx, app.Process{
		Args: args, Env: os.LookupEnv, Out: os.Stdout, Err: log, Logging: adopt,
		Hangup: hangup, Start: time.Now(), Version: version, Revision: revision, Date: date,
		Usage: command.Usage() + "\n",
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

// untilTerminated returns a context that ends with the first SIGINT or SIGTERM. The second one ends
// the process, after endAtLeast, and so does the time limit: whatever blocks.
func untilTerminated() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		least, limit := time.After(endAtLeast), time.After(endLimit)
		cancel()
		select {
		case <-signals:
			<-least
		case <-limit:
		}
		os.Exit(exitForced)
	}()
	return ctx
}

// adopt makes libraries that log by themselves use the exporter's logger: they would write to
// standard error, and wait for it.
func adopt(log *slog.Logger) {
	slog.SetDefault(log) // also what package log writes, as go-dcgm does
	kube.LogTo(log)
}

// again puts a fresh process in the place of this one, under the same number, so that no supervisor
// counts a crash. It returns only if that is impossible: with sockets of systemd, which go to one
// process, a restart has to do.
func again(why error, log *app.LogWriter) int {
	fmt.Fprintln(log, "dcgm-exporter:", why)
	log.Flush(lastLines)
	if _, handed := os.LookupEnv("LISTEN_FDS"); handed {
		return exitWedged
	}
	// What is signaled before the fresh process listens would end it. It is lost instead: an ignored
	// signal stays so until the process requests it.
	signal.Ignore(syscall.SIGHUP)
	// Not os.Executable: a file that was replaced as well has another name.
	if err := syscall.Exec("/proc/self/exe", os.Args, os.Environ()); err != nil {
		fmt.Fprintln(log, "dcgm-exporter:", err)
	}
	return exitWedged
}

// forward sends a value to a channel for every signal that arrives. Without a receiver one waits and
// the rest are lost.
func forward(ctx context.Context, s os.Signal, to chan<- struct{}) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, s)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				select {
				case <-ctx.Done():
					return
				case to <- struct{}{}:
				}
			}
		}
	}()
}
