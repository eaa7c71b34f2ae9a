package mig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// ErrUnknownConfig is returned for a config name that the default file does not have for a board.
var ErrUnknownConfig = errors.New("unknown MIG config")

// Default is what the operator's default configuration means by a name on one board: all-disabled,
// all-enabled, all-balanced, or all-<profile>, which fills every GPU with that profile. The same
// name means different things on different boards (all-1g.10gb is seven on A100-80GB, four on
// A100-40GB). Since v26.3 the operator generates these from the node's own hardware.
func Default(b Board, config string) (Entry, error) {
	e := Entry{All: true, Enabled: config != "all-disabled", Devices: Request{}}
	names := []string{"all-disabled", "all-enabled", "all-balanced"}
	for _, p := range b.Profiles {
		names = append(names, ConfigName(p.Name))
		if ConfigName(p.Name) == config {
			e.Devices[p.Name] = p.Max
		}
	}
	if config == "all-balanced" {
		e.Devices = balanced(b)
	}
	if slices.Contains(names, config) {
		return e, nil
	}
	hint := "it has " + strings.Join(names, ", ")
	if near := report.Nearest(config, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	return Entry{}, fmt.Errorf("%w %q for %s: %s", ErrUnknownConfig, config, b.Name, hint)
}

// balanced is two of the smallest slice and one of each standard size between it and the largest
// that still fit beside it: 1g 1g 2g 3g, or on a four-slice board 1g 1g 2g.
func balanced(b Board) Request {
	r := Request{}
	for _, p := range b.Profiles {
		if !p.Standard() || p.Compute > 3 {
			continue
		}
		r[p.Name] = 1
		if p.Compute == 1 {
			r[p.Name] = 2
		}
	}
	return r
}
