package mig

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// name is a parsed profile name: 1g.10gb+me has compute 1, gigabytes 10 and the attribute "+me".
type name struct {
	compute, gigabytes int
	attribute          string
}

// driverName matches the driver's spelling. The suffix +me adds the extra media engines, +me.all adds all media
// engines, -me removes the media engines, and +gfx adds graphics.
var driverName = regexp.MustCompile(`^([1-9]\d{0,3})g\.([1-9]\d{0,3})gb(\+me\.all|\+me|-me|\+gfx)?$`)

// parseName parses the driver's spelling of a GPU instance profile.
func parseName(s string) (name, bool) {
	m := driverName.FindStringSubmatch(s)
	if m == nil {
		return name{}, false
	}
	compute, _ := strconv.Atoi(m[1])
	gigabytes, _ := strconv.Atoi(m[2])
	return name{compute, gigabytes, m[3]}, true
}

// CanonicalProfile converts a profile name to the driver's spelling, which mig-parted files use. It accepts config
// names ("1g.10gb.me") and resource names ("mig-1g.10gb.me", "nvidia.com/mig-1g.10gb.me"). It returns false for
// everything else, including compute instances ("1c.3g.20gb"), which are never Kubernetes resources.
func CanonicalProfile(s string) (string, bool) {
	s = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(s)), "nvidia.com/")
	s = strings.Replace(strings.TrimPrefix(s, "mig-"), "gb.", "gb+", 1)
	_, ok := parseName(s)
	return s, ok
}

// ResourceName returns the extended resource of a profile under the strategy "mixed": "nvidia.com/mig-1g.10gb.me" for
// "1g.10gb+me".
func ResourceName(profile string) string {
	return "nvidia.com/mig-" + strings.ReplaceAll(profile, "+", ".")
}

// ConfigName returns the default config that fills every GPU with a profile, as in the nvidia.com/mig.config label:
// "all-1g.10gb.me" for "1g.10gb+me".
func ConfigName(profile string) string {
	return "all-" + strings.ReplaceAll(profile, "+", ".")
}

// Profiles returns the profile names of all boards, large to small, without duplicates. Callers must not change the
// result.
var Profiles = sync.OnceValue(func() []string {
	var names []string
	for _, b := range Boards() {
		names = append(names, b.names()...)
	}
	slices.SortFunc(names, bySize)
	return slices.Compact(names)
})

// ErrUnknownConfig is returned by Default if the operator has no default config of that name for the board.
var ErrUnknownConfig = errors.New("unknown MIG config")

// Default returns the operator's default config of the given name for a board: all-disabled, all-enabled, all-balanced,
// or all-<profile>, which fills every GPU with a profile. all-balanced has two instances of the standard 1g profile,
// and one of each standard 2g and 3g profile. The same name differs between boards: all-1g.10gb is seven instances on
// A100-80GB and four on A100-40GB. Since v26.3 the operator generates these configs from the node's hardware.
func Default(b Board, config string) (Entry, error) {
	e := Entry{All: true, Enabled: config != "all-disabled", Devices: Request{}}
	names := []string{"all-disabled", "all-enabled", "all-balanced"}
	for _, p := range b.Profiles {
		name := ConfigName(p.Name)
		names = append(names, name)
		switch {
		case name == config:
			e.Devices[p.Name] = p.Max
		case config != "all-balanced" || !p.Standard() || p.Compute > 3:
		case p.Compute == 1:
			e.Devices[p.Name] = 2
		default:
			e.Devices[p.Name] = 1
		}
	}
	if !slices.Contains(names, config) {
		hint := check.Ask(config, names, "it has "+strings.Join(names, ", "))
		return Entry{}, fmt.Errorf("%w %q for %s: %s", ErrUnknownConfig, config, b.Name, hint)
	}
	return e, nil
}
