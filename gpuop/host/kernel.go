package host

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

const blacklist = "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf, " +
	"rebuild the initramfs, and reboot"

// gpus counts NVIDIA's GPUs and NVSwitches on the PCI bus, and checks which kernel driver they are bound to.
func (n *inspection) gpus() (check.Severity, string, string) {
	const dir = "/sys/bus/pci/devices"
	devices, err := n.names(dir)
	if err != nil {
		return unread(err)
	}
	bound := map[string]int{}
	for _, d := range devices {
		vendor, _ := n.read(path.Join(dir, d, "vendor")) // devices without the file are not NVIDIA's
		class, _ := n.read(path.Join(dir, d, "class"))
		switch {
		case oneLine(vendor) != "0x10de":
		case strings.HasPrefix(class, "0x0300"), strings.HasPrefix(class, "0x0302"):
			n.count++
			bound[n.link(path.Join(dir, d, "driver"))]++
		case strings.HasPrefix(class, "0x0680"):
			n.switches++
		}
	}
	words := check.Count(n.count, "NVIDIA GPU")
	if n.switches > 0 {
		words += " and " + n.countSwitches()
	}
	virtual := bound["vfio-pci"] + bound["nvgrace_gpu_vfio_pci"]
	n.vfio = n.count > 0 && virtual == n.count
	switch {
	case n.count == 0:
		return check.Error, "no NVIDIA GPU on the PCI bus: this is not a GPU node, or the GPU has fallen off the bus",
			"lspci -nn -d 10de:"
	case n.vfio:
		return check.Note, words + ", all bound to vfio-pci: virtual machines can use them, containers cannot", ""
	case bound["nouveau"] > 0:
		return check.Error,
			fmt.Sprintf("%s, %d bound to nouveau instead of the NVIDIA driver", words, bound["nouveau"]), blacklist
	case virtual > 0:
		return check.Warning,
			fmt.Sprintf("%s, %d bound to vfio-pci: containers can use only the others", words, virtual), ""
	case bound["nvidia"]+bound[""] < n.count:
		delete(bound, "nvidia")
		delete(bound, "")
		return check.Error,
			fmt.Sprintf("%s, some bound to %s instead of the NVIDIA driver",
				words, strings.Join(slices.Sorted(maps.Keys(bound)), " or ")),
			"lspci -nnk -d 10de:"
	case bound[""] > 0:
		return check.Error, fmt.Sprintf("%s, %d bound to no kernel driver", words, bound[""]),
			"sudo dmesg | grep -i -e nvrm -e nvidia"
	}
	return check.OK, words + ", bound to the NVIDIA driver", ""
}

// countSwitches formats the number of NVSwitches, such as "4 NVSwitches".
func (n *inspection) countSwitches() string {
	if n.switches == 1 {
		return "1 NVSwitch"
	}
	return fmt.Sprintf("%d NVSwitches", n.switches)
}

// nouveau checks that the nouveau driver is not loaded.
func (n *inspection) nouveau() (check.Severity, string, string) {
	modules, err := n.read("/proc/modules")
	switch {
	case err != nil && !n.has("/sys/module"):
		return unread(err)
	case n.has("/sys/module/nouveau") || strings.Contains("\n"+modules, "\nnouveau "):
		return check.Error, "the nouveau kernel module is loaded and blocks the NVIDIA driver", blacklist
	}
	return check.OK, "not loaded", ""
}

// nvrm matches the first line of /proc/driver/nvidia/version.
var nvrm = regexp.MustCompile(`NVRM version:\s*NVIDIA UNIX (Open )?.*?Kernel Module.*?\s(\d{3,4}\.\d+(?:\.\d+)?)\b`)

// driver checks that NVIDIA's kernel module is loaded, and sets n.version.
func (n *inspection) driver() (check.Severity, string, string) {
	const file = "/proc/driver/nvidia/version"
	text, err := n.read(file)
	m := nvrm.FindStringSubmatch(text)
	switch {
	case err == nil && m == nil:
		return check.Unknown, fmt.Sprintf("%s contains no version: its first line is %.80q", file, oneLine(text)), ""
	case err == nil:
		n.version = m[2]
		if m[1] == "" {
			return check.OK, n.version + ", proprietary", ""
		}
		return check.OK, n.version + ", open", ""
	case !absent(err) || !n.has("/proc/modules"):
		return unread(err)
	case n.vfio:
		return check.Note, "not loaded: every GPU is bound to vfio-pci", ""
	}
	reason, next := n.whyNotLoaded()
	if n.secureBoot() {
		reason += "; Secure Boot is on, so the kernel loads only modules that are signed with an enrolled key"
		next = "sudo dmesg | grep -i -e lockdown -e 'module verification'  # if the module was rejected: " +
			"use precompiled drivers (driver.usePrecompiled=true), enroll the key with mokutil, or disable Secure Boot"
	}
	return check.Error, reason, next
}

// secureBoot reports whether UEFI Secure Boot is on. In the variable's file, four bytes of attributes precede the
// value.
func (n *inspection) secureBoot() bool {
	value, err := n.read("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
	return err == nil && len(value) == 5 && value[4] == 1
}

// module matches the line of NVIDIA's kernel module in modules.dep. The module is listed there if a distribution's
// package or DKMS has installed it.
var module = regexp.MustCompile(`(?m)^(\S*/)?nvidia\.ko[.:]`)

// whyNotLoaded explains why the kernel module is not loaded.
func (n *inspection) whyNotLoaded() (reason, next string) {
	const container = "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset -c nvidia-driver-ctr"
	release, _ := n.read("/proc/sys/kernel/osrelease")
	running := oneLine(release)
	if running == "" {
		return "the NVIDIA kernel module is not loaded", container
	}
	kernels, _ := n.names("/lib/modules") // without the folder, no module is installed
	kernels = slices.DeleteFunc(kernels, func(k string) bool {
		modules, _ := n.read("/lib/modules/" + k + "/modules.dep")
		return !module.MatchString(modules)
	})
	switch {
	case slices.Contains(kernels, running):
		return "the NVIDIA kernel module is installed for the running kernel " + running + " but not loaded",
			"sudo modprobe nvidia; sudo dmesg | grep -i nvrm"
	case len(kernels) > 0:
		return fmt.Sprintf("the NVIDIA kernel module is not loaded: it is built for %s, but the running kernel is %s",
				strings.Join(kernels, ", "), running),
			"sudo apt-get install linux-headers-" + running +
				" (or your distribution's equivalent), then sudo dkms autoinstall and sudo modprobe nvidia"
	}
	reason = "the NVIDIA kernel module is not installed: the driver container has not built it for " + running
	if !n.hasAny("/lib/modules/"+running+"/build", "/usr/src/linux-headers-"+running) {
		reason += "; the kernel headers are missing too, so the driver container must be able to download them"
	}
	return reason, container
}
