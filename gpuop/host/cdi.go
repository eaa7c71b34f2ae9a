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
	for _, file := range n.glob("/etc/cdi/*.yaml", "/etc/cdi/*.json", "/run/cdi/*.yaml", "/run/cdi/*.json") {
		n.run(cdiFiles, file, func(f *check.Finding) error { return n.checkSpec(f, file) })
	}
	if len(n.findings) == before && n.hasAny("/etc/cdi", "/run") {
		n.run(cdiFiles, "CDI", func(f *check.Finding) error {
			f.Say(check.Note, "no NVIDIA specification in /etc/cdi or /var/run/cdi: "+
				"containers get GPUs only from the nvidia runtime, which is expected only with cdi.enabled=false")
			return nil
		})
	}
}

// checkSpec checks the files and device nodes of a specification. It says nothing about those of other vendors.
func (n *inspection) checkSpec(f *check.Finding, file string) error {
	text, err := n.read(file)
	if err != nil {
		return err
	}
	var spec cdiSpec
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		f.Say(check.Error, "invalid CDI specification; the container runtime rejects its devices: %v", err)
		f.Fix = toolkitLog
		return nil
	}
	vendor, _, _ := strings.Cut(spec.Kind, "/")
	if !strings.HasSuffix("."+vendor, ".nvidia.com") {
		return nil
	}
	gone, notJudged := n.gone(spec)
	what := spec.Kind + " with " + check.Count(len(spec.Devices), "device")
	f.Fix = "sudo nvidia-ctk cdi generate --output=" + file
	switch {
	case len(gone) > 0:
		if more := len(gone) - 3; more > 0 {
			gone = append(gone[:3], fmt.Sprintf("%d more", more))
		}
		f.Say(check.Error, "%s refers to %s: no longer on the node, so containers with these devices cannot start; "+
			"the driver or the MIG geometry has changed since the file was written", what, strings.Join(gone, ", "))
	case len(spec.Devices) == 0:
		f.Say(check.Warning, "%s: it was generated while the driver had no GPU", what)
	case notJudged > 0:
		f.Fix = ""
		return fmt.Errorf("%s; the folders of %d files and device nodes are not readable or not in the copy",
			what, notJudged)
	default:
		f.Fix = ""
		f.Say(check.OK, "%s: all its files and device nodes exist", what)
	}
	return nil
}

// gone returns the paths in a specification that do not exist, and counts those that could not be checked.
func (n *inspection) gone(spec cdiSpec) (gone []string, notJudged int) {
	var paths []string
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
	isCopy := n.isCopy()
	for _, p := range slices.Compact(paths) {
		switch _, err := n.info(p); {
		case err == nil || !path.IsAbs(p):
		case !absent(err) || isCopy && !n.has(path.Dir(p)):
			notJudged++
		default:
			gone = append(gone, p)
		}
	}
	return gone, notJudged
}
