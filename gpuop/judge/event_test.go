package judge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
	"github.com/gpu-telemetry/dcgm-exporter/gpuop/cluster"
)

// warned adds a warning event about an object in the operator's namespace.
func warned(s *cluster.State, kind, name, reason, message string) {
	s.Events = append(s.Events, corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "gpu-operator", Name: fmt.Sprintf("e%d", len(s.Events))}, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "gpu-operator", Name: name}, LastTimestamp: metav1.NewTime(at.Add(-time.Minute)),
	})
}

// unborn removes the pods of all operands and adds an event to each DaemonSet, as if the API server rejected the pods.
func unborn(s *cluster.State, message string) {
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		if d.Namespace != "gpu-operator" || d.Status.DesiredNumberScheduled == 0 {
			continue
		}
		s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool { return len(p.OwnerReferences) > 0 && p.OwnerReferences[0].Name == d.Name })
		d.Status.CurrentNumberScheduled, d.Status.NumberReady, d.Status.NumberAvailable, d.Status.NumberUnavailable = 0, 0, 0, d.Status.DesiredNumberScheduled
		warned(s, "DaemonSet", d.Name, "FailedCreate", message)
	}
}

// sandboxless resets a DaemonSet's pods to the state before they have a sandbox. If message is not empty, it adds an
// event to each pod.
func sandboxless(s *cluster.State, owner, message string) {
	for _, name := range []string{"gpu-1", "gpu-2"} {
		p := pod(s, owner, name)
		noSandbox(p, at.Add(-time.Hour))
		if message != "" {
			warned(s, "Pod", p.Name, "FailedCreatePodSandBox", message)
		}
	}
}

const (
	plugin  = "nvidia-device-plugin-daemonset"
	broken  = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "8d5": plugin type="calico" failed (add): error getting ClusterInformation: connection is unauthorized: Unauthorized`
	runtime = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for "nvidia" is configured`
)

// TestEventsNameTheCause expects one error for both nodes that names the cause and has the event as evidence. The first
// line of the report must name the cause. No error may name a wrong cause.
func TestEventsNameTheCause(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*cluster.State)
		// reason, event and nodes are parts of the expected error. No error may contain a text in not.
		reason, event, nodes string
		not                  []string
	}{
		"a broken network plugin": {func(s *cluster.State) { sandboxless(s, plugin, broken) },
			"the node's network plugin could not set up the pod's network", "plugin type=\"calico\" failed", "gpu-1, gpu-2", []string{"no handler", "RuntimeClass"}},
		"missing handler of the container runtime": {func(s *cluster.State) { sandboxless(s, plugin, runtime) },
			"the node's container runtime has no handler named nvidia", "no runtime for \"nvidia\" is configured", "gpu-1, gpu-2", []string{"network"}},
		"CRI-O without the handler": {func(s *cluster.State) {
			sandboxless(s, plugin, `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to find runtime handler nvidia from runtime list map[runc:0xc0]`)
		}, "the node's container runtime has no handler named nvidia", "failed to find runtime handler", "gpu-1, gpu-2", nil},
		"no RuntimeClass": {func(s *cluster.State) {
			unborn(s, `Error creating: pods "nvidia-device-plugin-daemonset-" is forbidden: pod rejected: RuntimeClass "nvidia" not found`)
		}, "the pods use the RuntimeClass nvidia, which does not exist", `RuntimeClass "nvidia" not found`, "gpu-1, gpu-2", []string{"quota", "handler", "may arrive"}},
		"Pod Security": {func(s *cluster.State) {
			unborn(s, `Error creating: pods "nvidia-driver-daemonset-" is forbidden: violates PodSecurity "baseline:latest": privileged (container "nvidia-driver-ctr" must not set securityContext.privileged=true)`)
		}, "the namespace enforces baseline:latest", "violates PodSecurity", "gpu-1, gpu-2", []string{"quota", "RuntimeClass"}},
		"quota used up": {func(s *cluster.State) {
			unborn(s, `Error creating: pods "nvidia-driver-daemonset-x" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4`)
		}, "the ResourceQuota pods of the namespace is used up", "exceeded quota", "gpu-1, gpu-2", []string{"Pod Security"}},
		"GKE's quota": {func(s *cluster.State) {
			unborn(s, `Error creating: insufficient quota to match these scopes: [{PriorityClass In [system-node-critical system-cluster-critical]}]`)
		}, "no ResourceQuota of the namespace allows the pods' PriorityClass", "insufficient quota", "gpu-1, gpu-2", []string{"used up"}},
		"a webhook": {func(s *cluster.State) {
			unborn(s, `Error creating: admission webhook "validate.kyverno.svc-fail" denied the request: no privileged pods`)
		}, "the admission webhook validate.kyverno.svc-fail rejects the pods", "no privileged pods", "gpu-1, gpu-2", nil},
		"missing image": {func(s *cluster.State) {
			for _, on := range []string{"gpu-1", "gpu-2"} {
				p := pod(s, plugin, on)
				c := &p.Status.ContainerStatuses[0]
				c.Ready, c.State = false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "Back-off pulling image"}}
				warned(s, "Pod", p.Name, "Failed", `Failed to pull image "nvcr.io/nvidia/k8s-device-plugin:v9": rpc error: code = NotFound desc = not found`)
			}
		}, "cannot get its image", "code = NotFound", "gpu-1, gpu-2", []string{"no handler"}},
		"event with an unknown message": {func(s *cluster.State) { sandboxless(s, plugin, "Failed to create pod sandbox: out of inodes") },
			"the kubelet cannot create the pod's sandbox", "out of inodes", "gpu-1, gpu-2", []string{"no handler", "network"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			test.change(s)
			rows := verified(t, s)
			var found []check.Finding
			for _, v := range rows {
				if strings.Contains(v.Reason, test.reason) {
					found = append(found, v)
				}
				for _, not := range test.not {
					if v.Severity == check.Error && strings.Contains(v.Reason, not) {
						t.Errorf("reason contains %q, which is not the cause: %+v", not, v)
					}
				}
			}
			if len(found) != 1 || found[0].Severity != check.Error || found[0].Nodes != test.nodes || !strings.Contains(found[0].Evidence.Text, test.event) {
				t.Errorf("findings = %+v, want one error with its event on %s\n%s", found, test.nodes, text(rows))
			}
			tree := check.Report{Judged: true, At: at, Start: true, Findings: rows}
			var out strings.Builder
			if err := tree.WriteText(&out, check.Style{}, false); err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(out.String(), "\n")
			if !strings.Contains(first, test.reason) {
				t.Errorf("first line = %q, want it to contain %q", first, test.reason)
			}
		})
	}
}

// TestMissingSandboxWithoutEvent expects a probable cause if a pod has no sandbox and no event says why.
func TestMissingSandboxWithoutEvent(t *testing.T) {
	s := healthy(t)
	sandboxless(s, plugin, "")
	rows := verified(t, s)
	for _, v := range rows {
		if strings.Contains(v.Reason, "has no handler") && !strings.Contains(v.Reason, "the container runtime probably") {
			t.Errorf("reason = %q, want it to say that the container runtime probably has no handler", v.Reason)
		}
	}
	if !strings.Contains(text(rows), "probably") {
		t.Errorf("no finding says probably:\n%s", text(rows))
	}
}

// TestOneTaintIsOneFinding adds 14 nodes with a taint that no operand tolerates, and expects one finding for all of
// them.
func TestOneTaintIsOneFinding(t *testing.T) {
	s := healthy(t)
	taint := corev1.Taint{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}
	first := *node(s, "gpu-1").DeepCopy()
	for i := range 14 {
		n := *first.DeepCopy()
		n.Name = fmt.Sprintf("t-%02d", i)
		n.Spec.Taints = append(n.Spec.Taints, taint)
		s.Nodes = append(s.Nodes, n)
	}
	rows := verified(t, s)
	var found []check.Finding
	for _, v := range rows {
		if strings.Contains(v.Reason, "team=ml:NoSchedule") {
			found = append(found, v)
		}
	}
	if len(found) != 1 || strings.Count(found[0].Nodes, "t-") != 14 || found[0].Severity != check.Error || !strings.Contains(found[0].Subject, "driver") || found[0].Evidence.Kind != "taint" {
		t.Errorf("findings about the taint = %+v, want one error for 14 nodes; all findings:\n%s", found, text(rows))
	}
	if len(found) == 1 && (!strings.Contains(found[0].Fix, "kubectl taint node t-00 t-01 ") || !strings.Contains(found[0].Fix, " t-13 team:NoSchedule-")) {
		t.Errorf("Fix = %q, want one command for all nodes", found[0].Fix)
	}
}

// TestDriverLogs writes a line to the log of a crashing driver pod. It expects an error that names the cause and has
// the line as evidence.
func TestDriverLogs(t *testing.T) {
	for line, want := range map[string]string{
		"ERROR: The Nouveau kernel driver is currently in use by your system.":                                      "the nouveau driver holds the GPUs: container",
		"modprobe: ERROR: could not insert 'nvidia': Key was rejected by service":                                   "Secure Boot rejects",
		"ERROR: The kernel module failed to load, because it was not signed by a key that is trusted by the kernel": "Secure Boot rejects",
		"Kernel module load error: Operation not permitted":                                                         "Secure Boot rejects",
		"modprobe: ERROR: could not insert 'nvidia': Permission denied":                                             "SELinux prevents the driver container from loading the module nvidia:",
		"NVRM: installed in this system requires use of the NVIDIA open kernel modules.":                            "needs the open kernel module:",
		"Could not unload NVIDIA driver kernel modules, driver is in use":                                           "because it is in use:",
		"E: Unable to locate package linux-objects-nvidia-535-server-5.10.0-23-amd64":                               "no package linux-objects-nvidia-535-server-5.10.0-23-amd64:",
		"curl: (6) Could not resolve host: developer.download.example.com":                                          "cannot download packages: developer.download.example.com:",
		"Error: Failed to download metadata for repo 'baseos': Cannot download repomd.xml":                          "cannot download packages: baseos:",
		"E: Unable to locate package linux-headers-6.8.0-1029-aws":                                                  "no headers for the node's kernel linux-headers-6.8.0-1029-aws:",
		"Error: Unable to find a match: kernel-headers-4.18.0-477.el8 kernel-devel-4.18.0-477.el8":                  "no headers for the node's kernel kernel-headers-4.18.0-477.el8:",
		"Could not resolve Linux kernel version":                                                                    "no headers for the node's kernel:",
		"modprobe: ERROR: could not insert 'nvidia': Exec format error":                                             "does not fit the node's kernel: Exec format error:",
		"modprobe: ERROR: could not insert 'nvidia': No such device":                                                "finds no GPU that it supports:",
		`ERROR: An error occurred while performing the step: "Building kernel modules". See /var/log`:               "does not compile for the node's kernel:",
	} {
		s := healthy(t)
		p := pod(s, "nvidia-driver-daemonset", "gpu-1")
		crash(p)
		prefix := "[pod/" + p.Name + "/nvidia-driver-ctr] "
		s.DriverLogs = map[string]string{p.Name: prefix + "Unloading NVIDIA driver kernel modules...\n" + prefix + line + "\n" + prefix + "Unmounting NVIDIA driver rootfs...\n"}
		var found []check.Finding
		for _, v := range verified(t, s) {
			if strings.Contains(v.Reason, want) {
				found = append(found, v)
			}
		}
		if len(found) != 1 || found[0].Severity != check.Error || found[0].Node != "gpu-1" || found[0].Evidence.Text != prefix+line || found[0].Fix == "" {
			t.Errorf("log line %q: findings = %+v, want one error on gpu-1 that says %q and has the line as evidence", line, found, want)
		}
	}
}

// TestDriverLogOfAPodThatWorks writes an error to the log of a ready driver pod, and expects no finding about it.
func TestDriverLogOfAPodThatWorks(t *testing.T) {
	s := healthy(t)
	name := pod(s, "nvidia-driver-daemonset", "gpu-1").Name
	s.DriverLogs = map[string]string{name: "W: Failed to fetch http://archive.example.com/InRelease\n"}
	for _, v := range verified(t, s) {
		if v.Evidence.Kind == "log" {
			t.Errorf("finding from the log of a ready pod: %+v", v)
		}
	}
}
