package command

import (
	"context"
	"fmt"
	"io"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// An Opener makes the source that a configuration names. It is the one that the exporter itself
// uses.
type Opener func(context.Context, *config.Config, *gpu.Plan) (app.Backend, error)

// The exit codes of the subcommands.
const (
	OK     = 0 // nothing to mend
	Faulty = 1 // something to mend was found and said: no data, or a line that cannot be used
	Unable = 2 // a wrong setting, or a file that cannot be read or written
)

// A Process is what a subcommand gets from the process that it runs in.
type Process struct {
	Args     []string                     // behind the subcommand's name
	Env      func(string) (string, bool)  // as os.LookupEnv
	ReadFile func(string) ([]byte, error) // as os.ReadFile
	In       io.Reader
	Out      io.Writer // results
	Err      io.Writer // why the command could not do its work
}

// Fail prints why the command could not do its work.
func (p Process) Fail(command string, err error) int {
	fmt.Fprintf(p.Err, "dcgm-exporter %s: %v\n", command, err)
	return Unable
}

// Fault prints what is to be mended.
func (p Process) Fault(command string, err error) int {
	fmt.Fprintf(p.Err, "dcgm-exporter %s: %v\n", command, err)
	return Faulty
}

// Config reads the exporter's flags, variables and file, and the subcommand's own flags. A nil
// Config means that there is nothing left to do but to return the code: the usage was requested, or
// a setting is wrong.
func (p Process) Config(command, usage string, own ...config.Flag) (cfg *config.Config, operands []string, code int) {
	cfg, operands, err := config.ParseOperands(p.Args, p.Env, p.ReadFile, own...)
	switch {
	case err != nil:
		return nil, nil, p.Fail(command, err)
	case cfg.Show != config.ShowNothing:
		fmt.Fprint(p.Out, usage)
		return nil, nil, OK
	}
	return cfg, operands, OK
}

// Settings is Config for a subcommand that takes no operands.
func (p Process) Settings(command, usage string, own ...config.Flag) (cfg *config.Config, code int) {
	cfg, operands, code := p.Config(command, usage, own...)
	if cfg != nil && len(operands) > 0 {
		return nil, p.Fail(command, fmt.Errorf("unexpected argument %q", operands[0]))
	}
	return cfg, code
}
