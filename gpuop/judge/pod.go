package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// podState is the state of a pod, as a finding without check and subject.
type podState struct {
	check.Finding
	// blames is the component that the pod waits for, or "".
	blames string
	// in is the init container that has not completed, or "".
	in string
	// unstarted means that no container has run, and that the pod may have no sandbox.
	unstarted bool
}

// broken lists the waiting reasons of containers that count as errors, because they rarely resolve by themselves.
// Source: Kubernetes pkg/kubelet/images, pkg/kubelet/kuberuntime.
var broken = []string{
	"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable",
	"SignatureValidationFailed", "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError",
	"RunContainerError", "PreCreateHookError", "PostStartHookError",
}

// podStateOf returns the state of a pod. If the pod has failed, Fix deletes it. If it is not ready for another reason,
// Fix shows more about it.
func podStateOf(p *corev1.Pod) (s podState) {
	s.Fix, s.Since = fmt.Sprintf("kubectl describe pod -n %s %s", p.Namespace, p.Name), p.CreationTimestamp.Time
	s.Evidence = check.Seen("status", "Pod/"+p.Name, "phase %s", cmp.Or(string(p.Status.Phase), "unknown"))
	defer func() { s.Evidence.Time = s.Since }()
	if c := podCondition(p, corev1.PodReady); c != nil && c.Status == corev1.ConditionFalse {
		s.Since = c.LastTransitionTime.Time
	}
	status := &p.Status
	switch {
	case p.DeletionTimestamp != nil:
		s.Severity, s.Since = check.Waiting, p.DeletionTimestamp.Time
		s.Reason = "the pod is terminating"
		return s
	case status.Phase == corev1.PodFailed:
		s.Say(check.Error, "the pod has failed%s", because(status.Reason, status.Message))
		s.Fix = fmt.Sprintf("kubectl delete pod -n %s %s", p.Namespace, p.Name)
		return s
	}
	if c := podCondition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		s.Severity, s.Since = check.Error, c.LastTransitionTime.Time
		s.Reason = "the pod cannot be scheduled" + because(c.Reason, c.Message)
		s.Evidence = check.Seen("condition", "Pod/"+p.Name, "PodScheduled=False: %s: %s", c.Reason, c.Message)
		return s
	}
	for i := range status.InitContainerStatuses {
		c := &status.InitContainerStatuses[i]
		if c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 || c.Started != nil && *c.Started && c.Ready {
			continue
		}
		if i == 0 && notStarted(c) {
			unstarted(p, &s)
			return s
		}
		initContainer(p, c, &s)
		return s
	}
	restarts := int32(0)
	for i := range status.ContainerStatuses {
		c := &status.ContainerStatuses[i]
		restarts += c.RestartCount
		if c.Ready {
			continue
		}
		container(p, c, &s)
		return s
	}
	if len(status.ContainerStatuses) == 0 || status.Phase != corev1.PodRunning {
		s.Say(check.Waiting, "the pod is %s%s", strings.ToLower(cmp.Or(string(status.Phase), "unknown")),
			because(status.Reason, status.Message))
		return s
	}
	ready(p, restarts, &s)
	return s
}

// ready describes a pod whose containers are all ready.
func ready(p *corev1.Pod, restarts int32, s *podState) {
	s.Fix = ""
	s.Reason = "the pod is ready"
	if c := podCondition(p, corev1.PodReady); c != nil {
		s.Since = c.LastTransitionTime.Time
	}
	if restarts > 0 {
		s.Reason = "the pod is ready after " + check.Count(int(restarts), "restart")
	}
}

// notStarted reports whether an init container has never run and has no problem, such as an image that cannot be
// pulled.
func notStarted(c *corev1.ContainerStatus) bool {
	return c.State.Running == nil && c.State.Terminated == nil && c.LastTerminationState.Terminated == nil &&
		c.RestartCount == 0 &&
		(c.State.Waiting == nil || c.State.Waiting.Reason == "" || c.State.Waiting.Reason == "PodInitializing")
}

// unstarted describes a pod in which no container has run yet.
func unstarted(p *corev1.Pod, s *podState) {
	s.Severity, s.unstarted = check.Waiting, true
	s.Reason = "no container of the pod has started"
	switch c := podCondition(p, "PodReadyToStartContainers"); { // this condition exists since Kubernetes 1.28
	case c == nil:
	case c.Status == corev1.ConditionTrue:
		s.unstarted = false
		s.Reason += "; its sandbox exists, so the first image is being pulled"
	default:
		s.Reason += ": it has no sandbox"
	}
}

// initContainer describes the first init container that has not completed.
func initContainer(p *corev1.Pod, c *corev1.ContainerStatus, s *podState) {
	s.in, s.Evidence = c.Name, containerState(p, c)
	waits := ""
	if awaited, known := awaits[c.Name]; known {
		waits = ": it waits for " + awaited.what
		s.blames = awaited.component
		if c.Name == "toolkit-validation" && p.Labels["app"] == "nvidia-operator-validator" {
			waits, s.blames = ": it waits for the container toolkit to be set up in the container runtime",
				"container-toolkit"
		}
	}
	switch {
	case c.State.Running != nil:
		s.Severity, s.Since = check.Waiting, c.State.Running.StartedAt.Time
		s.Reason = fmt.Sprintf("init container %s is running%s", c.Name, waits)
		s.Fix = logs(p, c.Name, false)
	case c.State.Terminated != nil || c.State.Waiting != nil && slices.Contains(broken, c.State.Waiting.Reason):
		container(p, c, s)
		s.Reason = "init " + s.Reason + waits
	default:
		s.Say(check.Waiting, "init container %s has not started%s", c.Name, waits)
	}
}

// container describes a container that is not ready.
func container(p *corev1.Pod, c *corev1.ContainerStatus, s *podState) {
	s.Evidence = containerState(p, c)
	last := ""
	if t := c.LastTerminationState.Terminated; t != nil {
		last = fmt.Sprintf("; it ended with exit code %d%s", t.ExitCode, because(t.Reason, t.Message))
	}
	switch {
	case c.State.Waiting != nil && slices.Contains(broken, c.State.Waiting.Reason):
		s.Say(check.Error, "container %s is in %s after %s%s%s",
			c.Name, c.State.Waiting.Reason, check.Count(int(c.RestartCount), "restart"),
			because("", c.State.Waiting.Message), last)
		if strings.HasSuffix(c.State.Waiting.Reason, "ImagePullBackOff") ||
			strings.HasPrefix(c.State.Waiting.Reason, "ErrImage") {
			s.Reason = fmt.Sprintf("container %s cannot get its image %s: %s%s", c.Name, image(p, c.Name),
				c.State.Waiting.Reason, because("", c.State.Waiting.Message))
			s.Cause = "image " + image(p, c.Name)
		}
		if c.State.Waiting.Reason == "CrashLoopBackOff" {
			s.Fix = logs(p, c.Name, true)
		}
	case c.State.Waiting != nil:
		s.Say(check.Waiting, "container %s is waiting%s", c.Name,
			because(c.State.Waiting.Reason, c.State.Waiting.Message))
	case c.State.Terminated != nil:
		s.Severity, s.Since = check.Error, c.State.Terminated.FinishedAt.Time
		s.Reason = fmt.Sprintf("container %s ended with exit code %d%s", c.Name, c.State.Terminated.ExitCode,
			because(c.State.Terminated.Reason, c.State.Terminated.Message))
		s.Fix = logs(p, c.Name, false)
	case c.State.Running != nil:
		s.Severity, s.Since = check.Waiting, c.State.Running.StartedAt.Time
		s.Reason = fmt.Sprintf("container %s is running but not ready%s", c.Name, last)
		s.Fix = logs(p, c.Name, false)
	default:
		s.Say(check.Waiting, "container %s has not started", c.Name)
	}
}

// containerState returns a container's state as evidence.
func containerState(p *corev1.Pod, c *corev1.ContainerStatus) check.Evidence {
	text := "not started"
	switch state := c.State; {
	case state.Waiting != nil:
		text = strings.TrimSpace(state.Waiting.Reason + ": " + state.Waiting.Message)
	case state.Terminated != nil:
		text = fmt.Sprintf("exit code %d, %s: %s", state.Terminated.ExitCode, state.Terminated.Reason,
			state.Terminated.Message)
	case state.Running != nil:
		text = "running"
	}
	return check.Seen("status", "Pod/"+p.Name, "container %s, %s: %s",
		c.Name, check.Count(int(c.RestartCount), "restart"), text)
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &p.Status.Conditions[i]
}

// image returns a container's image as written in the pod.
func image(p *corev1.Pod, container string) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == container {
			return c.Image
		}
	}
	return "(unknown)"
}

func logs(p *corev1.Pod, container string, previous bool) string {
	command := fmt.Sprintf("kubectl logs -n %s %s -c %s", p.Namespace, p.Name, container)
	if previous {
		command += " --previous"
	}
	return command
}

// because formats a reason and message of Kubernetes to append to a sentence.
func because(reason, message string) string {
	message = strings.TrimSuffix(strings.TrimSpace(message), ".")
	const most = 200
	if runes := []rune(message); len(runes) > most {
		message = string(runes[:most]) + "…"
	}
	switch {
	case reason != "" && message != "":
		return " (" + reason + "): " + message
	case reason != "":
		return " (" + reason + ")"
	case message != "":
		return ": " + message
	}
	return ""
}

// awaited is what an init container waits for, and the component that provides it. component is "" if no operand
// provides it.
type awaited struct{ what, component string }

// awaits maps each init container of the operands to what it waits for. Source: the DaemonSets in gpu-operator assets/,
// and cmd/nvidia-validator/main.go.
var awaits = map[string]awaited{
	"driver-validation": {"the driver to be loaded", "driver"},
	"toolkit-validation": {"toolkit-ready, which the operator-validator writes when containers can use the GPU",
		"operator-validator"},
	"cuda-validation":           {"a CUDA workload in a pod", "container-toolkit"},
	"plugin-validation":         {"the node to offer a GPU as a resource", "device-plugin"},
	"k8s-driver-manager":        {"processes to release the old driver", ""},
	"config-manager-init":       {"the config in the node's label or the default", ""},
	"mofed-validation":          {"the network driver (MOFED) of the Network Operator or the host", ""},
	"nvidia-fs-validation":      {"the kernel module nvidia-fs (GPUDirect Storage)", "driver"},
	"gdrcopy-validation":        {"the kernel module gdrdrv (GDRCopy)", "driver"},
	"vgpu-manager-validation":   {"the vGPU host driver", "vgpu-manager"},
	"vgpu-devices-validation":   {"vGPU devices", "vgpu-device-manager"},
	"vfio-pci-validation":       {"the GPUs to be bound to vfio-pci", "vfio-manager"},
	"cc-manager-validation":     {"the confidential computing mode", "cc-manager"},
	"mps-control-daemon-mounts": {"the shared memory of the MPS control daemon", ""},
}
