package process

import (
	"iter"
	"strings"
)

// A Group is what the control group of a process says of it. What it does not say is empty.
type Group struct {
	// PodUID is the UID of the pod, as the kubelet writes it: for a static pod that is the hash of its
	// manifest, which the API server shows as the annotation kubernetes.io/config.hash.
	PodUID string
	// ContainerID is the runtime's id of the container: 64 hexadecimal digits.
	ContainerID string
	// Runtime is "containerd", "cri-o", "docker" or "podman" where the name of the group says it; the
	// cgroupfs driver names none.
	Runtime string
}

// Parse reads the text of /proc/<pid>/cgroup: lines of hierarchy, controllers and path
// (cgroups(7)). Of several pods in one path, as where a node runs in a container (kind, k3d), the
// innermost is the process's. The zero Group is a process in no pod and no container.
func Parse(text string) Group {
	var best Group
	for path := range paths(text) {
		// Version 1 has a line per controller, some of which can be elsewhere (systemd's own, or a
		// controller that the runtime does not use).
		if g := parsePath(path); g.PodUID != "" && best.PodUID == "" ||
			g.PodUID != "" == (best.PodUID != "") && g.ContainerID != "" && best.ContainerID == "" {
			best = g
		}
	}
	return best
}

// paths yields the path of each line of the text of /proc/<pid>/cgroup.
func paths(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range strings.SplitSeq(text, "\n") {
			_, rest, _ := strings.Cut(line, ":")
			if _, path, ok := strings.Cut(rest, ":"); ok && !yield(path) {
				return
			}
		}
	}
}

func parsePath(path string) Group {
	var g Group
	for segment := range strings.SplitSeq(path, "/") {
		// containerd under cgroupfs on a systemd node: "<pod's slice>:cri-containerd:<id>".
		pod, _, joined := strings.Cut(segment, ":")
		if uid := podOf(pod); uid != "" {
			g = Group{PodUID: uid} // what is above is the container that the node is
			if !joined {
				continue
			}
		}
		if runtime, id := containerOf(segment); id != "" && g.ContainerID == "" || id != "" && g.PodUID == "" {
			g.Runtime, g.ContainerID = runtime, id
		}
	}
	return g
}

// podOf returns the UID of a pod's group: "pod<uid>" of the cgroupfs driver,
// "kubepods-burstable-pod<uid with _ for ->.slice" of systemd's.
func podOf(segment string) string {
	if name, ok := strings.CutSuffix(segment, ".slice"); ok {
		at := strings.LastIndex(name, "-pod")
		if at < 0 || !strings.HasPrefix(name, "kubepods") && !strings.Contains(name, "-kubepods") {
			return ""
		}
		return uidOf(strings.ReplaceAll(name[at+len("-pod"):], "_", "-"))
	}
	name, ok := strings.CutPrefix(segment, "pod")
	if !ok {
		return ""
	}
	return uidOf(name)
}

// uidOf returns s if it is the UID of a pod, else "".
func uidOf(s string) string {
	if !IsPodUID(s) {
		return ""
	}
	return s
}

// IsPodUID reports whether s is the UID of a pod as the kubelet writes it: a UUID in lower case, or
// for a static pod the 32 hexadecimal digits of its manifest's hash.
func IsPodUID(s string) bool {
	if len(s) != 36 {
		return len(s) == 32 && hexadecimal(s)
	}
	return s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' &&
		hexadecimal(s[:8]) && hexadecimal(s[9:13]) && hexadecimal(s[14:18]) && hexadecimal(s[19:23]) && hexadecimal(s[24:])
}

// runtimes are how runtimes call the scopes of their containers.
var runtimes = [...]struct{ prefix, name string }{
	{"cri-containerd-", "containerd"},
	{"containerd-", "containerd"},
	{"nerdctl-", "containerd"},
	{"crio-", "cri-o"},
	{"docker-", "docker"},
	{"libpod-", "podman"},
}

// containerOf returns the runtime and the id of a container's group: "<runtime>-<id>.scope" of
// systemd, "<slice>:<runtime>:<id>" of containerd without it, "crio-<id>", "<id>".
func containerOf(segment string) (runtime, id string) {
	name := strings.TrimSuffix(segment, ".scope")
	if at := strings.LastIndexByte(name, ':'); at >= 0 {
		name, id = name[:at], name[at+1:]
		if !containerID(id) {
			return "", ""
		}
		if strings.HasSuffix(name, ":cri-containerd") || strings.HasSuffix(name, ":containerd") {
			return "containerd", id
		}
		return "", id
	}
	for _, r := range &runtimes {
		if rest, ok := strings.CutPrefix(name, r.prefix); ok {
			if containerID(rest) {
				return r.name, rest
			}
			return "", "" // conmon and other helpers
		}
	}
	if containerID(name) {
		return "", name
	}
	return "", ""
}

func containerID(s string) bool { return len(s) == 64 && hexadecimal(s) }

func hexadecimal(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return s != ""
}
