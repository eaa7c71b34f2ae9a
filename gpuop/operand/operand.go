package operand

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Dir is where the validator writes its files, on the host and in every container that mounts it.
const Dir = "/run/nvidia/validations"

// DriverDir is the folder of the host at which the operator's driver container has its root, unless
// hostPaths.driverInstallDir names another.
const DriverDir = "/run/nvidia/driver"

// Source is where the names of the files and what writes them are documented.
const Source = "gpu-operator cmd/nvidia-validator/main.go"

// The two files with content, and the longest of either that is read.
const (
	containerFile = ".driver-ctr-ready"
	workloadFile  = "workload-type"
	// hostDriverFile stands in place of driver-ready up to v24.3, where the driver is the host's.
	hostDriverFile = "host-driver-ready"
	maxFile        = 64 << 10
)

// A State says whether an operand is ready. The zero value is Unknown.
type State uint8

// The states.
const (
	// Unknown: the file is missing and nothing says that the operand is enabled, or the file could not
	// be read.
	Unknown State = iota
	// NotReady: the operand is enabled on the node, and its file is missing.
	NotReady
	// Ready: the validator has left the operand's file.
	Ready
)

// The types of workload of a node, by the label nvidia.com/gpu.workload.config.
const (
	Container     = "container"
	VMPassthrough = "vm-passthrough"
	VMVGPU        = "vm-vgpu"
)

// An Operand is one step of the validator.
type Operand struct {
	// Name is the operand: "driver". File is its validation file: "driver-ready".
	Name, File string
	// Workload is the type of workload for which the operand is always validated; empty for one that
	// the installation enables.
	Workload string
	// Other is a file that the validator writes in place of File: where an older release has found a driver of the
	// host's, or the host's vGPU manager, which is an operand of its own; empty where there is none.
	Other string
	// Flag is the key of .driver-ctr-ready that says whether the operand is enabled; empty where there is none.
	Flag string
	// Missing says what waits while the operand is not ready.
	Missing string
}

// All returns the operands in the order in which they depend on each other.
func All() []Operand {
	return []Operand{
		{Name: "mofed", File: "mofed-ready", Missing: "the driver container waits for the network driver"},
		{Name: "driver", File: "driver-ready", Other: hostDriverFile, Workload: Container, Missing: "every other operand waits for it"},
		{Name: "nvidia-peermem", File: "nvidia-peermem-ready", Flag: "GPU_DIRECT_RDMA_ENABLED", Missing: "no GPUDirect RDMA through nvidia-peermem"},
		{Name: "nvidia-fs", File: "nvidia-fs-ready", Flag: "GDS_ENABLED", Missing: "no GPUDirect Storage"},
		{Name: "gdrcopy", File: "gdrcopy-ready", Flag: "GDRCOPY_ENABLED", Missing: "no GDRCopy"},
		{Name: "toolkit", File: "toolkit-ready", Workload: Container, Missing: "the device plugin, GPU Feature Discovery, DCGM and the MIG manager wait for it"},
		{Name: "cuda", File: "cuda-ready", Workload: Container, Missing: "no CUDA program has run on the node"},
		{Name: "plugin", File: "plugin-ready", Workload: Container, Missing: "the node offers no nvidia.com resource, or no pod with one has run"},
		{Name: "vfio-pci", File: "vfio-pci-ready", Workload: VMPassthrough, Missing: "no GPU can be passed to a virtual machine"},
		{Name: "vgpu-manager", File: "vgpu-manager-ready", Other: "host-vgpu-manager-ready", Workload: VMVGPU, Missing: "no vGPU can be created"},
		{Name: "host-vgpu-manager", File: "host-vgpu-manager-ready", Missing: "no vGPU can be created"},
		{Name: "vgpu-devices", File: "vgpu-devices-ready", Workload: VMVGPU, Missing: "no vGPU can be given to a virtual machine"},
		{Name: "cc-manager", File: "cc-manager-ready", Missing: "the mode of confidential computing is not set"},
	}
}

// A Status is what the files say of one operand.
type Status struct {
	Operand
	State State
	// Since is when a ready operand's file was written; zero otherwise.
	Since time.Time
	// Why is one sentence for a state other than Ready.
	Why string
	// Err is set where the file is there or may be there, and could not be read.
	Err error
}

// A Driver is the content of driver-ready: where the operands find the driver. Its zero value is a
// file that is missing, empty or of another form.
type Driver struct {
	// Known says that the file had the settings.
	Known bool
	// Host says that the driver is the node's own, and not one of a driver container.
	Host bool
	// Root is the folder of the host under which the driver's libraries are: "/" or
	// "/run/nvidia/driver". DevRoot is that of the device nodes.
	Root, DevRoot string
}

// A Reading is what the folder says.
type Reading struct {
	// Workload is the node's type of workload, Container where the folder does not say.
	Workload string
	// Driver is the content of driver-ready.
	Driver Driver
	// DriverContainer says that a driver container of the operator has reported ready.
	DriverContainer bool
	// Operands are in the order of All.
	Operands []Status
	// Partial are sentences about files whose content is not as the validator writes it.
	Partial []string
}

// Read reads the folder of the validation files. The error wraps fs.ErrNotExist where there is none:
// the validator has not run since the node was booted. A file that cannot be read is an Unknown
// operand, not an error.
func Read(dir fs.FS) (Reading, error) {
	if _, err := fs.ReadDir(dir, "."); err != nil {
		return Reading{}, err
	}
	r := Reading{Workload: Container}
	flags := r.readContent(dir)
	for _, o := range All() {
		r.Operands = append(r.Operands, r.judge(dir, o, flags))
	}
	return r, nil
}

// readContent reads the files with content, and returns the flags of the driver container.
func (r *Reading) readContent(dir fs.FS) map[string]bool {
	if text, err := read(dir, workloadFile); err == nil {
		switch w := strings.TrimSpace(text); w {
		case Container, VMPassthrough, VMVGPU:
			r.Workload = w
		default:
			r.Partial = append(r.Partial, fmt.Sprintf("%s is %.40q, want %s, %s or %s", workloadFile, w, Container, VMPassthrough, VMVGPU))
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.Partial = append(r.Partial, err.Error())
	}
	if text, err := read(dir, "driver-ready"); err == nil {
		r.Driver = parseDriver(text)
		if _, err := fs.Stat(dir, containerFile); err == nil && text == "" {
			// v22.9 to v24.3; later releases write the settings in one step.
			r.Driver = Driver{Known: true, Root: DriverDir, DevRoot: DriverDir}
		}
		if !r.Driver.Known {
			r.Partial = append(r.Partial, "driver-ready has no NVIDIA_DRIVER_ROOT: it is of an older validator, or a part of the file, and where the driver's libraries are is not known")
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.Partial = append(r.Partial, err.Error())
	} else if _, err := fs.Stat(dir, hostDriverFile); err == nil {
		r.Driver = Driver{Known: true, Host: true, Root: "/", DevRoot: "/"}
	}
	flags := map[string]bool{}
	text, err := read(dir, containerFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		r.Partial = append(r.Partial, err.Error())
	default:
		r.DriverContainer = true
		if err := yaml.Unmarshal([]byte(text), &flags); err != nil {
			flags = map[string]bool{}
			r.Partial = append(r.Partial, containerFile+" is not the list of flags that the driver's startup probe writes")
		}
	}
	return flags
}

func (r *Reading) judge(dir fs.FS, o Operand, flags map[string]bool) Status {
	s := Status{Operand: o}
	info, err := fs.Stat(dir, o.File)
	if o.Other != "" && errors.Is(err, fs.ErrNotExist) {
		switch other, otherErr := fs.Stat(dir, o.Other); {
		case otherErr != nil:
		case o.Other == hostDriverFile:
			info, err = other, nil
		default:
			s.Why = o.Other + " is there in its place"
			return s
		}
	}
	switch {
	case err == nil && info.Mode().IsRegular():
		s.State, s.Since = Ready, info.ModTime()
	case err == nil:
		s.Err = fmt.Errorf("%s is no regular file", o.File)
		s.Why = s.Err.Error()
	case !errors.Is(err, fs.ErrNotExist):
		s.Why, s.Err = err.Error(), err
	case o.Workload == r.Workload && r.Workload != "":
		s.State = NotReady
		s.Why = o.File + " is missing: " + o.Missing
	case o.Flag != "" && flags[o.Flag]:
		s.State = NotReady
		s.Why = fmt.Sprintf("%s is missing, and %s says %s: true: %s", o.File, containerFile, o.Flag, o.Missing)
	default:
		s.Why = "nothing says that it is enabled on the node"
	}
	return s
}

func read(dir fs.FS, name string) (string, error) {
	f, err := dir.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(text), err
}

// parseDriver reads lines of NAME=value.
func parseDriver(text string) Driver {
	d := Driver{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "IS_HOST_DRIVER":
			d.Host = value == "true"
		case "NVIDIA_DRIVER_ROOT":
			d.Root = value
		case "NVIDIA_DEV_ROOT":
			d.DevRoot = value
		}
	}
	d.Known = strings.HasPrefix(d.Root, "/")
	return d
}
