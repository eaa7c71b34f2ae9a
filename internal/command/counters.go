package command

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/etc"
	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

const countersUsage = `Usage: dcgm-exporter counters [default|health|fleet]

Prints a built-in counters file, as a start for your own. Your file can also
begin with the line "# include: default" (or health, or fleet) and add lines. A
line replaces the included line of the same name.

  default   the fields of NVIDIA's default file
  health    default, and the fields that this project's alerts need
  fleet     every field that is useful for a fleet

Exit code: 0; 2 an unknown name or flag.
`

// builtIn prints a counters file that is built in, for images without a shell.
func builtIn(_ context.Context, p *Process) int {
	name := ""
	switch {
	case len(p.Args) > 1:
		names := strings.Join(etc.Names, ", ")
		return p.fail(Unable, fmt.Errorf("expected a single file name (%s), not %q", names, p.Args))
	case len(p.Args) == 1:
		name = p.Args[0]
	}
	if name == "-h" || name == "--help" || name == "-help" {
		fmt.Fprint(p.Out, countersUsage)
		return OK
	}
	content, ok := etc.Named(cmp.Or(name, "default"))
	if !ok {
		return p.fail(Unable, fmt.Errorf("unknown file %q: %s", name, text.Suggest(name, etc.Names)))
	}
	if _, err := p.Out.Write(content); err != nil {
		return p.fail(Unable, err)
	}
	return OK
}
