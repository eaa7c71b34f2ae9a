package images

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpuop/chart"
)

// ErrNodes is returned for an operating system or kernel that cannot be part of a driver's tag.
var ErrNodes = errors.New("unusable node description")

// A Setting is a value at a dotted path.
type Setting struct {
	Path  string
	Value any
}

// A Component is an operand that runs, with the parts of its image.
type Component struct {
	Operand    string
	Repository string
	Image      string
	// Version is empty when neither the settings nor the table of the chart name one.
	Version string
	// Exact says that Version is the tag itself; else it is a version number, whose tag may have a suffix.
	Exact bool
}

// An Image is one image to pull.
type Image struct {
	Operand string `json:"operand"`
	// Name is the reference; its tag is missing when it is not known.
	Name string `json:"image"`
	// Note says what is not sure about the name.
	Note string `json:"note,omitempty"`
}

// view answers what the chart sees at a path.
type view struct {
	table    *chart.Table
	version  chart.Version
	settings []Setting
}

func (v view) value(path string) (any, bool) {
	for _, s := range slices.Backward(v.settings) {
		if s.Path == path {
			return s.Value, true
		}
	}
	return v.table.Default(v.version, path)
}

func (v view) text(path string) string {
	value, known := v.value(path)
	if !known || value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// on reports whether a switch is on; one that this release does not have is.
func (v view) on(path string) bool {
	if k, known := v.table.Key(chart.ParsePath(path)); known && !k.In(v.version) {
		return true
	}
	return v.text(path) == "true"
}

// operands are the components with an image, and the switches that must all be on for them to run.
var operands = []struct {
	name     string
	switches []string
}{
	{"operator", nil},
	{"operator.initContainer", nil},
	{"validator", nil},
	{"driver", []string{"driver.enabled"}},
	{"driver.manager", []string{"driver.enabled"}},
	{"gds", []string{"gds.enabled", "driver.enabled"}},
	{"gdrcopy", []string{"gdrcopy.enabled", "driver.enabled"}},
	{"toolkit", []string{"toolkit.enabled"}},
	{"devicePlugin", []string{"devicePlugin.enabled", "clusterPolicy.deployCR"}},
	{"gfd", []string{"gfd.enabled", "clusterPolicy.deployCR"}},
	{"dcgm", []string{"dcgm.enabled"}},
	{"dcgmExporter", []string{"dcgmExporter.enabled"}},
	{"migManager", []string{"migManager.enabled"}},
	{"nodeStatusExporter", []string{"nodeStatusExporter.enabled"}},
	{"vgpuManager", []string{"sandboxWorkloads.enabled", "vgpuManager.enabled"}},
	{"vgpuManager.driverManager", []string{"sandboxWorkloads.enabled", "vgpuManager.enabled"}},
	{"vgpuDeviceManager", []string{"sandboxWorkloads.enabled", "vgpuDeviceManager.enabled"}},
	{"vfioManager", []string{"sandboxWorkloads.enabled", "vfioManager.enabled"}},
	{"vfioManager.driverManager", []string{"sandboxWorkloads.enabled", "vfioManager.enabled"}},
	{"sandboxDevicePlugin", []string{"sandboxWorkloads.enabled", "sandboxDevicePlugin.enabled"}},
	{"kataSandboxDevicePlugin", []string{"sandboxWorkloads.enabled", "kataSandboxDevicePlugin.enabled"}},
	{"kataManager", []string{"sandboxWorkloads.enabled", "kataManager.enabled"}},
	{"ccManager", []string{"sandboxWorkloads.enabled", "ccManager.enabled"}},
	{"draDriver", []string{"gpuCluster.deployCR"}},
}

// Components returns the operands that run with these settings at v, Node Feature Discovery last as "nfd".
func Components(t *chart.Table, v chart.Version, settings []Setting) []Component {
	w := view{t, v, settings}
	var out []Component
	for _, o := range operands {
		if k, known := t.Key(chart.ParsePath(o.name + ".image")); !known || !k.In(v) {
			continue
		}
		if !slices.ContainsFunc(o.switches, func(s string) bool { return !w.on(s) }) {
			out = append(out, w.component(o.name))
		}
	}
	if w.on("nfd.enabled") {
		nfd := Component{Operand: "nfd", Repository: "registry.k8s.io/nfd", Image: "node-feature-discovery", Version: w.text("node-feature-discovery.image.tag"), Exact: true}
		if r := w.text("node-feature-discovery.image.repository"); r != "" {
			if i := strings.LastIndex(r, "/"); i >= 0 {
				nfd.Repository, nfd.Image = r[:i], r[i+1:]
			}
		}
		if versions, known := t.Operand(v, "nfd"); nfd.Version == "" && known {
			nfd.Version = "v" + versions[0]
		}
		out = append(out, nfd)
	}
	return out
}

func (w view) component(name string) Component {
	c := Component{Operand: name, Repository: w.text(name + ".repository"), Image: w.text(name + ".image"), Version: w.text(name + ".version"), Exact: true}
	if c.Version == "" {
		switch name {
		case "operator", "validator", "nodeStatusExporter":
			c.Version = w.version.String()
		default:
			if versions, known := w.table.Operand(w.version, name); known {
				c.Version, c.Exact = versions[0], name == "driver"
			}
		}
	}
	return c
}

// Nodes say which driver images are pulled.
type Nodes struct {
	// Systems are operating systems as the driver's tags name them: ubuntu24.04, rhel9.6, rhcos4.19.
	Systems []string
	// Kernels are kernel versions, for precompiled drivers: 6.8.0-60-generic.
	Kernels []string
}

var (
	systemName = regexp.MustCompile(`^(ubuntu|rhel|rocky|rhcos|centos|sles|sl-micro|amzn|debian)[0-9][0-9.]*$`)
	kernelName = regexp.MustCompile(`^[0-9]+\.[0-9A-Za-z._+-]+$`)
)

// List returns the images that an installation pulls, in the order of the operands.
func List(t *chart.Table, v chart.Version, settings []Setting, nodes Nodes) ([]Image, error) {
	for _, s := range nodes.Systems {
		if !systemName.MatchString(s) {
			return nil, fmt.Errorf("%w: --os %q, want a name and version such as ubuntu24.04 or rhel9.6", ErrNodes, s)
		}
	}
	for _, k := range nodes.Kernels {
		if !kernelName.MatchString(k) {
			return nil, fmt.Errorf("%w: --kernel %q, want a version such as 6.8.0-60-generic", ErrNodes, k)
		}
	}
	w := view{t, v, settings}
	var out []Image
	seen := map[string]bool{}
	add := func(i Image) {
		if !seen[i.Name] {
			seen[i.Name] = true
			out = append(out, i)
		}
	}
	for _, c := range Components(t, v, settings) {
		switch {
		case c.Operand == "driver" && !strings.HasPrefix(c.Version, "sha256:"):
			for _, i := range w.driver(c, nodes) {
				add(i)
			}
		case c.Operand == "vgpuManager":
			for _, i := range w.driver(c, nodes) {
				add(i)
			}
		default:
			add(c.image())
		}
	}
	return out, nil
}

func (c Component) image() Image {
	i := Image{Operand: c.Operand, Name: strings.Trim(c.Repository+"/"+c.Image, "/")}
	switch {
	case c.Version == "":
		i.Note = "the tag is the subchart's or yours: gpuop's table does not have it"
	case strings.HasPrefix(c.Version, "sha256:"):
		i.Name += "@" + c.Version
	default:
		i.Name += ":" + c.Version
	}
	if c.Version != "" && !c.Exact {
		i.Note = "the version number from the component matrix; the tag may have a prefix v and a suffix such as -ubi8"
	}
	return i
}

// driver names the driver's images: <version>-<os>, or <branch>-<kernel>-<os> when precompiled.
func (w view) driver(c Component, nodes Nodes) []Image {
	base := strings.Trim(c.Repository+"/"+c.Image, "/")
	if len(nodes.Systems) == 0 {
		return []Image{{Operand: c.Operand, Name: base + ":" + c.Version, Note: "one for each operating system of the nodes: the tag ends in -<os>; name them with --os"}}
	}
	precompiled := c.Operand == "driver" && w.on("driver.usePrecompiled") && w.known("driver.usePrecompiled")
	var out []Image
	for _, system := range nodes.Systems {
		system = w.system(system)
		if !precompiled {
			out = append(out, Image{Operand: c.Operand, Name: fmt.Sprintf("%s:%s-%s", base, c.Version, system)})
			continue
		}
		if len(nodes.Kernels) == 0 {
			out = append(out, Image{Operand: c.Operand, Name: fmt.Sprintf("%s:%s-<kernel>-%s", base, c.Version, system), Note: "one for each kernel of the nodes: name them with --kernel"})
		}
		for _, kernel := range nodes.Kernels {
			out = append(out, Image{Operand: c.Operand, Name: fmt.Sprintf("%s:%s-%s-%s", base, c.Version, kernel, system)})
		}
	}
	return out
}

func (w view) known(path string) bool {
	k, known := w.table.Key(chart.ParsePath(path))
	return known && k.In(w.version)
}

// system is the operating system as the tags have it: since v26.7.0 the major version alone for RHEL and Rocky.
func (w view) system(s string) string {
	major, _, err := w.table.Resolve("v26.7.0")
	if err != nil || w.version.Before(major) || !strings.HasPrefix(s, "rhel") && !strings.HasPrefix(s, "rocky") {
		return s
	}
	s, _, _ = strings.Cut(s, ".")
	return s
}
