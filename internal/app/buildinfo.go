package app

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// A build describes the build of the program. Unknown parts are "unknown".
type build struct {
	Version  string // tag, such as v0.1.0, or the output of git describe between tags
	Revision string // commit, with "-dirty" if files differed from it
	Date     string // date of the commit in RFC 3339
}

const unknown = "unknown"

// build returns the values set by the linker, completed with those that the Go toolchain recorded.
func (p *Process) build() build {
	info, _ := debug.ReadBuildInfo()
	return completed(build{Version: p.Version, Revision: p.Revision, Date: p.Date}, info)
}

func completed(b build, info *debug.BuildInfo) build {
	recorded := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			recorded[s.Key] = s.Value
		}
		if v := info.Main.Version; v != "(devel)" { // built by go install MODULE@VERSION
			recorded["version"] = v
		}
	}
	if b.Revision == "" && recorded["vcs.revision"] != "" {
		b.Revision = recorded["vcs.revision"]
		if recorded["vcs.modified"] == "true" {
			b.Revision += "-dirty"
		}
	}
	return build{
		Version:  cmp.Or(b.Version, recorded["version"], unknown),
		Revision: cmp.Or(b.Revision, unknown),
		Date:     cmp.Or(b.Date, recorded["vcs.time"], unknown),
	}
}

// String returns the output of --version.
func (b build) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "dcgm-exporter %s\n", b.Version)
	for _, line := range [][2]string{
		{"revision", b.Revision}, {"date", b.Date},
		{"go", runtime.Version()}, {"platform", runtime.GOOS + "/" + runtime.GOARCH},
	} {
		fmt.Fprintf(&s, "  %-9s %s\n", line[0]+":", line[1])
	}
	return s.String()
}
