package command_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
)

// world is a subcommand's environment. It has variables and files in memory, a source, and output buffers.
type world struct {
	Env, Files map[string]string
	In         string
	Open       func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error) // nil means the simulator
	Out, Err   bytes.Buffer
}

func (w *world) process(args ...string) command.Process {
	open := w.Open
	if open == nil {
		open = simulate
	}
	return command.Process{
		Args: args, In: strings.NewReader(w.In), Out: &w.Out, Err: &w.Err, Open: open,
		Env: func(name string) (string, bool) { v, ok := w.Env[name]; return v, ok },
		ReadFile: func(name string) ([]byte, error) {
			if text, ok := w.Files[name]; ok {
				return []byte(text), nil
			}
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		},
	}
}

// run runs a subcommand in a bubble, whose clock is fake.
func run(t *testing.T, name string, p command.Process) (code int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { code = command.Run(t.Context(), name, p) })
	return code
}

// simulate opens the simulator, whichever source is configured.
func simulate(_ context.Context, cfg *config.Config, _ *gpu.Plan) (app.Backend, error) {
	source, err := sim.New(sim.Options{Node: cfg.Source.Sim.Node, Seed: cfg.Source.Sim.Seed})
	if err != nil {
		return app.Backend{}, err
	}
	return app.Backend{Source: collector.SourceOf(source.Open)}, nil
}

// refuse returns an opener that fails with err.
func refuse(err error) func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error) {
	return func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error) {
		return app.Backend{Source: refusing{err}}, nil
	}
}

type refusing struct{ err error }

func (r refusing) Open(context.Context, *gpu.Plan) (collector.Session, error) { return nil, r.err }

// full is a writer that fails because the device is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestHelp(t *testing.T) {
	for _, tt := range []struct {
		name     string
		args     []string
		code     int
		out, err string // substrings of the output
	}{
		{"help", nil, 0, "\n  doctor          show what works on this machine", ""},
		{"help", []string{"--help"}, 0, "Subcommands", ""},
		{"help", []string{"once"}, 0, "Usage: dcgm-exporter once", ""},
		{"help", []string{"version"}, 0, "Usage: dcgm-exporter version", ""},
		{"help", []string{"onse"}, 2, "", `"onse" is not a subcommand: did you mean "once"?`},
		{"metrics", nil, 2, "", `"metrics" is not a subcommand: expected one of check, counters, doctor, `},
	} {
		var w world
		if code := command.Run(t.Context(), tt.name, w.process(tt.args...)); code != tt.code {
			t.Errorf("%s %q: exit code = %d, want %d", tt.name, tt.args, code, tt.code)
		}
		if out, err := w.Out.String(), w.Err.String(); !strings.Contains(out, tt.out) || !strings.Contains(err, tt.err) || (tt.err == "") != (err == "") {
			t.Errorf("%s %q: stdout = %q, stderr = %q; want %q and %q", tt.name, tt.args, out, err, tt.out, tt.err)
		}
	}
	for _, name := range []string{"check", "counters", "doctor", "fields", "once", "probe", "topo", "verdict"} {
		if !strings.Contains(command.Usage(), "\n  "+name+" ") {
			t.Errorf("usage does not list %s", name)
		}
		for _, flag := range []string{"-h", "--help", "-help"} {
			var w world
			if code := command.Run(t.Context(), name, w.process(flag)); code != 0 || !strings.HasPrefix(w.Out.String(), "Usage: dcgm-exporter "+name) || w.Err.Len() > 0 {
				t.Errorf("%s %s: exit code = %d, stdout = %q, stderr = %q; want 0, the usage, nothing", name, flag, code, &w.Out, &w.Err)
			}
		}
	}
}
