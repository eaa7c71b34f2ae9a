package images

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gpu-telemetry/dcgm-exporter/gpuop/chart"
)

// ErrNodes is returned for an operating system or kernel that cannot be part of a driver's tag.
var ErrNodes = errors.New("unusable node description")

// A Component is an operand that runs, with the parts of its image.
type Component struct {
	Operand    string
	Repository string
	Image      string
	// Version is the tag or digest; empty when neither the settings nor the chart name one.
	Version string
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
	settings []chart.Setting
}

func (v view) value(path string) (any, bool) {
	for _, s := range slices.Backward(v.settings) {
		if s.Path.String() == path {
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
	if k, known := v.table.Key(chart.ParsePath(path)); !known || !k.In(v.version) {
		return true
	}
	return v.text(path) == "true"
}

// switches are the settings that must all be on for the operator to run an operand; one without a
// row runs when its own switch, <operand>.enabled, is on or missing. From
// controllers/state_manager.go and controllers/object_controls.go.
var switches = map[string][]string{
	"driver.manager":            {"driver.enabled"},
	"gds":                       {"gds.enabled", "driver.enabled"},
	"gdrcopy":                   {"gdrcopy.enabled", "driver.enabled"},
	"vgpuManager":               {"sandboxWorkloads.enabled", "vgpuManager.enabled"},
	"vgpuManager.driverManager": {"sandboxWorkloads.enabled", "vgpuManager.enabled"},
	"vgpuDeviceManager":         {"sandboxWorkloads.enabled", "vgpuDeviceManager.enabled"},
	"vfioManager":               {"sandboxWorkloads.enabled", "vfioManager.enabled"},
	"vfioManager.driverManager": {"sandboxWorkloads.enabled", "vfioManager.enabled"},
	"sandboxDevicePlugin":       {"sandboxWorkloads.enabled", "sandboxDevicePlugin.enabled"},
	"kataSandboxDevicePlugin":   {"sandboxWorkloads.enabled", "kataSandboxDevicePlugin.enabled"},
	"kataManager":               {"sandboxWorkloads.enabled", "kataManager.enabled"},
	"ccManager":                 {"sandboxWorkloads.enabled", "ccManager.enabled"},
}

// order is that of the list: what every node runs first.
var order = []string{"operator", "operator.initContainer", "validator", "driver", "driver.manager", "gds", "gdrcopy", "toolkit", "devicePlugin",
	"gfd", "dcgm", "dcgmExporter", "migManager", "nodeStatusExporter"}

func rank(operand string) int {
	if i := slices.Index(order, operand); i >= 0 {
		return i
	}
	return len(order)
}

// Components returns the operands that run with these settings at v, Node Feature Discovery last as
// "nfd". With all it returns those that the operator would not run too: every one whose image the
// chart writes.
func Components(t *chart.Table, v chart.Version, settings []chart.Setting, all bool) []Component {
	w := view{t, v, settings}
	rules := t.Images(v)
	names := slices.SortedFunc(maps.Keys(rules), func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	var out []Component
	for _, name := range names {
		if !w.written(rules[name]) || w.text(name+".image") == "" || !all && !w.runs(name) {
			continue
		}
		c := Component{Operand: name, Repository: w.text(name + ".repository"), Image: w.text(name + ".image"), Version: w.text(name + ".version")}
		if c.Version == "" && rules[name].Release {
			c.Version = t.AppVersion(v)
		}
		out = append(out, c)
	}
	if w.on("nfd.enabled") {
		nfd := Component{Operand: "nfd", Version: w.text("node-feature-discovery.image.tag")}
		nfd.Repository, nfd.Image, _ = cutLast(w.text("node-feature-discovery.image.repository"))
		if nfd.Version == "" {
			nfd.Version, _ = t.Operand(v, "nfd")
		}
		out = append(out, nfd)
	}
	return out
}

// written reports whether the templates write the image.
func (w view) written(i chart.Image) bool {
	return slices.ContainsFunc(i.When, func(when []string) bool {
		return !slices.ContainsFunc(when, func(path string) bool {
			path, not := strings.CutPrefix(path, "!")
			return (w.text(path) == "true") == not
		})
	})
}

// runs reports whether the operator runs the operand.
func (w view) runs(operand string) bool {
	if list, ok := switches[operand]; ok {
		return !slices.ContainsFunc(list, func(s string) bool { return !w.on(s) })
	}
	return w.on(operand + ".enabled")
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// Nodes say which driver images are pulled.
type Nodes struct {
	// Systems are operating systems as the driver's tags name them: ubuntu24.04, rhel9.6,
	// rhcos4.19.
	Systems []string
	// Kernels are kernel versions, for precompiled drivers: 6.8.0-60-generic.
	Kernels []string
}

var (
	systemName = regexp.MustCompile(`^(ubuntu|rhel|rocky|ol|rhcos|centos|sles|sl-micro|amzn|debian)[0-9][0-9.]*$`)
	kernelName = regexp.MustCompile(`^[0-9]+\.[0-9A-Za-z._+-]+$`)
)

// List returns the images that an installation pulls, in the order of the operands; with all those
// of operands that are off too.
func List(t *chart.Table, v chart.Version, settings []chart.Setting, nodes Nodes, all bool) ([]Image, error) {
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
	for _, c := range Components(t, v, settings, all) {
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
		i.Note = "the chart names no version: set " + c.Operand + ".version"
	case strings.HasPrefix(c.Version, "sha256:"):
		i.Name += "@" + c.Version
	default:
		i.Name += ":" + c.Version
	}
	return i
}

// driver names the driver's images: <version>-<os>, or <branch>-<kernel>-<os> when precompiled.
func (w view) driver(c Component, nodes Nodes) []Image {
	base := strings.Trim(c.Repository+"/"+c.Image, "/")
	if c.Version == "" {
		return []Image{c.image()}
	}
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

// system is the operating system as the tags have it.
func (w view) system(s string) string {
	number := strings.IndexFunc(s, func(r rune) bool { return r >= '0' && r <= '9' })
	if number < 0 {
		return s
	}
	return w.version.SystemTag(s[:number], s[number:])
}
