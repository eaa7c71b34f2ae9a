package host

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/report"
)

const sourceCDI = "https://github.com/cncf-tags/container-device-interface, SPEC.md; nvidia-container-toolkit cmd/nvidia-ctk-installer (--cdi-output-dir)"

// A spec is one CDI specification of NVIDIA's on the node.
type spec struct {
	file string
	cdi.Spec
}

// cdi judges the CDI specifications: whether what they give to containers is on the node.
func (n *node) cdi() {
	const id, subject = "cdi", "CDI"
	var specs []spec
	unread := 0
	for _, file := range n.glob("/etc/cdi/*", "/run/cdi/*") {
		if ext := path.Ext(file); ext != ".yaml" && ext != ".json" {
			continue
		}
		text, err := n.read(file)
		if err != nil {
			n.unknown(id, file, err, sourceCDI)
			unread++
			continue
		}
		s := spec{file: file}
		if err := yaml.Unmarshal([]byte(text), &s.Spec); err != nil {
			n.add(id, report.Failed, file, fmt.Sprintf("it is no CDI specification, so that the container runtime refuses its devices: %v", err), toolkitLog, sourceCDI)
			unread++
			continue
		}
		if vendor, _, _ := strings.Cut(s.Kind, "/"); vendor == "nvidia.com" || strings.HasSuffix(vendor, ".nvidia.com") {
			specs = append(specs, s)
		}
	}
	if len(specs) == 0 {
		if unread == 0 && n.hasAny("/etc/cdi", "/run") {
			n.add(id, report.Note, subject, "no specification of NVIDIA's is in /etc/cdi or /var/run/cdi: GPUs are given to containers by the nvidia runtime alone, as intended only with cdi.enabled=false", "", sourceCDI)
		}
		return
	}
	for _, s := range specs {
		n.judgeSpec(s)
	}
}

// judgeSpec has one row for a specification.
func (n *node) judgeSpec(s spec) {
	gone, wrong, notJudged := n.compare(s)
	what := fmt.Sprintf("%s with %d devices", s.Kind, len(s.Devices))
	if len(s.Devices) == 1 {
		what = s.Kind + " with 1 device"
	}
	state, reason, next := report.OK, ": every file and device node that it names is there", ""
	if len(gone)+len(wrong) > 0 || len(s.Devices) == 0 {
		state, next = report.Failed, "sudo nvidia-ctk cdi generate --output="+s.file
	}
	switch {
	case len(gone) > 0:
		reason = " names " + some(gone) + ": no longer on the node, so that no container with one of its devices starts; the driver or the MIG geometry has changed since the file was written"
	case len(wrong) > 0:
		reason = " has " + some(wrong) + ": the file is older than the loaded driver"
	case len(s.Devices) == 0:
		state, reason = report.Warning, ": it was written while the driver served no GPU"
	case notJudged > 0:
		state, reason = report.Unknown, fmt.Sprintf("; %d of the files and device nodes that it names are not judged: their folders may not be read, or are not in the copy", notJudged)
	}
	n.add("cdi", state, s.file, what+reason, next, sourceCDI)
}

// compare returns the files of a specification that are gone, its device nodes with other numbers, both
// sorted and each once, and the number of files that cannot be judged.
func (n *node) compare(s spec) (gone, wrong []string, notJudged int) {
	info, err := n.info("/dev/null")
	isCopy := err != nil || !isDevice(info)
	file := func(name string) {
		_, err := n.info(name)
		switch {
		case err == nil || !path.IsAbs(name):
		case !absent(err) || isCopy && !n.has(path.Dir(name)):
			notJudged++
		default:
			gone = append(gone, name)
		}
	}
	edits := []cdi.ContainerEdits{s.ContainerEdits}
	for _, d := range s.Devices {
		edits = append(edits, d.ContainerEdits)
	}
	for _, e := range edits {
		for _, m := range e.Mounts {
			if m != nil {
				file(m.HostPath)
			}
		}
		for _, h := range e.Hooks {
			if h != nil {
				file(h.Path)
			}
		}
		for _, d := range e.DeviceNodes {
			switch {
			case d == nil:
				continue
			case isCopy:
				notJudged++
				continue
			}
			at := cmp.Or(d.HostPath, d.Path)
			file(at)
			info, err := n.info(at)
			if err != nil || d.Major == 0 && d.Minor == 0 {
				continue
			}
			if major, minor, ok := device(info); ok && (int64(major) != d.Major || int64(minor) != d.Minor) {
				wrong = append(wrong, fmt.Sprintf("%s as %d:%d, which is %d:%d", at, d.Major, d.Minor, major, minor))
			}
		}
	}
	slices.Sort(gone)
	slices.Sort(wrong)
	return slices.Compact(gone), slices.Compact(wrong), notJudged
}

// some lists at most three names.
func some(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}
