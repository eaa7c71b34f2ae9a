package chart

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

// ErrVersion is returned for a version of the chart that the table cannot place.
var ErrVersion = errors.New("unknown chart version")

// A Version is a release of the gpu-operator chart, such as v26.7.0. Its zero value is no release.
type Version struct {
	major, minor, patch int
}

// String returns the version as its git tag, "v26.7.0", or "" for no release.
func (v Version) String() string {
	if v == (Version{}) {
		return ""
	}
	return fmt.Sprintf("v%d.%d.%d", v.major, v.minor, v.patch)
}

// MarshalText writes the git tag.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Compare orders versions by age, the oldest first.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.major, o.major), cmp.Compare(v.minor, o.minor), cmp.Compare(v.patch, o.patch))
}

// Before reports whether v is older than o.
func (v Version) Before(o Version) bool { return v.Compare(o) < 0 }

// Minor returns the release line, "v26.7".
func (v Version) Minor() string { return fmt.Sprintf("v%d.%d", v.major, v.minor) }

// parseVersion reads v26.7.0 or v26.7, with or without the v; parts says how many numbers there
// were.
func parseVersion(s string) (v Version, parts int, ok bool) {
	fields := strings.Split(strings.TrimPrefix(s, "v"), ".")
	if len(fields) < 2 || len(fields) > 3 {
		return Version{}, 0, false
	}
	numbers := [3]int{}
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 16)
		if err != nil {
			return Version{}, 0, false
		}
		numbers[i] = int(n)
	}
	return Version{numbers[0], numbers[1], numbers[2]}, len(fields), true
}

// ParseVersion reads a release such as v26.7.0, with or without the v.
func ParseVersion(s string) (Version, error) { return version(s) }

// Newer reports whether s is a release that is younger than all that the table knows.
func (t *Table) Newer(s string) bool {
	v, parts, ok := parseVersion(s)
	return ok && t.Latest().Before(v) && !(parts == 2 && v.Minor() == t.Latest().Minor())
}

// Resolve finds the release that s means: "v26.7.0", "26.7.0", the newest of a line for "v26.7",
// and the newest of all for "latest" or "". A release between two that the table knows, or one
// newer than all, is taken for the older neighbor, and exact is false. Anything else is ErrVersion,
// with the nearest release in the message.
func (t *Table) Resolve(s string) (v Version, exact bool, err error) {
	if s == "" || s == "latest" {
		return t.Latest(), true, nil
	}
	want, parts, ok := parseVersion(s)
	if !ok {
		names := make([]string, len(t.versions))
		for i, v := range t.versions {
			names[i] = v.String()
		}
		hint := ""
		if near := report.Nearest(s, names); near != "" {
			hint = ", did you mean " + near + "?"
		}
		return Version{}, false, fmt.Errorf("%w %q: want a release such as %s%s", ErrVersion, s, t.Latest(), hint)
	}
	if parts == 2 {
		want.patch = 1 << 16
	}
	best := Version{}
	for _, have := range t.versions {
		if have == want {
			return have, true, nil
		}
		if have.Before(want) {
			best = have
		}
	}
	if parts == 2 && best.Minor() == want.Minor() {
		return best, true, nil
	}
	if best == (Version{}) {
		return Version{}, false, fmt.Errorf("%w %q: this gpuop knows %s to %s", ErrVersion, s, t.versions[0], t.Latest())
	}
	return best, false, nil
}

// Labeled returns the release that Helm's labels of an object name, or the one that the table knows before it. ok is
// false where they name none.
func (t *Table) Labeled(labels map[string]string) (v Version, ok bool) {
	name := cmp.Or(labels["app.kubernetes.io/version"], strings.TrimPrefix(labels["helm.sh/chart"], "gpu-operator-"))
	v, _, err := t.Resolve(name)
	return v, err == nil && name != ""
}

// SystemTag is how the operator of a release ends the tag of a driver's image: the ID and VERSION_ID of
// os-release, and of RHEL and its kin the major version: of all since v26.7.0, of Rocky Linux and of RHEL 10 since
// v26.3.0. Source: gpu-operator controllers/state_manager.go, getGPUNodeOSInfo; before, kernelFullVersion.
func (v Version) SystemTag(id, version string) string {
	major, _, _ := strings.Cut(version, ".")
	number, _ := strconv.Atoi(major)
	all, some := Version{26, 7, 0}, Version{26, 3, 0}
	switch {
	case !v.Before(all) && (id == "ol" || id == "rocky" || id == "rhel"),
		!v.Before(some) && (id == "rocky" || id == "rhel" && number >= 10):
		return id + major
	}
	return id + version
}

// DriverBranch reports whether a driver's version is a branch, such as 580: what a precompiled driver is chosen by.
func DriverBranch(version string) bool {
	n, err := strconv.ParseUint(version, 10, 16)
	return err == nil && len(version) == 3 && n >= 100
}

// Newest returns the newest release in a range as Helm reads it: "v25.3.*", "~25.10", ">=25.3 <26". ok is
// false for what is no range, or has none of the releases that the table knows.
func (t *Table) Newest(within string) (v Version, ok bool) {
	c, err := semver.NewConstraint(within)
	if err != nil {
		return Version{}, false
	}
	for _, v := range slices.Backward(t.versions) {
		if c.Check(semver.New(uint64(v.major), uint64(v.minor), uint64(v.patch), "", "")) {
			return v, true
		}
	}
	return Version{}, false
}
