// Package process finds the pods that a process belongs to from its cgroup. It needs no API server and no container
// runtime.
//
// Pods parses /proc/<pid>/cgroup, version 1 or 2, as written for both cgroup drivers of the kubelet and for containerd,
// CRI-O and Docker, nested or not. A Resolver reads /proc through an fs.FS and remembers a bounded number of processes
// by PID and start time. It returns an error if the PIDs are not those of the host.
//
// The package reads no environment or command line of a process.
package process

import (
	"regexp"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/text"
)

// Pods returns the UIDs of the pods named in the text of /proc/<pid>/cgroup (cgroups(7)), outermost first. There can be
// several, for example if a node is itself a pod. The UID of a static pod is the hash of its manifest, which the API
// server shows as the annotation kubernetes.io/config.hash.
func Pods(text string) []string {
	// Version 1 has a line per controller. The process may be outside the pod's cgroup in controllers that the runtime
	// does not manage.
	for line := range strings.SplitSeq(text, "\n") {
		_, rest, _ := strings.Cut(line, ":")
		_, path, _ := strings.Cut(rest, ":")
		if uids := podsIn(path); len(uids) > 0 {
			return uids
		}
	}
	return nil
}

// podsIn returns the UIDs of the pod cgroups in a path. They count only directly below a cgroup of the kubelet, and
// never below a cgroup that a user controls, because any user could name a cgroup like a pod's.
func podsIn(path string) []string {
	var uids []string
	below := strings.HasPrefix(path, "/../") // relative to the group of this process's own container
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == ".." {
			continue
		}
		if delegated.MatchString(segment) {
			break
		}
		// containerd with cgroupfs on a systemd node: "<pod's slice>:cri-containerd:<id>".
		name, _, joined := strings.Cut(segment, ":")
		if m := pod.FindStringSubmatch(name); m != nil && (below || joined && strings.HasPrefix(name, "kubepods")) {
			if uid := strings.ReplaceAll(m[1]+m[2], "_", "-"); IsPodUID(uid) {
				uids = append(uids, uid)
			}
		}
		below = kubelet.MatchString(name) || below && class.MatchString(name)
	}
	return uids
}

var (
	// kubelet matches the cgroup of all pods: "kubepods" with the cgroupfs driver, "kubepods.slice" with systemd, or
	// "<root>-kubepods.slice" below another root.
	kubelet = regexp.MustCompile(`^(kubepods|(.*-)?kubepods\.slice)$`)
	// class matches the cgroup of a QoS class.
	class = regexp.MustCompile(`^(.*kubepods-)?(burstable|besteffort)(\.slice)?$`)
	// delegated matches the cgroup of a user session or batch job, below which its user may create cgroups.
	delegated = regexp.MustCompile(`^(user\.slice|user@.*|slurm|slurm_.*|.*slurmstepd\.scope|pbs_jobs\.service)$`)
	// pod matches the cgroup of a pod: "pod<uid>" with the cgroupfs driver, "kubepods-burstable-pod<uid with _ for
	// ->.slice" with systemd.
	pod = regexp.MustCompile(`^(?:pod([0-9a-f-]+)|.*-pod([0-9a-f_-]+)\.slice)$`)
)

// IsPodUID reports whether s is a pod UID as the kubelet writes it: a UUID in lower case, or 32 hexadecimal digits for
// a static pod.
func IsPodUID(s string) bool {
	if len(s) == 32 {
		return strings.Trim(s, "0123456789abcdef") == ""
	}
	return text.IsUUID(s) && s == strings.ToLower(s)
}
