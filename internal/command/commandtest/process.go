// Package commandtest has the process in which the tests of the subcommands run them: an
// environment and files in memory, and buffers for what is printed. It is imported by tests alone.
package commandtest

import (
	"bytes"
	"context"
	"io/fs"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// A World is what a subcommand sees and what it said.
type World struct {
	Env      map[string]string
	Files    map[string]string
	In       string
	Out, Err bytes.Buffer
}

// Process returns the process in this world.
func (w *World) Process(args ...string) command.Process {
	return command.Process{
		Args: args,
		Env: func(name string) (string, bool) {
			v, ok := w.Env[name]
			return v, ok
		},
		ReadFile: func(name string) ([]byte, error) {
			if text, ok := w.Files[name]; ok {
				return []byte(text), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		},
		In: strings.NewReader(w.In), Out: &w.Out, Err: &w.Err,
	}
}

// Simulate opens the simulator, whatever the configuration says.
func Simulate(_ context.Context, cfg *config.Config, _ *gpu.Plan) (app.Backend, error) {
	source, err := sim.New(sim.Options{Node: cfg.Source.Sim.Node, Seed: cfg.Source.Sim.Seed})
	if err != nil {
		return app.Backend{}, err
	}
	return app.Backend{Source: collector.SourceOf(source.Open)}, nil
}

// Refuse returns an Opener whose source cannot be opened because of err.
func Refuse(err error) command.Opener {
	return func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error) {
		return app.Backend{Source: refusing{err}}, nil
	}
}

type refusing struct{ err error }

func (r refusing) Open(context.Context, *gpu.Plan) (collector.Session, error) { return nil, r.err }
