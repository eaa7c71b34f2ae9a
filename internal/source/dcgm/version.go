package dcgm

import (
	"strconv"
	"strings"
)

// versionOf returns the version from DCGM's build information, which is key:value pairs separated
// by semicolons. It is empty where there is none.
func versionOf(buildInfo string) string {
	for pair := range strings.SplitSeq(buildInfo, ";") {
		if key, value, ok := strings.Cut(pair, ":"); ok && strings.TrimSpace(key) == "version" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A release is the major and minor number of a DCGM version: the generation that decides in which
// units it counts. The zero release is unknown.
type release struct{ major, minor int }

func releaseOf(version string) release {
	var r release
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	var err error
	if r.major, err = strconv.Atoi(major); err != nil {
		return release{}
	}
	if r.minor, err = strconv.Atoi(minor); err != nil {
		return release{}
	}
	return r
}

// before reports whether r is older than x.
func (r release) before(x release) bool {
	return r.major < x.major || r.major == x.major && r.minor < x.minor
}
