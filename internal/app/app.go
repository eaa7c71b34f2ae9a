package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

// A Process is the environment of the exporter: what main passes to it.
type Process struct {
	Args []string                    // arguments without the program name
	Env  func(string) (string, bool) // has the contract of os.LookupEnv
	Out  io.Writer                   // receives help and version
	Err  io.Writer                   // receives the log
	// Logging, if not nil, is called with the logger before anything is logged, for libraries with a global logger.
	Logging func(*slog.Logger)
	// Hangup receives a value for each reload that is requested by a signal. It may be nil.
	Hangup <-chan os.Signal
	// Start is when the process started.
	Start time.Time
	// Version, Revision and Date describe the build and its commit. Revision and Date may be empty.
	Version, Revision, Date string
	// Usage is printed before the flags in --help.
	Usage string
	// Listening, if not nil, is called with every address that the server listens on.
	Listening func(net.Addr)
}

// Run runs the exporter until ctx is done, and returns nil once every driver handle is closed. An error about the
// configuration or the port names the setting and the remedy. After gpu.ErrWedged (a driver call did not return) and
// hardware.ErrReplaced, only a new process can continue.
func Run(ctx context.Context, p Process) error {
	err := run(ctx, p)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // canceled before the exporter had started
	}
	return err
}

func run(ctx context.Context, p Process) error {
	read := new(Reader)
	cfg, err := config.Parse(p.Args, p.Env, read.ReadFile)
	if err != nil {
		return err
	}
	switch cfg.Show {
	case config.ShowHelp:
		_, err := io.WriteString(p.Out, p.Usage+config.Help())
		return err
	case config.ShowVersion:
		_, err := io.WriteString(p.Out, p.build().String())
		return err
	}
	return serve(ctx, p, cfg, read)
}
