package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// operand is the state of an operand on a node.
type operand struct {
	check.Finding
	component string
	pod       *corev1.Pod // nil if the node has no pod of the operand
	blames    string      // the component that the pod waits for, or ""
	in        string      // the init container that has not completed, or ""
	unstarted bool        // no container has run, and the pod may have no sandbox
}

// broken lists the waiting reasons of containers that count as errors, because they rarely resolve by themselves.
// Source: Kubernetes pkg/kubelet/images, pkg/kubelet/kuberuntime.
var broken = []string{
	"ImagePullBackOff", "ErrImagePull", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable",
	"SignatureValidationFailed", "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError",
	"RunContainerError", "PreCreateHookError", "PostStartHookError",
}

// podStateOf returns the state of a pod, without check, subject and component. Fix shows more, or deletes a failed pod.
func podStateOf(p *corev1.Pod) (s operand) {
	s.pod, s.Since = p, p.CreationTimestamp.Time
	s.Fix = fmt.Sprintf("kubectl describe pod -n %s %s", p.Namespace, p.Name)
	phase := cmp.Or(string(p.Status.Phase), "unknown")
	s.Evidence = check.Seen("status", "Pod/"+p.Name, "phase %s", phase)
	defer func() { s.Evidence.Time = s.Since }()
	ready, scheduled := podCondition(p, corev1.PodReady), podCondition(p, corev1.PodScheduled)
	if ready.Status == corev1.ConditionFalse {
		s.Since = ready.LastTransitionTime.Time
	}
	switch {
	case p.DeletionTimestamp != nil:
		s.Say(check.Waiting, "the pod is terminating")
		s.Since = p.DeletionTimestamp.Time
		return s
	case p.Status.Phase == corev1.PodFailed:
		s.Say(check.Error, "the pod has failed%s", because(p.Status.Reason, p.Status.Message))
		s.Fix = fmt.Sprintf("kubectl delete pod -n %s %s", p.Namespace, p.Name)
		return s
	case scheduled.Status == corev1.ConditionFalse:
		s.Say(check.Error, "the pod cannot be scheduled%s", because(scheduled.Reason, scheduled.Message))
		s.Since, s.Evidence.Text = scheduled.LastTransitionTime.Time, "PodScheduled=False: "+scheduled.Message
		return s
	}
	restarts := int32(0)
	for i, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		isInit := i < len(p.Status.InitContainerStatuses)
		ended := c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
		switch {
		case !isInit:
			restarts += c.RestartCount
			if c.Ready {
				continue
			}
		case ended, c.Ready && c.Started != nil && *c.Started:
			continue
		case i == 0 && c.RestartCount == 0 && (c.State == corev1.ContainerState{} || c.State.Waiting != nil &&
			slices.Contains([]string{"", "PodInitializing"}, c.State.Waiting.Reason)):
			s.Say(check.Waiting, "no container of the pod has started")
			sandbox := podCondition(p, "PodReadyToStartContainers").Status // exists since Kubernetes 1.28
			if s.unstarted = sandbox != corev1.ConditionTrue; !s.unstarted {
				s.Reason += "; its sandbox exists, so the first image is being pulled"
			} else if sandbox != "" {
				s.Reason += ": it has no sandbox"
			}
			return s
		}
		container(p, &c, isInit, &s)
		return s
	}
	if len(p.Status.ContainerStatuses) == 0 || p.Status.Phase != corev1.PodRunning {
		s.Say(check.Waiting, "the pod is %s%s", strings.ToLower(phase), because(p.Status.Reason, p.Status.Message))
		return s
	}
	s.Reason, s.Fix, s.Since = "the pod is ready", "", ready.LastTransitionTime.Time
	if restarts > 0 {
		s.Reason += " after " + check.Count(int(restarts), "restart")
	}
	return s
}

// container describes a container that is not ready, or the first init container that has not completed.
func container(p *corev1.Pod, c *corev1.ContainerStatus, isInit bool, s *operand) {
	logs := fmt.Sprintf("kubectl logs -n %s %s -c %s", p.Namespace, p.Name, c.Name)
	name, unready, waits, last := "container "+c.Name, " but not ready", "", ""
	if isInit {
		name, unready, s.in = "init "+name, "", c.Name
		awaited := awaits[c.Name]
		if c.Name == "toolkit-validation" && p.Labels["app"] == "nvidia-operator-validator" {
			awaited.what = "the container toolkit to be set up in the container runtime"
			awaited.component = "container-toolkit"
		}
		if s.blames = awaited.component; awaited.what != "" {
			waits = ": it waits for " + awaited.what
		}
	}
	if t := c.LastTerminationState.Terminated; t != nil {
		last = fmt.Sprintf("; it ended with exit code %d%s", t.ExitCode, because(t.Reason, t.Message))
	}
	switch waiting, ended := c.State.Waiting, c.State.Terminated; {
	case ended != nil:
		s.Say(check.Error, "%s ended with exit code %d%s", name, ended.ExitCode, because(ended.Reason, ended.Message))
		s.Since, s.Fix = ended.FinishedAt.Time, logs
	case c.State.Running != nil:
		s.Say(check.Waiting, "%s is running%s%s", name, unready, last)
		s.Since, s.Fix = c.State.Running.StartedAt.Time, logs
	case waiting == nil || !slices.Contains(broken, waiting.Reason):
		s.Say(check.Waiting, "%s has not started", name)
		if waiting != nil {
			s.Reason += because(waiting.Reason, waiting.Message)
		}
	case strings.HasSuffix(waiting.Reason, "ImagePullBackOff"), strings.HasPrefix(waiting.Reason, "ErrImage"):
		s.Cause = "image " + image(p, c.Name)
		s.Say(check.Error, "%s cannot get its %s: %s%s", name, s.Cause, waiting.Reason, because("", waiting.Message))
	default:
		s.Say(check.Error, "%s is in %s after %s%s%s", name, waiting.Reason,
			check.Count(int(c.RestartCount), "restart"), because("", waiting.Message), last)
		if waiting.Reason == "CrashLoopBackOff" {
			s.Fix = logs + " --previous"
		}
	}
	s.Evidence.Text = s.Reason
	s.Reason += waits
}

// podCondition returns the condition of the given type, or a zero condition if the pod has none.
func podCondition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
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

// because formats a reason and message of Kubernetes to append to a sentence.
func because(reason, message string) string {
	message = fmt.Sprintf("%.200s", strings.TrimSuffix(strings.TrimSpace(message), ".")) // the rest is rarely of use
	if reason != "" {
		reason = " (" + reason + ")"
	}
	if message != "" {
		message = ": " + message
	}
	return reason + message
}

// awaits maps each init container of the operands to what it waits for, and the component that provides it. component
// is "" if no operand provides it. Source: the DaemonSets in gpu-operator assets/, and cmd/nvidia-validator/main.go.
var awaits = map[string]struct{ what, component string }{
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
