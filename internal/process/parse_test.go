package process_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want process.Group
	}{
		"v2, systemd, containerd": {
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slice + ".slice/cri-containerd-" + id + ".scope\n",
			process.Group{PodUID: pod, ContainerID: id, Runtime: "containerd"},
		},
		"v2, systemd, CRI-O, in a group of the container": {
			"0::/kubepods.slice/kubepods-pod" + slice + ".slice/crio-" + id + ".scope/container",
			process.Group{PodUID: pod, ContainerID: id, Runtime: "cri-o"},
		},
		"v2, seen from another container's namespace": {
			"0::/../../kubepods-besteffort-pod" + slice + ".slice/cri-containerd-" + id + ".scope",
			process.Group{PodUID: pod, ContainerID: id, Runtime: "containerd"},
		},
		"v2, cgroupfs": {
			"0::/kubepods/besteffort/pod" + pod + "/" + id,
			process.Group{PodUID: pod, ContainerID: id},
		},
		"v2, cgroupfs, CRI-O": {
			"0::/kubepods/burstable/pod" + pod + "/crio-" + id,
			process.Group{PodUID: pod, ContainerID: id, Runtime: "cri-o"},
		},
		"v1, systemd, docker": {
			"12:pids:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + slice + ".slice/docker-" + id + ".scope\n" +
				"1:name=systemd:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + slice + ".slice/docker-" + id + ".scope\n" +
				"0::/system.slice/containerd.service\n",
			process.Group{PodUID: pod, ContainerID: id, Runtime: "docker"},
		},
		"v1, some controllers elsewhere": {
			"9:rdma:/\n8:cpu,cpuacct:/system.slice/docker-" + node + ".scope\n7:memory:/kubepods/burstable/pod" + pod + "/" + id + "\n",
			process.Group{PodUID: pod, ContainerID: id},
		},
		"containerd without its systemd driver": {
			"0::/system.slice/containerd.service/kubepods-burstable-pod" + slice + ".slice:cri-containerd:" + id,
			process.Group{PodUID: pod, ContainerID: id, Runtime: "containerd"},
		},
		"kind, systemd": {
			"0::/docker/" + node + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" +
				slice + ".slice/cri-containerd-" + id + ".scope",
			process.Group{PodUID: pod, ContainerID: id, Runtime: "containerd"},
		},
		"kind, cgroupfs": {
			"11:devices:/docker/" + node + "/kubelet/kubepods/besteffort/pod" + pod + "/" + id,
			process.Group{PodUID: pod, ContainerID: id},
		},
		"a node that is a pod": {
			"0::/kubepods/burstable/pod" + strings.Replace(pod, "0f3a", "ffff", 1) + "/" + node + "/kubepods/pod" + pod + "/" + id,
			process.Group{PodUID: pod, ContainerID: id},
		},
		"docker in a pod": {
			"0::/kubepods/burstable/pod" + pod + "/" + id + "/docker/" + node,
			process.Group{PodUID: pod, ContainerID: id},
		},
		"a static pod": {
			"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + static + ".slice/crio-" + id + ".scope",
			process.Group{PodUID: static, ContainerID: id, Runtime: "cri-o"},
		},
		"the pod's own group": {"0::/kubepods/pod" + pod, process.Group{PodUID: pod}},
		"a helper of CRI-O": {
			"0::/kubepods.slice/kubepods-pod" + slice + ".slice/crio-conmon-" + id + ".scope", process.Group{PodUID: pod},
		},
		"docker run": {
			"0::/system.slice/docker-" + id + ".scope", process.Group{ContainerID: id, Runtime: "docker"},
		},
		"docker run, cgroupfs": {"4:memory:/docker/" + id, process.Group{ContainerID: id}},
		"nerdctl":              {"0::/system.slice/nerdctl-" + id + ".scope", process.Group{ContainerID: id, Runtime: "containerd"}},
		"nerdctl by cgroupfs":  {"0::/default/" + id, process.Group{ContainerID: id}},
		"podman":               {"0::/machine.slice/libpod-" + id + ".scope/container", process.Group{ContainerID: id, Runtime: "podman"}},
		"a login":              {"0::/user.slice/user-1000.slice/session-3.scope", process.Group{}},
		"a slice that looks like one": {
			"0::/app.slice/my-pod" + slice + ".slice/" + id, process.Group{ContainerID: id},
		},
		"no UID":        {"0::/kubepods/burstable/pod-of-whales/" + id, process.Group{ContainerID: id}},
		"upper case":    {"0::/kubepods/pod" + strings.ToUpper(pod), process.Group{}},
		"a short id":    {"0::/kubepods/pod" + pod + "/cri-containerd-abc.scope", process.Group{PodUID: pod}},
		"the root":      {"0::/\n", process.Group{}},
		"an empty file": {"", process.Group{}},
		"no colons":     {"kubepods/pod" + pod, process.Group{}},
	} {
		if diff := cmp.Diff(test.want, process.Parse(test.text)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// shapes are how a pod's container appears, by driver and runtime; the bits of choice put it under
// another pod and after other lines.
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

// Whatever a text is, what is found is in it and has its form; and a pod that is written down in
// any shape is found again, whatever stands around it.
func FuzzParse(f *testing.F) {
	f.Add("0::/user.slice", uint64(1), uint64(2), uint8(0))
	f.Add("0::/kubepods/pod"+pod+"/"+id, uint64(3), uint64(4), uint8(13))
	f.Fuzz(func(t *testing.T, text string, a, b uint64, choice uint8) {
		g := process.Parse(text)
		if g.PodUID != "" && !strings.Contains(strings.ReplaceAll(text, "_", "-"), "pod"+g.PodUID) {
			t.Errorf("%q has no pod %q", text, g.PodUID)
		}
		if g.ContainerID != "" && (len(g.ContainerID) != 64 || !strings.Contains(text, g.ContainerID)) {
			t.Errorf("%q has no container %q", text, g.ContainerID)
		}
		if n := len(g.PodUID); n != 0 && n != 32 && n != 36 {
			t.Errorf("UID %q", g.PodUID)
		}
		uid := fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", uint32(a), uint16(a>>32), uint16(a>>48), uint16(b), b>>16)
		cid := fmt.Sprintf("%032x%032x", a, b)
		got := process.Parse(shape(choice, uid, cid))
		if got.PodUID != uid || got.ContainerID != cid {
			t.Errorf("%q gives %+v", shape(choice, uid, cid), got)
		}
	})
}
