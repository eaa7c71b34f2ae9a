package host

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// majors returns the major numbers of NVIDIA's character devices in /proc/devices.
func (n *inspection) majors() (map[string]uint32, error) {
	text, err := n.read("/proc/devices")
	majors := map[string]uint32{}
	for line := range strings.Lines(text) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if m, err := strconv.ParseUint(number, 10, 32); err == nil && strings.HasPrefix(name, "nvidia") {
			majors[name] = uint32(m)
		}
	}
	return majors, err
}

// wanted is a device node that must exist.
type wanted struct {
	path  string
	major []string // names in /proc/devices; the first one present is used
	minor uint32
}

var deviceMinor = regexp.MustCompile(`(?m)^Device Minor:\s*(\d+)\s*$`)

// frontend lists the names under which /proc/devices can list the GPUs' major number. The name depends on the driver
// branch.
var frontend = []string{"nvidia-frontend", "nvidia", "nvidiactl"}

// devices checks that the device nodes exist and have the kernel's current device numbers. It also reports GPUs on the
// PCI bus that the driver does not see.
func (n *inspection) devices() (check.Severity, string, string) {
	const next, gpus = "sudo nvidia-modprobe -u -c 0", "/proc/driver/nvidia/gpus"
	if n.version == "" {
		return check.OK, "", "" // driverModule reports the missing version
	}
	majors, err := n.majors()
	if err != nil {
		return unread(err)
	}
	all := []wanted{
		{"/dev/nvidiactl", frontend, 255},
		{"/dev/nvidia-uvm", []string{"nvidia-uvm"}, 0},
		{"/dev/nvidia-uvm-tools", []string{"nvidia-uvm"}, 1},
	}
	bus, err := n.names(gpus)
	if err != nil {
		return unread(err)
	}
	for _, b := range bus {
		text, _ := n.read(path.Join(gpus, b, "information")) // an unreadable GPU is missing from the count below
		if m := deviceMinor.FindStringSubmatch(text); m != nil {
			minor, _ := strconv.ParseUint(m[1], 10, 16) // the pattern matches only digits
			all = append(all, wanted{"/dev/nvidia" + m[1], frontend, uint32(minor)})
		}
	}
	if info, err := n.info("/dev/null"); err != nil || !isDevice(info) {
		return check.Unknown, "not checked: " + n.path + " is a copy without device nodes", ""
	}
	var missing, wrong []string
	for _, w := range all {
		info, err := n.info(w.path)
		switch {
		case absent(err):
			missing = append(missing, w.path)
		case err != nil:
			return unread(err)
		default:
			wrong = append(wrong, w.differs(info, majors)...)
		}
	}
	switch known := len(all) - 3; {
	case len(missing) > 0:
		return check.Error, "missing: " + strings.Join(missing, ", "), next
	case len(wrong) > 0:
		return check.Error, strings.Join(wrong, "; ") +
				": left over from an unloaded module, or not created by the driver",
			"remove these device nodes with rm, then run " + next
	case known < n.count && !n.vfio:
		return check.Error,
			fmt.Sprintf("the driver sees only %d of %d GPUs on the PCI bus: "+
				"a missing GPU has fallen off the bus or is bound to another driver",
				known, n.count), "sudo dmesg | grep -i -e nvrm -e xid"
	default:
		return check.OK,
			fmt.Sprintf("nvidiactl, nvidia-uvm, nvidia-uvm-tools and the device nodes of %s exist and match the kernel",
				check.Count(known, "GPU")), ""
	}
}

// differs describes how an existing device node is wrong. It returns nil if the node is right.
func (w wanted) differs(info fs.FileInfo, majors map[string]uint32) []string {
	i := slices.IndexFunc(w.major, func(name string) bool { _, ok := majors[name]; return ok })
	major, minor, ok := device(info)
	switch {
	case i < 0:
		return []string{w.path + " exists, but the kernel has no device " + w.major[0]}
	case !ok:
		return []string{w.path + " is not a device"}
	case major != majors[w.major[i]] || minor != w.minor:
		return []string{fmt.Sprintf("%s is %d:%d, expected %d:%d", w.path, major, minor, majors[w.major[i]], w.minor)}
	}
	return nil
}

func isDevice(info fs.FileInfo) bool { _, _, ok := device(info); return ok }

// fabric checks that the fabric manager runs if the node has NVSwitches. It skips nodes whose GPUs are all bound to a
// driver for virtual machines.
func (n *inspection) fabric() (check.Severity, string, string) {
	if n.switches == 0 || n.vfio {
		return check.OK, "", ""
	}
	processes, err := n.names("/proc")
	if err != nil {
		return unread(err)
	}
	seen := false
	for _, p := range processes {
		name, err := n.read("/proc/" + p + "/comm")
		seen = seen || err == nil
		if oneLine(name) == "nv-fabricmanage" { // the kernel truncates process names to 15 bytes
			return check.OK, "running, for " + n.countSwitches(), ""
		}
	}
	if !seen {
		return check.Unknown,
			fmt.Sprintf("not checked: the node has %s, but /proc in %s lists no processes", n.countSwitches(), n.path),
			""
	}
	return check.Error,
		fmt.Sprintf("the node has %s, but nv-fabricmanager is not running: CUDA fails with cudaErrorSystemNotReady",
			n.countSwitches()),
		"systemctl status nvidia-fabricmanager; " +
			"with a driver container: kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset -c nvidia-driver-ctr"
}
