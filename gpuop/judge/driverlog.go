package judge

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// These are fixes, or parts of fixes, of several symptoms.
const (
	newerDriver  = "gpuop explain driver.version  # a newer driver supports newer kernels, compilers and GPUs"
	repositories = "gpuop explain driver.repoConfig  # the driver container needs the packages of the node's kernel; " +
		"or install the driver on the node"
	onNode = "  # on the node"
)

// driverSymptoms are known errors in the driver pod's log. The messages are those of nvidia-installer, modprobe, the
// kernel, and the scripts of NVIDIA's driver container and driver manager. Each expression matches within one line.
var driverSymptoms = []symptom{
	{"nouveau", regexp.MustCompile(`()Nouveau kernel driver is currently in use`),
		"the nouveau driver holds the GPUs%s",
		"echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf" + onNode +
			"; then rebuild the initramfs and reboot"},
	{"secure-boot", regexp.MustCompile(`()Key was rejected by service|Required key not available|` +
		`unsigned module is rejected|not signed by a key that is trusted|` +
		`Kernel module load error: Operation not permitted`),
		"Secure Boot rejects the unsigned kernel module%s",
		"helm upgrade … --set driver.usePrecompiled=true  # these drivers are signed; " +
			"or disable Secure Boot on the node"},
	{"selinux", regexp.MustCompile(`could not insert '(nvidia\S*)': Permission denied`),
		"SELinux prevents the driver container from loading the module %s", "sudo ausearch -m avc -ts recent" + onNode},
	{"open-module", regexp.MustCompile(`()requires use of the NVIDIA open kernel modules`),
		"the GPU needs the open kernel module%s", "helm upgrade … --set driver.kernelModuleType=open"},
	{"in-use", regexp.MustCompile(`()driver is in use|unable to unload.* driver`),
		"the old driver cannot be unloaded because it is in use%s",
		"sudo lsof /dev/nvidia*; lsmod | grep nvidia" + onNode + ": stop what uses the driver, or reboot"},
	{"precompiled", regexp.MustCompile(`Unable to locate package (linux-objects-nvidia-\S+)`),
		"there is no precompiled driver for the node's kernel: no package %s",
		"helm upgrade … --set driver.usePrecompiled=false"},
	{"network", regexp.MustCompile(`Could not resolve host: (\S+)|Temporary failure resolving '([^']+)'|` +
		`Failed to fetch (\S+)|Failed to download metadata for repo '([^']+)'`),
		"the driver container cannot download packages: %s", repositories},
	{"headers", regexp.MustCompile(`Unable to locate package (linux-headers-\S+)|` +
		`(?:No match for argument|Unable to find a match): (kernel-\S+)|` +
		`()Could not resolve Linux kernel version|Could not locate Linux kernel version string`),
		"the driver container finds no headers for the node's kernel %s", repositories},
	{"kernel", regexp.MustCompile(`could not insert '?nvidia'?: ` +
		`(Exec format error|Invalid module format|Unknown symbol[^\n]*)`),
		"the kernel module does not fit the node's kernel: %s", newerDriver},
	{"no-device", regexp.MustCompile(`()could not insert '?nvidia'?: No such device|No NVIDIA GPU device is present`),
		"the driver finds no GPU that it supports%s", newerDriver},
	{"build", regexp.MustCompile(`()performing the step: "Building kernel modules"|` +
		`[Uu]nable to build the NVIDIA kernel module`),
		"the kernel module does not compile for the node's kernel%s", newerDriver},
}

// driverLog explains a failing driver pod from its log. Unless the finding is an error, pods without restarts are
// skipped because they may still succeed.
func (n *nodeReport) driverLog(l *operand) {
	statuses := slices.Concat(l.pod.Status.InitContainerStatuses, l.pod.Status.ContainerStatuses)
	restarted := slices.ContainsFunc(statuses, func(c corev1.ContainerStatus) bool { return c.RestartCount > 0 })
	if !isBroken(*l) || l.Severity != check.Error && !restarted {
		return
	}
	for i := range driverSymptoms {
		for line := range strings.Lines(n.DriverLogs[l.pod.Name]) {
			evidence := check.Seen("log", "Pod/"+l.pod.Name, "%s", strings.TrimSpace(line))
			if d := n.diagnose(line, evidence, driverSymptoms[i:i+1]); d != nil {
				reason := l.Reason
				d.explain(&l.Finding)
				l.Reason = strings.TrimSpace(d.reason) + ": " + reason
				return
			}
		}
	}
}
