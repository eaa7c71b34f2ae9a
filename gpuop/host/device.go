package host

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// majors returns the major numbers in /proc/devices of the GPUs and of nvidia-uvm, or 0. The name for the GPUs depends
// on the driver branch.
func (n *inspection) majors() (gpu, uvm uint32, err error) {
	text, err := n.read("/proc/devices")
	majors := map[string]uint32{}
	for line := range strings.Lines(text) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if m, err := strconv.ParseUint(number, 10, 32); err == nil {
			majors[name] = uint32(m)
		}
	}
	return cmp.Or(majors["nvidia-frontend"], majors["nvidia"], majors["nvidiactl"]), majors["nvidia-uvm"], err
}

var deviceMinor = regexp.MustCompile(`(?m)^Device Minor:\s*(\d+)\s*$`)

// devices checks that the device nodes exist and have the kernel's current device numbers. It also reports GPUs on the
// PCI bus that the driver does not see.
func (n *inspection) devices(f *check.Finding) error {
	const gpus = "/proc/driver/nvidia/gpus"
	if n.version == "" {
		return nil // driverModule reports the missing version
	}
	gpu, uvm, err := n.majors()
	if err != nil {
		return err
	}
	bus, err := n.names(gpus)
	if err != nil {
		return err
	}
	want := map[string][2]uint32{
		"/dev/nvidiactl": {gpu, 255}, "/dev/nvidia-uvm": {uvm, 0}, "/dev/nvidia-uvm-tools": {uvm, 1},
	}
	known := -len(want)
	for _, b := range bus {
		text, _ := n.read(path.Join(gpus, b, "information")) // an unreadable GPU is missing from the count below
		if m := deviceMinor.FindStringSubmatch(text); m != nil {
			minor, _ := strconv.ParseUint(m[1], 10, 16) // the pattern matches only digits
			want["/dev/nvidia"+m[1]] = [2]uint32{gpu, uint32(minor)}
		}
	}
	known += len(want)
	if n.isCopy() {
		return fmt.Errorf("%s is a copy without device nodes", n.path)
	}
	var missing, wrong []string
	for _, file := range slices.Sorted(maps.Keys(want)) {
		switch info, err := n.info(file); {
		case absent(err):
			missing = append(missing, file)
		case err != nil:
			return err
		case want[file][0] == 0:
			wrong = append(wrong, file+" exists, but the kernel has no such device")
		case device(info) != want[file]:
			wrong = append(wrong, fmt.Sprintf("%s is not the device %d:%d", file, want[file][0], want[file][1]))
		}
	}
	switch {
	case len(missing) > 0:
		f.Say(check.Error, "missing: %s", strings.Join(missing, ", "))
	case len(wrong) > 0:
		f.Say(check.Error, "%s: left over from an unloaded module, or not created by the driver",
			strings.Join(wrong, "; "))
		f.Fix = "remove these device nodes with rm, then run " + f.Check.Help
	case known < n.count && !n.vfio:
		f.Say(check.Error, "the driver sees only %d of %d GPUs on the PCI bus: "+
			"a missing GPU has fallen off the bus or is bound to another driver", known, n.count)
		f.Fix = "sudo dmesg | grep -i -e nvrm -e xid"
	default:
		f.Say(check.OK, "%s exist and match the kernel", check.Count(len(want), "device node"))
	}
	return nil
}

// isCopy reports whether the root is a copy of a node's files, without device nodes.
func (n *inspection) isCopy() bool {
	info, err := n.info("/dev/null")
	return err != nil || device(info) == [2]uint32{}
}

// fabric checks that the fabric manager runs if the node has NVSwitches. It skips nodes whose GPUs are all bound to a
// driver for virtual machines.
func (n *inspection) fabric(f *check.Finding) error {
	if n.switches == 0 || n.vfio {
		return nil
	}
	processes, err := n.names("/proc")
	if err != nil {
		return err
	}
	seen := false
	for _, p := range processes {
		name, err := n.read("/proc/" + p + "/comm")
		seen = seen || err == nil
		if oneLine(name) == "nv-fabricmanage" { // the kernel truncates process names to 15 bytes
			f.Say(check.OK, "running")
			return nil
		}
	}
	if !seen {
		return fmt.Errorf("the node has NVSwitches, but /proc in %s lists no processes", n.path)
	}
	switches := fmt.Sprintf("%d NVSwitches", n.switches)
	if n.switches == 1 {
		switches = "1 NVSwitch"
	}
	f.Say(check.Error, "the node has %s, but nv-fabricmanager is not running: "+
		"CUDA fails with cudaErrorSystemNotReady", switches)
	return nil
}
