package host

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// gpus counts NVIDIA's GPUs and NVSwitches on the PCI bus, and checks which kernel driver they are bound to.
func (n *inspection) gpus(f *check.Finding) error {
	const dir = "/sys/bus/pci/devices"
	devices, err := n.names(dir)
	if err != nil {
		return err
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
	virtual := bound["vfio-pci"] + bound["nvgrace_gpu_vfio_pci"]
	n.vfio = n.count > 0 && virtual == n.count
	severity := check.Error
	if bound["nvidia"]+virtual == n.count {
		severity = check.Warning // the containers can use the others
	}
	them := "them"
	if n.count-bound["nvidia"] == 1 {
		them = "it"
	}
	delete(bound, "nvidia")
	var others []string
	for _, driver := range slices.Sorted(maps.Keys(bound)) {
		others = append(others, fmt.Sprintf("%d bound to %s", bound[driver], cmp.Or(driver, "no kernel driver")))
	}
	switch {
	case n.count == 0:
		f.Say(check.Error, "no NVIDIA GPU on the PCI bus: this is not a GPU node, or the GPU has fallen off the bus")
	case n.vfio:
		f.Say(check.Note, "%s, all bound to vfio-pci: virtual machines can use them, containers cannot", words)
	case len(others) > 0:
		f.Say(severity, "%s, %s: containers cannot use %s", words, strings.Join(others, ", "), them)
	default:
		f.Say(check.OK, "%s, bound to the NVIDIA driver", words)
	}
	return nil
}

// nouveau checks that the nouveau driver is not loaded.
func (n *inspection) nouveau(f *check.Finding) error {
	modules, err := n.read("/proc/modules")
	switch {
	case err != nil && !n.has("/sys/module"):
		return err
	case n.has("/sys/module/nouveau") || strings.Contains("\n"+modules, "\nnouveau "):
		f.Say(check.Error, "the nouveau kernel module is loaded and blocks the NVIDIA driver")
	default:
		f.Say(check.OK, "not loaded")
	}
	return nil
}

// nvrm matches the first line of /proc/driver/nvidia/version.
var nvrm = regexp.MustCompile(`NVRM version:\s*NVIDIA UNIX (?:Open )?.*?Kernel Module.*?\s(\d{3,4}\.\d+(?:\.\d+)?)\b`)

// driver checks that NVIDIA's kernel module is loaded, and sets n.version.
func (n *inspection) driver(f *check.Finding) error {
	const file = "/proc/driver/nvidia/version"
	text, err := n.read(file)
	m := nvrm.FindStringSubmatch(text)
	switch {
	case err == nil && m == nil:
		return fmt.Errorf("%s contains no version: its first line is %.80q", file, oneLine(text))
	case err == nil:
		n.version, f.Reason = m[1], m[0]
		return nil
	case !absent(err) || !n.has("/proc/modules"):
		return err
	case n.vfio:
		f.Say(check.Note, "not loaded: every GPU is bound to vfio-pci")
		return nil
	}
	n.whyNotLoaded(f)
	// in the variable's file, four bytes of attributes precede the value
	secureBoot, _ := n.read("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
	if len(secureBoot) == 5 && secureBoot[4] == 1 {
		f.Reason += "; Secure Boot is on, so the kernel loads only modules that are signed with an enrolled key"
		f.Fix = "sudo dmesg | grep -i -e lockdown -e 'module verification'  # if the module was rejected: " +
			"use precompiled drivers (driver.usePrecompiled=true), enroll the key with mokutil, or disable Secure Boot"
	}
	return nil
}

// module matches the line of NVIDIA's kernel module in modules.dep. The module is listed there if a distribution's
// package or DKMS has installed it.
var module = regexp.MustCompile(`(?m)^(\S*/)?nvidia\.ko[.:]`)

// whyNotLoaded explains why the kernel module is not loaded.
func (n *inspection) whyNotLoaded(f *check.Finding) {
	release, _ := n.read("/proc/sys/kernel/osrelease")
	running := oneLine(release)
	kernels, _ := n.names("/lib/modules") // without the folder, no module is installed
	kernels = slices.DeleteFunc(kernels, func(k string) bool {
		modules, _ := n.read("/lib/modules/" + k + "/modules.dep")
		return !module.MatchString(modules)
	})
	switch {
	case running == "":
		f.Say(check.Error, "the NVIDIA kernel module is not loaded")
	case slices.Contains(kernels, running):
		f.Say(check.Error, "the NVIDIA kernel module is installed for the running kernel %s but not loaded", running)
		f.Fix = "sudo modprobe nvidia; sudo dmesg | grep -i nvrm"
	case len(kernels) > 0:
		f.Say(check.Error, "the NVIDIA kernel module is not loaded: it is built for %s, but the running kernel is %s",
			strings.Join(kernels, ", "), running)
		f.Fix = "sudo apt-get install linux-headers-" + running +
			" (or your distribution's equivalent), then sudo dkms autoinstall and sudo modprobe nvidia"
	default:
		f.Say(check.Error, "the NVIDIA kernel module is not installed: the driver container has not built it for %s",
			running)
		if !n.hasAny("/lib/modules/"+running+"/build", "/usr/src/linux-headers-"+running) {
			f.Reason += "; the kernel headers are missing too, so the driver container must be able to download them"
		}
	}
}
