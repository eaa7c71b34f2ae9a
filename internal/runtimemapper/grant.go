package runtimemapper

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
)

// grant returns the ids of the devices that a container was given, without duplicates and at most maxCount. A device
// request replaces the environment, because Docker overwrites it.
//
// The environment counts only for a runtime that reads it, one with "nvidia" in its name. Every CUDA image sets
// NVIDIA_VISIBLE_DEVICES=all.
func grant(c *inspected) []deviceid.ID {
	if onlyMonitors(c) {
		return nil
	}
	var words []string
	for i := range c.HostConfig.DeviceRequests {
		words = append(words, requested(&c.HostConfig.DeviceRequests[i])...)
	}
	for _, d := range c.HostConfig.Devices {
		if deviceid.ParseVisible(d.PathOnHost).Form == deviceid.FormNode {
			words = append(words, d.PathOnHost)
		}
	}
	if len(words) == 0 && strings.Contains(strings.ToLower(c.HostConfig.Runtime), "nvidia") {
		words = strings.Split(variable(c, "NVIDIA_VISIBLE_DEVICES"), ",")
	}
	var ids []deviceid.ID
	seen := map[deviceid.ID]bool{}
	for _, word := range words {
		switch strings.ToLower(strings.TrimSpace(word)) {
		case "", "none", "void":
		default:
			if id := deviceid.ParseVisible(word); !seen[id] && len(ids) < maxCount {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// requested returns the device names of a request, or nil for another vendor's. A count means the first GPUs: Docker
// turns it into 0, 1, … (moby, daemon/nvidia_linux.go).
func requested(r *deviceRequest) []string {
	driver := strings.ToLower(r.Driver)
	switch {
	case driver == "cdi":
		return slices.DeleteFunc(slices.Clone(r.DeviceIDs), func(name string) bool {
			kind, _, _ := strings.Cut(name, "=")
			return !deviceid.IsCDIKind(kind)
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

// maxCount is the maximum number of devices of a container. No machine has that many.
const maxCount = 256

// onlyMonitors reports whether a container has only the utility capability of the driver, which cannot run work on a
// GPU.
func onlyMonitors(c *inspected) bool {
	all := variable(c, "NVIDIA_DRIVER_CAPABILITIES")
	return all != "" && !slices.ContainsFunc(strings.Split(all, ","), func(one string) bool {
		one = strings.TrimSpace(one)
		return one != "" && one != "utility"
	})
}

// variable returns a variable of the container's environment.
func variable(c *inspected, name string) string {
	for _, e := range c.Config.Env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			return value
		}
	}
	return ""
}
