package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const (
	sourcePCI     = "PCI codes: vendor 10de, class 03 (display) and 0680 (NVSwitch), as NVIDIA's go-nvlib pkg/nvpci reads them"
	sourceNouveau = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/ (disable nouveau)"
	sourceModule  = "NVIDIA driver README, using the /proc file system interface"
	blacklist     = "echo 'blacklist nouveau' | sudo tee /etc/modprobe.d/blacklist-nouveau.conf, rebuild the initramfs, and reboot"
)

// gpus counts NVIDIA's GPUs and NVSwitches on PCI, and says which kernel driver they are bound to.
func (n *node) gpus() {
	const id, subject, dir = "gpu-on-pci", "GPUs on PCI", "/sys/bus/pci/devices"
	devices, err := n.names(dir)
	if err != nil {
		n.unknown(id, subject, err, sourcePCI)
		return
	}
	bound := map[string]int{}
	for _, d := range devices {
		vendor, err := n.read(path.Join(dir, d, "vendor"))
		if err != nil || oneLine(vendor) != "0x10de" {
			continue
		}
		class, err := n.read(path.Join(dir, d, "class"))
		if err != nil {
			n.unknown(id, "PCI "+d, err, sourcePCI)
			continue
		}
		switch class := oneLine(class); {
		case strings.HasPrefix(class, "0x0300"), strings.HasPrefix(class, "0x0302"):
			n.count++
			bound[n.link(path.Join(dir, d, "driver"))]++
		case strings.HasPrefix(class, "0x0680"):
			n.switches++
		}
	}
	if n.count == 0 {
		n.add(id, report.Failed, subject, "no NVIDIA GPU is on the PCI bus: this is no GPU node, or the GPU has fallen off the bus",
			"lspci -nn -d 10de:", sourcePCI)
		return
	}
	virtual := bound["vfio-pci"] + bound["nvgrace_gpu_vfio_pci"]
	n.vfio = virtual == n.count
	words := fmt.Sprintf("%d NVIDIA GPUs", n.count)
	if n.count == 1 {
		words = "1 NVIDIA GPU"
	}
	if n.switches > 0 {
		words += fmt.Sprintf(" and %d NVSwitches", n.switches)
	}
	switch {
	case n.vfio:
		n.add(id, report.Note, subject, words+", all bound to vfio-pci: they are for virtual machines, and no container can use them", "", sourcePCI)
	case bound["nouveau"] > 0:
		n.add(id, report.Failed, subject, fmt.Sprintf("%s, %d bound to nouveau instead of the NVIDIA driver", words, bound["nouveau"]), blacklist, sourceNouveau)
	case virtual > 0:
		n.add(id, report.Warning, subject, fmt.Sprintf("%s, %d bound to vfio-pci: only the others are for containers", words, virtual), "", sourcePCI)
	case bound[""] > 0:
		n.add(id, report.Failed, subject, fmt.Sprintf("%s, %d bound to no kernel driver", words, bound[""]), "sudo dmesg | grep -i -e nvrm -e nvidia", sourcePCI)
	default:
		n.add(id, report.OK, subject, words+", bound to the NVIDIA driver", "", sourcePCI)
	}
}

// nouveau says whether the kernel's own driver is loaded.
func (n *node) nouveau() {
	const id, subject = "nouveau", "nouveau"
	modules, err := n.read("/proc/modules")
	switch {
	case err != nil && !n.has("/sys/module"):
		n.unknown(id, subject, err, sourceNouveau)
	case n.has("/sys/module/nouveau") || strings.Contains("\n"+modules, "\nnouveau "):
		n.add(id, report.Failed, subject, "the nouveau kernel module is loaded, and holds the GPUs that the NVIDIA driver needs", blacklist, sourceNouveau)
	default:
		n.add(id, report.OK, subject, "not loaded", "", sourceNouveau)
	}
}

// An nvrm is the first line of /proc/driver/nvidia/version.
var nvrm = regexp.MustCompile(`NVRM version:\s*NVIDIA UNIX (Open )?.*?Kernel Module.*?\s(\d{3,4}\.\d+(?:\.\d+)?)\b`)

// driver says which NVIDIA kernel module is loaded.
func (n *node) driver() {
	const id, subject, file = "driver-module", "NVIDIA kernel module", "/proc/driver/nvidia/version"
	text, err := n.read(file)
	switch {
	case err == nil:
		m := nvrm.FindStringSubmatch(text)
		if m == nil {
			n.add(id, report.Unknown, subject, fmt.Sprintf("%s does not name a version: its first line is %.80q", file, oneLine(text)), "", sourceModule)
			return
		}
		n.version = m[2]
		flavor := "proprietary"
		if m[1] != "" {
			flavor = "open"
		}
		n.add(id, report.OK, subject, fmt.Sprintf("%s, %s", n.version, flavor), "", sourceModule)
	case !absent(err) || !n.has("/proc/modules"):
		n.unknown(id, subject, err, sourceModule)
	case n.vfio:
		n.add(id, report.Note, subject, "not loaded: every GPU is bound to vfio-pci", "", sourceModule)
	default:
		reason, next := n.whyNotLoaded()
		n.add(id, report.Failed, subject, reason, next, sourceModule)
	}
}

// moduleDirs are the folders of a kernel's modules into which distributions install NVIDIA's.
var moduleDirs = []string{
	"/updates/dkms", "/updates", "/extra", "/extra/nvidia", "/kernel/drivers/video", "/kernel/nvidia", "/weak-updates/nvidia",
}

// whyNotLoaded explains a missing kernel module by the node's files.
func (n *node) whyNotLoaded() (reason, next string) {
	const container = "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset -c nvidia-driver-ctr"
	release, err := n.read("/proc/sys/kernel/osrelease")
	running := oneLine(release)
	if err != nil || running == "" {
		return "the NVIDIA kernel module is not loaded", container
	}
	var others []string
	kernels, _ := n.names("/lib/modules") // a node without has no driver of its own
	for _, k := range kernels {
		if !slices.ContainsFunc(moduleDirs, func(dir string) bool { return len(n.glob("/lib/modules/"+k+dir+"/nvidia.ko*")) > 0 }) {
			continue
		}
		if k == running {
			return "the NVIDIA kernel module is installed for the running kernel " + k + ", and not loaded", "sudo modprobe nvidia; sudo dmesg | grep -i nvrm"
		}
		others = append(others, k)
	}
	if len(others) > 0 {
		return fmt.Sprintf("the NVIDIA kernel module is not loaded: it is built for %s, and the running kernel is %s", strings.Join(others, ", "), running),
			"sudo apt-get install linux-headers-" + running + " or the like, then sudo dkms autoinstall and sudo modprobe nvidia"
	}
	reason = "the NVIDIA kernel module is not loaded, and the node has none: the driver container has not built it for " + running
	if !n.has("/lib/modules/"+running+"/build") && !n.has("/usr/src/linux-headers-"+running) {
		reason += "; the kernel's headers are not on the node either, and the driver container must be able to download them"
	}
	return reason, container
}
