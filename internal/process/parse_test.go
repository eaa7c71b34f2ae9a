package process_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
)

const (
	pod    = "0f3ad0e4-5b1c-4c8e-9d0a-3c1f2ab45678"
	slice  = "0f3ad0e4_5b1c_4c8e_9d0a_3c1f2ab45678"
	static = "31d1f9b2c4aa4e0f8b3d7c6e5f4a3b2c"
)

var (
	id   = strings.Repeat("0123456789abcdef", 4)
	node = strings.Repeat("fedcba9876543210", 4)
)

func TestPods(t *testing.T) {
	const outer = "ffffffff-5b1c-4c8e-9d0a-3c1f2ab45678"
	outerSlice := strings.ReplaceAll(outer, "-", "_")
	const root, user = "0::/kubepods.slice/", "user.slice/user-1000.slice/user@1000.service/"
	containerd, crio := "/cri-containerd-"+id+".scope", "/crio-"+id+".scope"
	const plain, best = "kubepods-pod" + slice + ".slice", "kubepods-besteffort-pod" + slice + ".slice"
	const burst = "kubepods-burstable.slice/kubepods-burstable-pod" + slice + ".slice"
	for name, test := range map[string]struct {
		text string
		want string // the UIDs
	}{
		"v2, systemd, containerd":                                  {root + burst + containerd + "\n", pod},
		"v2, systemd, CRI-O, in a cgroup created by the container": {root + plain + crio + "/container", pod},
		"v2, seen from another container's namespace":              {"0::/../../" + best + containerd, pod},
		"v2, seen from a container of another QoS class": {
			"0::/../../../kubepods-besteffort.slice/" + best + containerd, pod,
		},
		"v2, seen from another container's namespace, cgroupfs": {"0::/../../pod" + pod + "/" + id, pod},
		"a user's cgroup, seen from another container's namespace": {
			"0::/../../../../" + user + "kubepods.slice/" + plain, "",
		},
		"a system cgroup, seen from another container's namespace": {"0::/../../../../system.slice/" + plain, ""},
		"v2, cgroupfs":                       {"0::/kubepods/besteffort/pod" + pod + "/" + id, pod},
		"v2, cgroupfs, CRI-O":                {"0::/kubepods/burstable/pod" + pod + "/crio-" + id, pod},
		"below a custom root of the kubelet": {"0::/custom/kubepods/burstable/pod" + pod + "/" + id, pod},
		"below a custom root that contains -pod": {
			"0::/a-pod.slice/a-pod-kubepods.slice/a-pod-kubepods-burstable.slice/" +
				"a-pod-kubepods-burstable-pod" + slice + ".slice/x", pod,
		},
		"v1, some controllers elsewhere": {
			"9:rdma:/\n8:cpu,cpuacct:/system.slice/docker-" + node + ".scope\n" +
				"7:memory:/kubepods/burstable/pod" + pod + "/" + id + "\n", pod,
		},
		"containerd without its systemd driver": {
			"0::/system.slice/containerd.service/kubepods-burstable-pod" + slice + ".slice:cri-containerd:" + id, pod,
		},
		"kind, systemd": {
			"0::/docker/" + node + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/" +
				"kubelet-kubepods-burstable-pod" + slice + ".slice" + containerd, pod,
		},
		"kind, cgroupfs": {
			"11:devices:/docker/" + node + "/kubelet/kubepods/besteffort/pod" + pod + "/" + id, pod,
		},
		"a node in a pod": {
			"0::/kubepods/burstable/pod" + outer + "/" + node + "/kubepods/pod" + pod + "/" + id, outer + " " + pod,
		},
		"a container that creates cgroups": {
			root + "kubepods-pod" + outerSlice + ".slice" + containerd + "/" + plain, outer,
		},
		"a container that creates a kubelet root": {
			root + "kubepods-pod" + outerSlice + ".slice" + containerd + "/kubepods.slice/" + plain, outer + " " + pod,
		},
		"a container that creates a pod cgroup": {"0::/kubepods/pod" + outer + "/" + id + "/pod" + pod, outer},
		"a user who creates cgroups":            {"0::/" + user + "app.slice/" + plain, ""},
		"a user who creates a kubelet root":     {"0::/" + user + "kubepods.slice/" + plain, ""},
		"a user's own containerd":               {"0::/" + user + plain + ":cri-containerd:" + id, ""},
		"a job that creates cgroups": {
			"0::/system.slice/slurmstepd.scope/job_7/step_0/user/kubepods/pod" + pod, "",
		},
		"a job that creates cgroups, v1": {"4:memory:/slurm/uid_1000/job_7/step_0/kubepods/pod" + pod, ""},
		"a job on a virtual node": {
			"4:memory:/slurm_n1/uid_1000/job_7/kubepods/pod" + pod + "\n" +
				"0::/n1_slurmstepd.scope/job_7/kubepods/pod" + pod, "",
		},
		"a job of PBS":                  {"4:memory:/pbs_jobs.service/jobid/7.server/kubepods/pod" + pod, ""},
		"docker in a pod":               {"0::/kubepods/burstable/pod" + pod + "/" + id + "/docker/" + node, pod},
		"a static pod":                  {root + "kubepods-pod" + static + ".slice" + crio, static},
		"the pod's own group":           {"0::/kubepods/pod" + pod, pod},
		"docker run":                    {"0::/system.slice/docker-" + id + ".scope", ""},
		"a login":                       {"0::/user.slice/user-1000.slice/session-3.scope", ""},
		"a slice that looks like a pod": {"0::/app.slice/my-pod" + slice + ".slice/" + id, ""},
		"a cgroup of another slice":     {"0::/system.slice/kubepods-pod" + slice + ".slice", ""},
		"a QoS class without a root":    {"0::/burstable/pod" + pod, ""},
		"no UID":                        {"0::/kubepods/burstable/pod-of-whales/" + id, ""},
		"upper case":                    {"0::/kubepods/pod" + strings.ToUpper(pod), ""},
		"the root":                      {"0::/\n", ""},
		"an empty file":                 {"", ""},
		"no colons":                     {"kubepods/pod" + pod, ""},
	} {
		if got := strings.Join(process.Pods(test.text), " "); got != test.want {
			t.Errorf("%s: UIDs = %q, want %q", name, got, test.want)
		}
	}
}

// A UID with any digit or dash changed is invalid.
func TestIsPodUID(t *testing.T) {
	for _, uid := range []string{pod, static} {
		if !process.IsPodUID(uid) || process.IsPodUID(uid+"0") || process.IsPodUID(uid[1:]) {
			t.Errorf("IsPodUID: want true for %s, and false if it is one character longer or shorter", uid)
		}
		for i := range uid {
			for _, other := range []string{"g", "A", "-", "0"} {
				changed := uid[:i] + other + uid[i+1:]
				if is := process.IsPodUID(changed); is != (other == uid[i:i+1] || other == "0" && uid[i] != '-') {
					t.Errorf("IsPodUID(%s) = %t, want %t", changed, is, !is)
				}
			}
		}
	}
}

// shape returns a pod's container cgroup by driver and runtime. The bits of choice nest it in another container and add
// other lines.
func shape(choice uint8, pod, id string) string {
	under := strings.ReplaceAll(pod, "-", "_")
	path := [...]string{
		"/kubepods/burstable/pod" + pod + "/" + id,
		"/kubepods.slice/kubepods-pod" + under + ".slice/cri-containerd-" + id + ".scope",
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + under + ".slice/crio-" + id + ".scope/x",
		"/system.slice/containerd.service/kubepods-burstable-pod" + under + ".slice:cri-containerd:" + id,
	}[choice%4]
	if choice&4 != 0 {
		path = "/docker/" + node + "/kubelet" + path
	}
	if choice&8 != 0 {
		return "3:cpu:/\n2:memory:" + path + "\n1:name=systemd:" + path + "\n0::/"
	}
	return "0::" + path
}

// For any text, each UID found is part of it and valid. A pod written in any shape is found, whatever surrounds it.
func FuzzPods(f *testing.F) {
	f.Add("0::/user.slice", uint64(1), uint64(2), uint8(0))
	f.Add("0::/kubepods/pod"+pod+"/"+id, uint64(3), uint64(4), uint8(13))
	f.Fuzz(func(t *testing.T, text string, a, b uint64, choice uint8) {
		for _, uid := range process.Pods(text) {
			if !strings.Contains(strings.ReplaceAll(text, "_", "-"), "pod"+uid) || len(uid) != 32 && len(uid) != 36 {
				t.Errorf("Pods(%q) returned %q, want a UID of the text", text, uid)
			}
		}
		uid := fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(a), uint16(a>>32), uint16(a>>48), uint16(b), b>>16)
		cid := fmt.Sprintf("%032x%032x", a, b)
		if got := process.Pods(shape(choice, uid, cid)); len(got) != 1 || got[0] != uid {
			t.Errorf("Pods(%q) = %q, want only %q", shape(choice, uid, cid), got, uid)
		}
	})
}
