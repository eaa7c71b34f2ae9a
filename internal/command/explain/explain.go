package explain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/app"
	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

const name = "explain-device"

// Usage is the text of "explain-device --help".
const Usage = `Usage: dcgm-exporter explain-device [flags] ID...

Says step by step how a device id of the kubelet finds its GPU or GPU instance
and the container that holds it, or why it does not. An ID is what a device
plugin calls a device (GPU-…, GPU-…::1, MIG-…, nvidia0/gi3, …), or
DRIVER/POOL/DEVICE for a device of a dynamic claim. The flags are those of the
exporter itself (dcgm-exporter --help); --kubernetes is not needed.

Exit code: 0 every id names an entity; 1 one does not; 2 the command could not
do its work.
`

// wait bounds the question to the kubelet.
const wait = 10 * time.Second

// A Command is the subcommand.
type Command struct {
	command.Process
	// Open makes the source.
	Open command.Opener
	// Pods makes the mapper that the exporter would use.
	Pods func(context.Context, *config.Config) (*podmapper.Mapper, error)
}

// Run explains and returns the exit code.
func (c Command) Run(ctx context.Context) int {
	cfg, ids, code := c.Config(name, Usage)
	if cfg == nil {
		return code
	}
	if len(ids) == 0 {
		return c.Fail(name, errors.New("no id given: expected what the kubelet calls a device, such as GPU-UUID or nvidia0/gi3"))
	}
	source, plan, err := c.source(ctx, cfg)
	if err != nil {
		return c.Fail(name, err)
	}
	var topology *gpu.Topology
	if err := app.Collect(ctx, source, plan, 1, func(s *gpu.Snapshot) { topology = s.Topology }); err != nil {
		return c.Fault(name, err)
	}
	mapper, err := c.Pods(ctx, cfg)
	if err != nil {
		return c.Fail(name, err)
	}
	defer mapper.Close()
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for i, id := range ids {
		if i > 0 {
			fmt.Fprintln(c.Out)
		}
		fmt.Fprintln(c.Out, id)
		steps, found := mapper.Explain(ctx, topology, id)
		for n, step := range steps {
			fmt.Fprintf(c.Out, "%2d. %s\n", n+1, step)
		}
		if !found {
			code = command.Faulty
		}
	}
	return code
}

// source makes the source that is read once.
func (c Command) source(ctx context.Context, cfg *config.Config) (app.Backend, *gpu.Plan, error) {
	set, err := app.LoadCounters(ctx, cfg, c.ReadFile)
	if err != nil {
		return app.Backend{}, nil, err
	}
	plan, err := set.Plan(cfg, time.Second)
	if err != nil {
		return app.Backend{}, nil, err
	}
	source, err := c.Open(ctx, cfg, plan)
	source.Attributors = nil // the mapper makes its own request
	return source, plan, err
}
