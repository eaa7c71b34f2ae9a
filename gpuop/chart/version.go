package chart

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/Masterminds/semver/v3"
)

// ErrVersion is returned for texts that are not a version, and for versions older than the oldest known release.
var ErrVersion = errors.New("unknown chart version")

// Version is a release of the gpu-operator chart, such as v26.7.0. The zero value is no release.
type Version [3]int

// String returns the version as its git tag, such as "v26.7.0", or "" for no release.
func (v Version) String() string {
	if v == (Version{}) {
		return ""
	}
	return fmt.Sprintf("v%d.%d.%d", v[0], v[1], v[2])
}

// MarshalText implements encoding.TextMarshaler.
func (v Version) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Compare returns -1, 0 or +1 if v is older than, equal to or newer than o.
func (v Version) Compare(o Version) int { return slices.Compare(v[:], o[:]) }

// Before reports whether v is older than o.
func (v Version) Before(o Version) bool { return v.Compare(o) < 0 }

// Minor returns the release series, such as "v26.7".
func (v Version) Minor() string { return fmt.Sprintf("v%d.%d", v[0], v[1]) }

var versionText = regexp.MustCompile(`^v?(\d{1,4})\.(\d{1,4})\.(\d{1,4})$`)

// ParseVersion parses a full version such as v26.7.0, with or without the v. Errors wrap ErrVersion.
func ParseVersion(s string) (v Version, err error) {
	m := versionText.FindStringSubmatch(s)
	if m == nil {
		return Version{}, fmt.Errorf("%w %q", ErrVersion, s)
	}
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // the pattern matches only digits
	}
	return v, nil
}

// Resolve returns the release that s means. s is a version ("v26.7.0" or "26.7.0"), a series ("v26.7"), or "latest" or
// "" for the newest release. For an unknown version, Resolve returns the nearest older release, and exact is false.
// Errors wrap ErrVersion.
func (t *Table) Resolve(s string) (v Version, exact bool, err error) {
	if s == "" || s == "latest" {
		return t.Latest(), true, nil
	}
	want, err := ParseVersion(s)
	if err != nil {
		want, err = ParseVersion(s + ".0")
	}
	if v, known := t.Newest(s); known && err == nil {
		return v, true, nil
	}
	i, _ := t.find(want) // 0 if s is not a version
	if i == 0 {
		const format = "%w %q: expected a release from %s to %s"
		return Version{}, false, fmt.Errorf(format, ErrVersion, s, t.releases[0].Version, t.Latest())
	}
	return t.releases[i-1].Version, false, nil
}

// Labeled returns the release that an object's Helm labels name or, if it is unknown, the nearest older one. ok is
// false if there is none.
func (t *Table) Labeled(labels map[string]string) (v Version, ok bool) {
	name := cmp.Or(labels["app.kubernetes.io/version"], strings.TrimPrefix(labels["helm.sh/chart"], "gpu-operator-"))
	v, _, err := t.Resolve(name)
	return v, err == nil && name != ""
}

// SystemTag returns the suffix of driver image tags: ID and VERSION_ID of os-release. Only the major version is used
// for RHEL, Rocky Linux and Oracle Linux since v26.7.0, and already since v26.3.0 for Rocky Linux and for RHEL 10 and
// later. Source: gpu-operator controllers/state_manager.go, getGPUNodeOSInfo; earlier, kernelFullVersion.
func (v Version) SystemTag(id, version string) string {
	major, _, _ := strings.Cut(version, ".")
	since := Version{26, 7, 0}
	if number, _ := strconv.Atoi(major); id == "rocky" || id == "rhel" && number >= 10 {
		since = Version{26, 3, 0}
	}
	if !v.Before(since) && slices.Contains([]string{"rocky", "rhel", "ol"}, id) {
		return id + major
	}
	return id + version
}

// DriverBranch reports whether a driver version is only a branch, such as 580. Precompiled drivers need a branch.
func DriverBranch(version string) bool {
	n, err := strconv.ParseUint(version, 10, 16)
	return err == nil && len(version) == 3 && n >= 100
}

// Newest returns the newest known release that meets a constraint in Helm's syntax, such as "v25.3.*", "~25.10" or
// ">=25.3 <26". ok is false if the constraint is invalid, or if no known release meets it.
func (t *Table) Newest(constraint string) (v Version, ok bool) {
	c, err := semver.NewConstraint(constraint)
	if err != nil {
		return Version{}, false
	}
	for _, v := range slices.Backward(t.Versions()) {
		if c.Check(semver.New(uint64(v[0]), uint64(v[1]), uint64(v[2]), "", "")) {
			return v, true
		}
	}
	return Version{}, false
}

// numbers returns the numbers at the beginning of a tag: 0, 12, 2 for v0.12.2-ubi8; 3, 1, 7, 3, 1, 4 for
// 3.1.7-3.1.4-ubuntu20.04.
func numbers(tag string) (out []int) {
	isSeparator := func(r rune) bool { return r == '-' || r == '.' }
	for part := range strings.FieldsFuncSeq(strings.TrimPrefix(tag, "v"), isSeparator) {
		n, err := strconv.Atoi(part)
		if err != nil {
			break
		}
		out = append(out, n)
	}
	return out
}

// CompareTags compares two tags by their numbers, like cmp.Compare. Numbers that only one tag has are ignored.
func CompareTags(a, b string) int {
	x, y := numbers(a), numbers(b)
	n := min(len(x), len(y))
	return slices.Compare(x[:n], y[:n])
}

// SameTag reports whether a tag belongs to a version: v0.12.2-ubi8 belongs to 0.12.2.
func SameTag(tag, version string) bool {
	return tag == version || len(numbers(tag)) > 0 && len(numbers(version)) > 0 && CompareTags(tag, version) == 0
}
