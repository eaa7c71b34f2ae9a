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
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/kube"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/hardware"
)

// version, revision and date are the tag, the commit and the date of the commit. The linker sets them; a build without
// them uses what the Go toolchain recorded.
var version, revision, date string

// The exit codes, documented for operators. Subcommands also use 2. A supervisor should restart the process after any
// of them except exitOK.
const (
	exitOK       = 0
	exitFailed   = 1
	exitWedged   = 3 // a driver call did not return
	exitForced   = 4 // something else did not end after SIGTERM
	exitReplaced = 5 // the driver or its library was replaced
)

const (
	endLimit     = 4750 * time.Millisecond // for the shutdown after SIGTERM; each of its steps has a shorter timeout
	messageLimit = time.Second             // how long the final message may block on standard error
)

func main() { os.Exit(run()) }

func run() int {
	ctx := untilTerminated()
	switch {
	// The arguments of a container may begin with the name of the program.
	case len(os.Args) < 2 || strings.HasPrefix(os.Args[1], "-") || config.IsProgramName(os.Args[1]):
		return serve(ctx, os.Args[1:])
	case os.Args[1] == "version":
		return serve(ctx, []string{"--version"})
	}
	// Every setting is a flag, so an argument that is not a flag names a subcommand.
	return command.Run(ctx, os.Args[1], command.Process{
		Args: os.Args[2:], Env: os.LookupEnv, ReadFile: new(app.Reader).ReadFile,
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
	})
}

// serve runs the exporter and returns its exit code.
func serve(ctx context.Context, args []string) int {
	hangup := make(chan os.Signal, 1) // buffered: one pending SIGHUP is enough
	signal.Notify(hangup, syscall.SIGHUP)
	// Ignore SIGPIPE so that a closed stderr does not kill the process.
	signal.Ignore(syscall.SIGPIPE)
	err := app.Run(ctx, app.Process{
		Args: args, Env: os.LookupEnv, Out: os.Stdout, Err: os.Stderr,
		SetLogger: func(log *slog.Logger) {
			slog.SetDefault(log) // also redirects package log, which go-dcgm uses
			kube.LogTo(log)
		},
		Hangup: hangup, Start: time.Now(), Version: version, Revision: revision, Date: date,
		Usage: command.Usage() + "\n",
	})
	if err == nil {
		return exitOK
	}
	code := exitFailed
	switch {
	case errors.Is(err, hardware.ErrReplaced):
		code = exitReplaced
	case errors.Is(err, gpu.ErrWedged):
		code = exitWedged
	}
	time.AfterFunc(messageLimit, func() { os.Exit(code) })
	fmt.Fprintln(os.Stderr, "dcgm-exporter:", err)
	return code
}

// untilTerminated returns a context that the first SIGINT or SIGTERM cancels. The process exits at most endLimit later.
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
