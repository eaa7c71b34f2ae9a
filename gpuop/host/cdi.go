package host

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
	cdi "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/verdict"
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
	seen := map[string]bool{}
	for _, file := range n.glob("/etc/cdi/*", "/var/run/cdi/*", "/run/cdi/*") {
		if ext := path.Ext(file); ext != ".yaml" && ext != ".json" {
			continue
		}
		if at, err := n.at(file); err != nil || seen[at] {
			continue // /var/run is a link to /run
		} else {
			seen[at] = true
		}
		text, err := n.read(file)
		if err != nil {
			n.unknown(id, file, err, sourceCDI)
			unread++
			continue
		}
		s := spec{file: file}
		if err := yaml.Unmarshal([]byte(text), &s.Spec); err != nil {
			n.add(id, verdict.Failed, file, fmt.Sprintf("it is no CDI specification, so that the container runtime refuses its devices: %v", err), n.toolkitLog(), sourceCDI)
			unread++
			continue
		}
		if vendor, _, _ := strings.Cut(s.Kind, "/"); vendor == "nvidia.com" || strings.HasSuffix(vendor, ".nvidia.com") {
			specs = append(specs, s)
		}
	}
	if len(specs) == 0 {
		if unread == 0 && n.hasAny("/etc/cdi", "/var/run", "/run") {
			n.add(id, verdict.Note, subject, "no specification of NVIDIA's is in /etc/cdi or /var/run/cdi: GPUs are given to containers by the nvidia runtime alone, as intended only with cdi.enabled=false", "", sourceCDI)
		}
		return
	}
	for _, s := range specs {
		n.judgeSpec(s)
	}
}

// judgeSpec has one row for a specification.
func (n *node) judgeSpec(s spec) {
	const id = "cdi"
	c := n.comparison(s)
	what := fmt.Sprintf("%s with %d devices", s.Kind, len(s.Devices))
	if len(s.Devices) == 1 {
		what = s.Kind + " with 1 device"
	}
	const next = "sudo nvidia-ctk cdi generate --output="
	switch {
	case len(c.gone) > 0:
		n.add(id, verdict.Failed, s.file, fmt.Sprintf("%s names %s: no longer on the node, so that no container with one of its devices starts; the driver or the MIG geometry has changed since the file was written", what, some(c.gone)), next+s.file, sourceCDI)
	case len(c.wrong) > 0:
		n.add(id, verdict.Failed, s.file, what+" has "+some(c.wrong)+": the file is older than the loaded driver", next+s.file, sourceCDI)
	case len(s.Devices) == 0:
		n.add(id, verdict.Warning, s.file, what+": it was written while the driver served no GPU", next+s.file, sourceCDI)
	case c.notJudged > 0:
		n.add(id, verdict.Unknown, s.file, fmt.Sprintf("%s; %d of the files and device nodes that it names are not judged: their folders may not be read, or are not in the copy", what, c.notJudged), "", sourceCDI)
	default:
		n.add(id, verdict.OK, s.file, what+": every file and device node that it names is there", "", sourceCDI)
	}
}

// comparison is what a specification names, against what the node has.
type comparison struct {
	*node
	isCopy      bool     // the files are a copy without device nodes
	gone, wrong []string // files that are not there; device nodes with another number; sorted, each once
	notJudged   int
}

func (n *node) comparison(s spec) *comparison {
	info, err := n.info("/dev/null")
	c := &comparison{node: n, isCopy: err != nil || !isDevice(info)}
	c.edits(s.ContainerEdits)
	for _, d := range s.Devices {
		c.edits(d.ContainerEdits)
	}
	slices.Sort(c.gone)
	slices.Sort(c.wrong)
	c.gone, c.wrong = slices.Compact(c.gone), slices.Compact(c.wrong)
	return c
}

func (c *comparison) edits(e cdi.ContainerEdits) {
	for _, m := range e.Mounts {
		if m != nil {
			c.file(m.HostPath)
		}
	}
	for _, h := range e.Hooks {
		if h != nil {
			c.file(h.Path)
		}
	}
	for _, d := range e.DeviceNodes {
		switch {
		case d == nil:
		case c.isCopy:
			c.notJudged++
		default:
			c.deviceNode(d)
		}
	}
}

func (c *comparison) file(name string) {
	_, err := c.info(name)
	switch {
	case err == nil || !path.IsAbs(name):
	case !absent(err) || c.isCopy && !c.has(path.Dir(name)):
		c.notJudged++
	default:
		c.gone = append(c.gone, name)
	}
}

func (c *comparison) deviceNode(d *cdi.DeviceNode) {
	at := cmp.Or(d.HostPath, d.Path)
	c.file(at)
	info, err := c.info(at)
	if err != nil || d.Major == 0 && d.Minor == 0 {
		return
	}
	if major, minor, ok := device(info); ok && (int64(major) != d.Major || int64(minor) != d.Minor) {
		c.wrong = append(c.wrong, fmt.Sprintf("%s as %d:%d, which is %d:%d", at, d.Major, d.Minor, major, minor))
	}
}

// some lists at most three names.
func some(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
}
