package runtimemapper

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// grant returns the words that say which devices a container was given, in the
// order of who has the last word: a request replaces the environment, since
// Docker writes it over it. Where nothing was given there are none.
//
// The environment counts only under a runtime that reads it, whose name holds
// "nvidia" as nvidia-ctk names them: CUDA's images set
// NVIDIA_VISIBLE_DEVICES=all for everybody.
func grant(c *inspected) []string {
	if onlyMonitors(c) {
		return nil
	}
	var words []string
	for i := range c.HostConfig.DeviceRequests {
		words = append(words, requested(&c.HostConfig.DeviceRequests[i])...)
	}
	for _, d := range c.HostConfig.Devices {
		if isDeviceNode(d.PathOnHost) {
			words = append(words, d.PathOnHost)
		}
	}
	if len(words) == 0 && strings.Contains(strings.ToLower(c.HostConfig.Runtime), "nvidia") {
		words = strings.Split(variable(c, "NVIDIA_VISIBLE_DEVICES"), ",")
	}
	return slices.DeleteFunc(words, func(w string) bool {
		switch strings.ToLower(strings.TrimSpace(w)) {
		case "", "none", "void":
			return true
		}
		return false
	})
}

// requested returns the words of a device request, nil for other vendors'. A
// count is the first that many GPUs: Docker makes 0, 1, … of it
// (moby, daemon/nvidia_linux.go).
func requested(r *deviceRequest) []string {
	driver := strings.ToLower(r.Driver)
	switch {
	case driver == "cdi":
		return slices.DeleteFunc(slices.Clone(r.DeviceIDs), func(name string) bool {
			kind, _, _ := strings.Cut(name, "=")
			return kind != "nvidia.com/gpu" && kind != "runtime.nvidia.com/gpu"
		})
	case strings.HasPrefix(driver, "nvidia"):
	case driver == "" && slices.ContainsFunc(r.Capabilities, func(all []string) bool {
		return slices.Contains(all, "gpu") && !slices.Contains(all, "amd")
	}):
	default:
		return nil
	}
	switch {
	case len(r.DeviceIDs) > 0:
		return r.DeviceIDs
	case r.Count < 0:
		return []string{"all"}
	}
	var first []string
	for i := range min(r.Count, maxCount) {
		first = append(first, strconv.Itoa(i))
	}
	return first
}

// maxCount bounds a request by count; no machine has as many GPUs.
const maxCount = 256

// onlyMonitors reports whether a container was given the utility part of the
// driver alone, with which nothing can run on a GPU.
func onlyMonitors(c *inspected) bool {
	parts := variable(c, "NVIDIA_DRIVER_CAPABILITIES")
	if parts == "" {
		return false
	}
	for part := range strings.SplitSeq(parts, ",") {
		if part = strings.TrimSpace(part); part != "" && part != "utility" {
			return false
		}
	}
	return true
}

// variable returns a variable of the container's environment.
func variable(c *inspected, name string) string {
	for _, e := range c.Config.Env {
		if key, value, _ := strings.Cut(e, "="); key == name {
			return value
		}
	}
	return ""
}

const nodePrefix = "/dev/nvidia"

// isDeviceNode reports whether path is the node of a GPU.
func isDeviceNode(path string) bool {
	minor, ok := strings.CutPrefix(path, nodePrefix)
	_, err := strconv.ParseUint(minor, 10, 32)
	return ok && err == nil
}

// A form is the way in which a word names a device, for the counting of those
// that name none of ours.
type form string

// The forms.
const (
	formAll      form = "all"
	formIndex    form = "index"
	formUUID     form = "uuid"
	formBusID    form = "bus_id"
	formMIGUUID  form = "mig_uuid"
	formMIGIndex form = "mig_index"
	formNode     form = "device_node"
	formUnknown  form = "unknown"
)

func forms() []form {
	return []form{formAll, formIndex, formUUID, formBusID, formMIGUUID, formMIGIndex, formNode, formUnknown}
}

// resolve returns the rows of t that a word means, as NVIDIA's container
// toolkit reads it (libnvidia-container, src/cli/common.c; nvidia-ctk's CDI
// names), and its form. Without rows, the word means nothing here.
//
// A MIG device by index means nothing: the order is the driver's own, and no
// source tells it. A node of a GPU that is cut by MIG does not say which of its
// instances came with it.
func resolve(t *gpu.Topology, word string) ([]int, form) {
	word = strings.TrimSpace(word)
	if kind, name, ok := strings.Cut(word, "="); ok && (kind == "nvidia.com/gpu" || kind == "runtime.nvidia.com/gpu") {
		word = name
	}
	lower := strings.ToLower(word)
	gpus := func(f form, match func(*gpu.Device) bool) ([]int, form) {
		return rowsOf(t, func(d *gpu.Device) bool { return d.Entity.Kind == gpu.KindGPU && match(d) }), f
	}
	instances := func(match func(*gpu.Device) bool) ([]int, form) {
		return rowsOf(t, func(d *gpu.Device) bool { return isInstance(d) && match(d) }), formMIGUUID
	}
	switch {
	case lower == "all":
		return rowsOf(t, func(d *gpu.Device) bool { return d.Entity.Kind == gpu.KindGPU || isInstance(d) }), formAll
	case isDeviceNode(word):
		minor, _ := strconv.ParseUint(word[len(nodePrefix):], 10, 32)
		return gpus(formNode, func(d *gpu.Device) bool { return uint64(d.Minor) == minor && !isCut(t, d) })
	case strings.HasPrefix(lower, "mig-gpu-"): // of drivers before R470: MIG-GPU-…/instance/compute instance
		uuid, rest, _ := strings.Cut(word[len("mig-"):], "/")
		gi, ci, _ := strings.Cut(rest, "/")
		return instances(func(d *gpu.Device) bool {
			return strings.EqualFold(d.UUID, uuid) && number(d.InstanceID) == gi &&
				(d.Entity.Kind == gpu.KindGPUInstance || number(d.ComputeID) == ci)
		})
	case strings.HasPrefix(lower, "mig-"):
		rows, f := instances(func(d *gpu.Device) bool { return strings.EqualFold(d.MIGUUID, word) })
		if part := partOf(t, word); part >= 0 { // who holds a part is on the whole
			rows = append(rows, t.Divided[part].Instance)
		}
		return rows, f
	case strings.HasPrefix(lower, "gpu-"):
		return gpus(formUUID, func(d *gpu.Device) bool { return strings.EqualFold(d.UUID, word) })
	}
	// nvidia-ctk can name devices by type and index: gpu0, mig0:1.
	index := strings.TrimPrefix(strings.TrimPrefix(lower, "gpu"), "mig")
	if n, err := strconv.ParseUint(index, 10, 32); err == nil {
		return gpus(formIndex, func(d *gpu.Device) bool { return uint64(d.NVMLIndex) == n })
	}
	if of, part, ok := strings.Cut(index, ":"); ok && isNumber(of) && isNumber(part) {
		return nil, formMIGIndex
	}
	if strings.Contains(lower, ":") && strings.Contains(lower, ".") {
		return gpus(formBusID, func(d *gpu.Device) bool { return sameBusID(d.PCIBusID, lower) })
	}
	return nil, formUnknown
}

// partOf returns which of t.Divided a word names, -1 where it is none.
func partOf(t *gpu.Topology, word string) int {
	word = strings.TrimSpace(word)
	if kind, name, ok := strings.Cut(word, "="); ok && strings.HasSuffix(kind, "nvidia.com/gpu") {
		word = name
	}
	return slices.IndexFunc(t.Divided, func(c gpu.ComputeInstance) bool {
		d := &t.Devices[c.Instance]
		return strings.EqualFold(word, c.UUID) ||
			strings.EqualFold(word, "MIG-"+d.UUID+"/"+number(d.InstanceID)+"/"+number(c.ID))
	})
}

func rowsOf(t *gpu.Topology, match func(*gpu.Device) bool) []int {
	var rows []int
	for row := range t.Devices {
		if match(&t.Devices[row]) {
			rows = append(rows, row)
		}
	}
	return rows
}

func isInstance(d *gpu.Device) bool {
	return d.Entity.Kind == gpu.KindGPUInstance || d.Entity.Kind == gpu.KindComputeInstance
}

// isCut reports whether the GPU has instances.
func isCut(t *gpu.Topology, d *gpu.Device) bool {
	return slices.ContainsFunc(t.Devices, func(i gpu.Device) bool {
		return isInstance(&i) && i.Entity.ParentKind == gpu.KindGPU && i.Entity.Parent == d.Entity.ID
	})
}

// sameBusID compares bus ids, whose domain has four digits or eight.
func sameBusID(a, b string) bool {
	a, b = strings.TrimLeft(strings.ToLower(a), "0"), strings.TrimLeft(b, "0")
	return a != "" && a == b
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
