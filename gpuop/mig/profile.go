package mig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// name is a profile name taken apart: 1g.10gb+me is compute 1, gigabytes 10, attribute "+me".
type name struct {
	compute, gigabytes int
	attribute          string
}

// driverName is the driver's own spelling. "+me" adds the extra media engines, "+me.all" all of them, "-me" leaves media
// engines out, "+gfx" adds graphics.
var driverName = regexp.MustCompile(`^([1-9]\d{0,3})g\.([1-9]\d{0,3})gb(\+me\.all|\+me|-me|\+gfx)?$`)

// parseName takes the driver's spelling of a GPU instance profile apart.
func parseName(s string) (name, bool) {
	m := driverName.FindStringSubmatch(s)
	if m == nil {
		return name{}, false
	}
	compute, _ := strconv.Atoi(m[1])
	gigabytes, _ := strconv.Atoi(m[2])
	return name{compute, gigabytes, m[3]}, true
}

// CanonicalProfile brings the spellings of one profile to the driver's, which the mig-devices field
// of a mig-parted file uses: "1g.10gb.me" (config names), "mig-1g.10gb.me" and
// "nvidia.com/mig-1g.10gb.me" (resource names) all become "1g.10gb+me". The result is false for a
// word that names no GPU instance, such as a compute instance ("1c.3g.20gb"), which is never a
// Kubernetes resource.
func CanonicalProfile(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSpace(s))
	s = strings.TrimPrefix(strings.TrimPrefix(s, "nvidia.com/"), "mig-")
	for _, attribute := range []string{"me.all", "me", "gfx"} {
		if plain, ok := strings.CutSuffix(s, "gb."+attribute); ok {
			s = plain + "gb+" + attribute
		}
	}
	if _, ok := parseName(s); !ok {
		return "", false
	}
	return s, true
}

// ResourceName is the extended resource that the device plugin advertises for a profile under the
// strategy mixed: "1g.10gb+me" becomes "nvidia.com/mig-1g.10gb.me".
func ResourceName(profile string) string {
	return "nvidia.com/mig-" + strings.ReplaceAll(profile, "+", ".")
}

// ConfigName is the name that the default mig-parted file gives to the config that fills every GPU
// with one profile, and so the value for the nvidia.com/mig.config label: "1g.10gb+me" becomes
// "all-1g.10gb.me".
func ConfigName(profile string) string {
	return "all-" + strings.ReplaceAll(profile, "+", ".")
}

// Profiles lists every profile name in the table, large to small, each once. The result is shared: callers must not
// change it.
var Profiles = sync.OnceValue(func() []string {
	var names []string
	for _, b := range Boards() {
		names = append(names, b.names()...)
	}
	slices.SortFunc(names, bySize)
	return slices.Compact(names)
})

// ErrUnknownConfig is returned for a config name that the default file does not have for a board.
var ErrUnknownConfig = errors.New("unknown MIG config")

// Default is the meaning of a name of the operator's default configuration on one board: all-disabled,
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
