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
	exitOK       = 0
	exitFailed   = 1
	exitWedged   = 3 // a driver call did not return
	exitForced   = 4 // something else did not end after SIGTERM
	exitReplaced = 5 // the driver or its library was replaced
)

// endLimit is how long the process may take to end after SIGTERM, whatever blocks. Everything in it
// has a shorter limit of its own.
const endLimit = 4750 * time.Millisecond

// messageLimit is how long the last message may wait for standard error.
const messageLimit = time.Second

func main() { os.Exit(run()) }

func run() int {
	ctx := untilTerminated()
	switch {
	case len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-"):
		return serve(ctx, os.Args[1:])
	case os.Args[1] == "version":
		return serve(ctx, []string{"--version"})
	}
	// Every setting is a flag: a word is a subcommand.
	return command.Run(ctx, os.Args[1], command.Process{
		Args: os.Args[2:], Env: os.LookupEnv, ReadFile: new(app.Reader).ReadFile, In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
	})
}

// serve runs the exporter and returns its exit code.
func serve(ctx context.Context, args []string) int {
	hangup := make(chan os.Signal, 1) // of those that come during a reload one counts
	signal.Notify(hangup, syscall.SIGHUP)
	// A reader of standard error that went away must not end the process.
	signal.Ignore(syscall.SIGPIPE)
	err := app.Run(ctx, app.Process{
		Args: args, Env: os.LookupEnv, Out: os.Stdout, Err: os.Stderr, Logging: adopt,
		Hangup: hangup, Start: time.Now(), Version: version, Revision: revision, Date: date,
		Usage: command.Usage() + "\n",
	})
	if err == nil {
		return exitOK
	}
	code := exitFailed
	switch {
	case errors.Is(err, app.ErrReplaced):
		code = exitReplaced
	case errors.Is(err, gpu.ErrWedged):
		code = exitWedged
	}
	time.AfterFunc(messageLimit, func() { os.Exit(code) })
	fmt.Fprintln(os.Stderr, "dcgm-exporter:", err)
	return code
}

// untilTerminated returns a context that ends with the first SIGINT or SIGTERM. The process ends at
// the latest endLimit after it.
func untilTerminated() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		time.Sleep(endLimit)
		os.Exit(exitForced)
	}()
	return ctx
}

// adopt makes libraries that log by themselves use the exporter's logger.
func adopt(log *slog.Logger) {
	slog.SetDefault(log) // also what package log writes, as go-dcgm does
	kube.LogTo(log)
}
