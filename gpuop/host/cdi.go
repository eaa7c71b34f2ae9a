package host

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/check"
)

// cdiSpec holds the kind of a CDI specification and the paths that it names on the node.
type cdiSpec struct {
	Kind           string
	ContainerEdits cdiEdits
	Devices        []struct{ ContainerEdits cdiEdits }
}

type cdiEdits struct {
	DeviceNodes []struct{ HostPath, Path string }
	Mounts      []struct{ HostPath string }
	Hooks       []struct{ Path string }
}

// cdi checks that the files and devices named in NVIDIA's CDI specifications exist.
func (n *inspection) cdi() {
	before := len(n.findings)
	for _, file := range n.glob("/etc/cdi/*", "/run/cdi/*") {
		if ext := path.Ext(file); ext != ".yaml" && ext != ".json" {
			continue
		}
		var spec cdiSpec
		var state check.Severity
		var reason, next string
		text, err := n.read(file)
		if err != nil {
			state, reason, next = unread(err)
		} else if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
			state, reason, next = check.Error,
				fmt.Sprintf("invalid CDI specification; the container runtime rejects its devices: %v", err), toolkitLog
		} else if vendor, _, _ := strings.Cut(spec.Kind, "/"); vendor == "nvidia.com" ||
			strings.HasSuffix(vendor, ".nvidia.com") {
			state, reason, next = n.checkSpec(file, spec)
		} else {
			continue
		}
		n.add(cdiFiles, state, file, reason, next)
	}
	if len(n.findings) == before && n.hasAny("/etc/cdi", "/run") {
		n.add(cdiFiles, check.Note, "CDI",
			"no NVIDIA specification in /etc/cdi or /var/run/cdi: "+
				"containers get GPUs only from the nvidia runtime, which is expected only with cdi.enabled=false", "")
	}
}

// checkSpec checks the files and device nodes of a specification.
func (n *inspection) checkSpec(file string, spec cdiSpec) (state check.Severity, reason, next string) {
	var paths, gone []string
	edits := []cdiEdits{spec.ContainerEdits}
	for _, d := range spec.Devices {
		edits = append(edits, d.ContainerEdits)
	}
	for _, e := range edits {
		for _, m := range e.Mounts {
			paths = append(paths, m.HostPath)
		}
		for _, h := range e.Hooks {
			paths = append(paths, h.Path)
		}
		for _, d := range e.DeviceNodes {
			paths = append(paths, cmp.Or(d.HostPath, d.Path))
		}
	}
	slices.Sort(paths)
	info, err := n.info("/dev/null")
	isCopy, notJudged := err != nil || !isDevice(info), 0
	for _, p := range slices.Compact(paths) {
		switch _, err := n.info(p); {
		case err == nil || !path.IsAbs(p):
		case !absent(err) || isCopy && !n.has(path.Dir(p)):
			notJudged++
		default:
			gone = append(gone, p)
		}
	}
	what := spec.Kind + " with " + check.Count(len(spec.Devices), "device")
	again := "sudo nvidia-ctk cdi generate --output=" + file
	switch {
	case len(gone) > 0:
		if more := len(gone) - 3; more > 0 {
			gone = append(gone[:3], fmt.Sprintf("%d more", more))
		}
		return check.Error, what + " refers to " + strings.Join(gone, ", ") +
			": no longer on the node, so containers with these devices cannot start; " +
			"the driver or the MIG geometry has changed since the file was written", again
	case len(spec.Devices) == 0:
		return check.Warning, what + ": it was generated while the driver had no GPU", again
	case notJudged > 0:
		return check.Unknown,
			fmt.Sprintf("%s; %d of its files and device nodes were not checked: "+
				"their folders are not readable or not in the copy", what, notJudged), ""
	}
	return check.OK, what + ": all its files and device nodes exist", ""
}
