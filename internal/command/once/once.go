package once

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/command"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
)

const name = "once"

// Usage is the text of "once --help".
const Usage = `Usage: dcgm-exporter once [flags]

Collects once and prints the page that a scrape would get. The flags are those
of the exporter itself (dcgm-exporter --help).

Exit code: 0 the page has data; 1 it has not, and its health series and the
message say why; 2 a wrong setting, or a file that cannot be read.
`

// A Command is the subcommand.
type Command struct {
	command.Process
	// Page collects once and returns the page, also beside an error that says why it has no data; no
	// page where a setting is to blame.
	Page func(context.Context, *config.Config) ([]byte, error)
}

// Run collects, prints and returns the exit code.
func (c Command) Run(ctx context.Context) int {
	cfg, code := c.Settings(name, Usage)
	if cfg == nil {
		return code
	}
	for _, notice := range cfg.Notices {
		fmt.Fprintln(c.Err, notice)
	}
	page, err := c.Page(ctx, cfg)
	if page == nil && err != nil {
		return c.Fail(name, err)
	}
	if _, failed := c.Out.Write(page); failed != nil {
		return c.Fail(name, errors.Join(err, failed))
	}
	if err != nil {
		return c.Fault(name, err)
	}
	return command.OK
}
