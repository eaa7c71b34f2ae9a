package runtimemapper

import (
	"bufio"
	"io"
	"os"
	"regexp"
	"strings"
)

// Runtimes mount files at these paths from the container's own folder, whose path contains the ID:
// …/containers/ID/hostname for Docker, …/overlay-containers/ID/userdata/hostname for Podman.
var (
	mountedFiles = regexp.MustCompile(`^/etc/(hostname|hosts|resolv\.conf)$`)
	containerID  = regexp.MustCompile(`(?:^|/)([0-9a-f]{64})(?:/|$)`)
)

// self returns the id of the container that this process runs in, or "" if there is none or it is unknown.
func self() string {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	return idOf(f)
}

// idOf returns a container id from mountinfo (proc_pid_mountinfo(5)). Its fourth field is the path on the mounted file
// system, and the fifth is the mount point.
func idOf(mountinfo io.Reader) string {
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || !mountedFiles.MatchString(fields[4]) {
			continue
		}
		if id := containerID.FindStringSubmatch(fields[3]); id != nil {
			return id[1]
		}
	}
	return ""
}
