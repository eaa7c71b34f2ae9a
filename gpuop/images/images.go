package images

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// ErrNodes is returned for operating systems or kernels that cannot be part of a tag.
var ErrNodes = errors.New("unusable node description")

// Component is an operand or Node Feature Discovery, with the parts of its image reference.
type Component struct {
	Operand    string
	Repository string
	Image      string
	// Version is the tag or digest. It is empty if it is set neither in the settings nor in the chart.
	Version string
}

// Image is an image to pull.
type Image struct {
	Operand string `json:"operand"`
	// Name is the image reference. It has no tag if the tag is unknown.
	Name string `json:"image"`
	// Note says what is uncertain about the name.
	Note string `json:"note,omitempty"`
}

// view looks up effective values: the settings over the chart's defaults.
type view struct {
	table    *chart.Table
	version  chart.Version
	settings []chart.Setting
}

func (v view) text(path string) string {
	value, _ := v.table.Default(v.version, path)
	for _, s := range v.settings {
		if s.Path.String() == path {
			value = s.Value
		}
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

// on reports whether the release has the switch at path, and the switch is on.
func (v view) on(path string) bool {
	k, known := v.table.Key(chart.ParsePath(path))
	return known && k.In(v.version) && v.text(path) == "true"
}

// Components returns the operands that these settings run on the nodes. Node Feature Discovery, if enabled, comes last,
// as "nfd". If all is true, disabled operands are included.
func Components(t *chart.Table, v chart.Version, settings []chart.Setting, nodes Nodes, all bool) []Component {
	w := view{t, v, settings}
	runs := w.runs(nodes)
	var out []Component
	for _, name := range t.Images(v) {
		image, version := w.text(name+".image"), w.text(name+".version")
		if !w.deployed(name) || image == "" || !all && !runs[name] {
			continue
		}
		if chart.Released(name) {
			version = cmp.Or(version, t.AppVersion(v))
		}
		out = append(out, Component{name, w.text(name + ".repository"), image, version})
	}
	if w.on("nfd.enabled") {
		name := w.text("node-feature-discovery.image.repository")
		tag := cmp.Or(w.text("node-feature-discovery.image.tag"), t.Tag(v, "nfd"))
		last := strings.LastIndexByte(name, '/')
		out = append(out, Component{"nfd", name[:max(last, 0)], name[last+1:], tag})
	}
	return out
}

// deployed reports whether the chart creates a resource that uses the image of a section. It always does before
// v26.7.0, where the ClusterPolicy is not optional. Since then, the chart can leave out the ClusterPolicy and the
// GPUCluster. With NVIDIADrivers, the driver image is that of the default NVIDIADriver, if the chart creates one.
func (v view) deployed(part string) bool {
	const policy = "clusterPolicy.deployCR"
	if _, known := v.table.Default(v.version, policy); !known {
		return true
	}
	instances := v.on("driver.nvidiaDriverCRD.enabled")
	switch part {
	case "operator", "validator", "driver.manager":
		return true
	case "draDriver":
		return v.on("gpuCluster.deployCR")
	case "dcgm", "dcgmExporter":
		return v.on(policy) || v.on("gpuCluster.deployCR")
	case "driver":
		return v.on(policy) && !instances || instances && v.on("driver.nvidiaDriverCRD.deployDefaultCR")
	case "gds", "gdrcopy":
		return v.on(policy) || instances && v.on("driver.nvidiaDriverCRD.deployDefaultCR")
	}
	return v.on(policy)
}

// runs returns the sections whose images the enabled operands use. Components omits those that the chart does not
// deploy.
func (v view) runs(nodes Nodes) map[string]bool {
	all := func(list []chart.Condition, absent bool) bool {
		return !slices.ContainsFunc(list, func(c chart.Condition) bool { return !v.holds(c, absent, nodes) })
	}
	// the operator's Deployment and a GPUCluster use these images
	out := map[string]bool{"operator": true, "draDriver": true}
	for _, o := range v.table.Operands(v.version) {
		if !all(o.When, o.Standard) {
			continue
		}
		for _, c := range o.Containers {
			if all(c.When, false) {
				out[c.Image] = true
			}
		}
	}
	return out
}

func (v view) holds(c chart.Condition, absent bool, nodes Nodes) bool {
	system := func(names ...string) bool {
		return len(nodes.Systems) == 0 || slices.ContainsFunc(nodes.Systems, func(s string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(s, name) })
		})
	}
	switch c {
	case chart.Openshift:
		return v.on("platform.openshift") || system("rhcos")
	case chart.RedHat:
		return system("rhel", "rhcos")
	}
	return c.Holds(v.text(c.Key()), absent)
}

// ByNVIDIADriver reports whether the driver is configured by NVIDIADriver resources instead of by the ClusterPolicy.
func ByNVIDIADriver(t *chart.Table, v chart.Version, settings []chart.Setting) bool {
	return view{t, v, settings}.on("driver.nvidiaDriverCRD.enabled")
}

// Nodes describes the nodes, which determine the driver images.
type Nodes struct {
	// Systems are operating systems as in the driver's tags: ubuntu24.04, rhel9.6, rhcos4.19.
	Systems []string
	// Kernels are kernel versions, for precompiled drivers: 6.8.0-60-generic.
	Kernels []string
}

var (
	systemName = regexp.MustCompile(`^(ubuntu|rhel|rocky|ol|rhcos|centos|sles|sl-micro|amzn|debian)([0-9][0-9.]*)$`)
	kernelName = regexp.MustCompile(`^[0-9]+\.[0-9A-Za-z._+-]+$`)
)

// List returns the images that an installation pulls, in the order of the operands. If all is true, the images of
// disabled operands are included.
func List(t *chart.Table, v chart.Version, settings []chart.Setting, nodes Nodes, all bool) ([]Image, error) {
	for _, s := range nodes.Systems {
		if !systemName.MatchString(s) {
			const want = "a name and version such as ubuntu24.04 or rhel9.6"
			return nil, fmt.Errorf("%w: --os %q, expected %s", ErrNodes, s, want)
		}
	}
	for _, k := range nodes.Kernels {
		if !kernelName.MatchString(k) {
			return nil, fmt.Errorf("%w: --kernel %q, expected a version such as 6.8.0-60-generic", ErrNodes, k)
		}
	}
	w := view{t, v, settings}
	var out []Image
	for _, c := range Components(t, v, settings, nodes, all) {
		for _, i := range w.images(c, nodes) {
			if !slices.ContainsFunc(out, func(o Image) bool { return o.Name == i.Name }) {
				out = append(out, i)
			}
		}
	}
	return out, nil
}

// images returns the images of a component. Some components, such as the driver, have an image for each operating
// system: <version>-<os>. A precompiled driver has an image for each kernel too: <branch>-<kernel>-<os>.
func (v view) images(c Component, nodes Nodes) []Image {
	base := strings.Trim(c.Repository+"/"+c.Image, "/")
	switch {
	case c.Version == "":
		note := "neither the values nor the chart set a version: set " + chart.VersionKey(c.Operand)
		return []Image{{c.Operand, base, note}}
	case strings.HasPrefix(c.Version, "sha256:"):
		return []Image{{c.Operand, base + "@" + c.Version, ""}}
	}
	base += ":" + c.Version
	switch {
	case !slices.Contains(v.table.SystemImages(v.version), c.Operand):
		return []Image{{c.Operand, base, ""}}
	case len(nodes.Systems) == 0:
		const note = "one image for each operating system: the tag ends in -<os>; " +
			"specify the operating systems with --os"
		return []Image{{c.Operand, base, note}}
	}
	kernels, note := []string{""}, ""
	if c.Operand == "driver" && v.on("driver.usePrecompiled") {
		kernels = nodes.Kernels
		if len(kernels) == 0 {
			kernels, note = []string{"<kernel>"}, "one image for each kernel: specify the kernels with --kernel"
		}
		if !chart.DriverBranch(c.Version) {
			note = "driver.usePrecompiled=true needs a driver branch such as 580 in driver.version: " +
				"precompiled images are not tagged with full versions"
		}
	}
	var out []Image
	for _, system := range nodes.Systems {
		parts := systemName.FindStringSubmatch(system)
		for _, kernel := range kernels {
			if kernel != "" {
				kernel = "-" + kernel
			}
			tag, hint := "-"+v.version.SystemTag(parts[1], parts[2]), note
			if strings.HasSuffix(base, tag) {
				hint = "the tag has the operating system twice: remove it from " + c.Operand + ".version"
			}
			out = append(out, Image{c.Operand, base + kernel + tag, hint})
		}
	}
	return out
}
