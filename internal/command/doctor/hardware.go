package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
)

// inContainer is the advice where the host has a driver that does not reach the process.
const inContainer = "In a container, run with the NVIDIA runtime (runtimeClassName: nvidia, or docker --gpus all) and NVIDIA_VISIBLE_DEVICES=all."

// driver looks for the kernel module.
func (e *examination) driver() Row {
	row := Row{Check: "driver"}
	text, err := e.read("/proc/driver/nvidia/version")
	if err == nil {
		row.Found = "NVIDIA kernel module " + driverVersion(text)
		return row
	}
	row.State = Fail
	switch modules, _ := e.read("/proc/modules"); {
	case !errors.Is(err, fs.ErrNotExist):
		row.Found = "/proc/driver/nvidia/version: " + err.Error()
		row.Advice = "Let the exporter read /proc/driver/nvidia."
	case hasModule(modules, "nvidia"):
		row.Found = "the NVIDIA kernel module is loaded, and /proc/driver/nvidia is not visible"
		row.Advice = inContainer
	case hasModule(modules, "nouveau"):
		row.Found = "the nouveau driver has the GPU"
		row.Advice = "Install NVIDIA's driver and blacklist nouveau; the exporter picks the GPU up when the driver arrives."
	default:
		row.Found = "no NVIDIA kernel module is loaded"
		row.Advice = "Install NVIDIA's driver; the exporter can start before and picks the GPU up. Without a GPU, try --source=sim."
	}
	return row
}

var versionNumber = regexp.MustCompile(`^\d+\.\d+(\.\d+)?$`)

// driverVersion takes the version from a line such as
// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 …".
func driverVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for word := range strings.FieldsSeq(line) {
		if versionNumber.MatchString(word) {
			return word
		}
	}
	return "of an unknown version"
}

// hasModule reports whether /proc/modules lists a module.
func hasModule(modules, name string) bool {
	for line := range strings.Lines(modules) {
		if strings.HasPrefix(line, name+" ") {
			return true
		}
	}
	return false
}

var gpuNode = regexp.MustCompile(`^/dev/nvidia\d+$`)

// nodes looks at the device files.
func (e *examination) nodes() Row {
	row := Row{Check: "device files"}
	var gpus []string
	for _, node := range e.glob("/dev/nvidia*") {
		if gpuNode.MatchString(node) {
			gpus = append(gpus, node)
		}
	}
	known := len(e.glob("/proc/driver/nvidia/gpus/*"))
	// Opening the control file is what every tool does first; it wakes no GPU.
	control, err := os.OpenFile(e.at("/dev/nvidiactl"), os.O_RDWR, 0)
	if err == nil {
		err = control.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		row.State, row.Found = Fail, "/dev/nvidiactl is missing"
		row.Advice = "Run nvidia-modprobe or nvidia-smi on the host once. " + inContainer
	case err != nil:
		row.State, row.Found = Fail, "/dev/nvidiactl cannot be opened: "+reason(err)
		row.Advice = "Give the process access to the device files, in a systemd unit by DeviceAllow=/dev/nvidiactl rw. " + inContainer
	case len(gpus) == 0:
		row.State, row.Found = Fail, "there is no /dev/nvidia0"
		row.Advice = inContainer
	case len(gpus) < known:
		row.State, row.Found = Warn, fmt.Sprintf("%d of the machine's %d GPUs are visible", len(gpus), known)
		row.Advice = "Set NVIDIA_VISIBLE_DEVICES=all to monitor every GPU."
	default:
		row.Found = fmt.Sprintf("/dev/nvidiactl and %s", plural(len(gpus), "GPU"))
	}
	return row
}

func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}

// reason returns the last part of a file error, without the path.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// nvml looks for the driver's library.
func (e *examination) nvml() Row {
	row := Row{Check: "NVML"}
	if found := e.library("libnvidia-ml.so.1", e.Env); len(found) > 0 {
		row.Found = found[0]
		return row
	}
	row.State, row.Found = Fail, "libnvidia-ml.so.1 was not found"
	row.Advice = "It comes with the driver; set LD_LIBRARY_PATH if it lies elsewhere. " + inContainer
	return row
}

// dcgm looks for DCGM's library, whose ABI is that of its version 4.
func (e *examination) dcgm() Row {
	row := Row{Check: "DCGM"}
	found := e.library("libdcgm.so", e.Env)
	for _, file := range found {
		if strings.HasPrefix(path.Base(file), "libdcgm.so.4") {
			row.Found = file
			return row
		}
	}
	row.State, row.Found = Warn, "libdcgm.so.4 was not found"
	row.Advice = "NVML serves instead. Install datacenter-gpu-manager-4-core for NVSwitches, and for profiling before Hopper."
	if len(found) > 0 {
		row.Found = found[0] + " is not of DCGM 4"
		row.Advice = "NVML serves instead. Replace it with datacenter-gpu-manager-4-core."
	}
	if e.mustHaveDCGM() {
		row.State = Fail
		row.Advice = "Install datacenter-gpu-manager-4-core; in a container use the image whose tag ends in -dcgm."
		if e.cfg.Source.Remote.IsEmbedded() {
			row.Advice += " Without DCGM use --source=nvml."
		}
	}
	return row
}

// capSysAdmin is the bit of CAP_SYS_ADMIN (linux/capability.h).
const capSysAdmin = 21

// profiling looks at what profiling metrics need.
func (e *examination) profiling() Row {
	row := Row{Check: "profiling"}
	wanted := 0
	for _, r := range e.set.Requests {
		if r.Named.Entry.Profiling {
			wanted++
		}
	}
	if wanted == 0 {
		row.Found = "no profiling metric is configured"
		return row
	}
	may, err := e.hasCapability(capSysAdmin)
	switch {
	case err != nil:
		row.State, row.Found = Warn, "the capabilities are unknown: "+err.Error()
		row.Advice = "Profiling metrics need CAP_SYS_ADMIN on GPUs before Hopper."
	case may:
		row.Found = "CAP_SYS_ADMIN is there, for " + plural(wanted, "metric")
	case !e.adminOnly():
		row.Found = "the driver lets every user profile (NVreg_RestrictProfilingToAdminUsers=0), for " + plural(wanted, "metric")
	default:
		row.State = Warn
		row.Found = fmt.Sprintf("%s configured, without CAP_SYS_ADMIN", plural(wanted, "profiling metric"))
		row.Advice = "GPUs before Hopper do not give them: add the capability (securityContext.capabilities.add, AmbientCapabilities=), or use a host engine that has it (--remote-hostengine-info)."
	}
	return row
}

// hasCapability reports whether the process has a capability in effect.
func (e *examination) hasCapability(bit uint) (bool, error) {
	status, err := e.read("/proc/self/status")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(status) {
		set, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
		if err != nil {
			return false, fmt.Errorf("/proc/self/status: %w", err)
		}
		return mask&(1<<bit) != 0, nil
	}
	return false, errors.New("/proc/self/status has no CapEff")
}

// adminOnly reports whether the driver lets administrators alone profile, which is its default.
func (e *examination) adminOnly() bool {
	params, err := e.read("/proc/driver/nvidia/params")
	if err != nil {
		return true
	}
	for line := range strings.Lines(params) {
		if strings.TrimSpace(line) == "RmProfilingAdminOnly: 0" {
			return false
		}
	}
	return true
}
