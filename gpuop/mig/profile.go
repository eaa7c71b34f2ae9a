package mig

import (
	"slices"
	"strconv"
	"strings"
)

// name is a profile name taken apart: 1g.10gb+me is compute 1, gigabytes 10, attribute "+me".
type name struct {
	compute, gigabytes int
	attribute          string
}

// attributes are the endings that drivers put behind a profile: the driver's own spelling. "+me"
// adds the extra media engines, "+me.all" all of them, "-me" leaves media engines out, "+gfx" adds
// graphics.
var attributes = [...]string{"+me.all", "+me", "-me", "+gfx"}

// parseName takes the driver's spelling of a GPU instance profile apart.
func parseName(s string) (name, bool) {
	var n name
	for _, a := range attributes {
		if rest, ok := strings.CutSuffix(s, a); ok {
			s, n.attribute = rest, a
			break
		}
	}
	g, gb, ok := strings.Cut(s, "g.")
	gb, unit := strings.CutSuffix(gb, "gb")
	if !ok || !unit || !digits(g) || !digits(gb) {
		return name{}, false
	}
	n.compute, _ = strconv.Atoi(g)
	n.gigabytes, _ = strconv.Atoi(gb)
	return n, n.compute > 0 && n.gigabytes > 0
}

func digits(s string) bool {
	return s != "" && len(s) <= 4 && strings.Trim(s, "0123456789") == ""
}

// CanonicalProfile brings the spellings of one profile to the driver's, which the mig-devices field
// of a mig-parted file uses: "1g.10gb.me" (config names), "mig-1g.10gb.me" and
// "nvidia.com/mig-1g.10gb.me" (resource names) all become "1g.10gb+me". The result is false for a
// word that names no GPU instance, such as a compute instance ("1c.3g.20gb"), which is never a
// Kubernetes resource.
func CanonicalProfile(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSpace(s))
	s = strings.TrimPrefix(strings.TrimPrefix(s, "nvidia.com/"), "mig-")
	if _, ok := parseName(s); ok {
		return s, true
	}
	for _, a := range attributes {
		if rest, ok := strings.CutSuffix(s, "."+a[1:]); ok && a[0] == '+' {
			if _, plain := parseName(rest); plain {
				return rest + a, true
			}
		}
	}
	return "", false
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

// Profiles lists every profile name in the table, large to small, each once.
func Profiles() []string {
	var names []string
	for _, b := range Boards() {
		names = append(names, b.names()...)
	}
	slices.SortFunc(names, bySize)
	return slices.Compact(names)
}
