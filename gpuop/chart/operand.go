package chart

import (
	"slices"
	"strings"
)

// Operand is a DaemonSet that the operator creates.
type Operand struct {
	// DaemonSet is the name of the DaemonSet. For the driver and the vGPU manager, the name can have a suffix: the
	// operating system, the kernel or the name of an NVIDIADriver.
	DaemonSet string `json:"-"`
	// Settings is the operand's section of the ClusterPolicy, such as "driver". The chart's values use the same names.
	Settings string `json:"settings"`
	// When lists the conditions under which the operator creates the operand. All must be true.
	When []Condition `json:"when,omitempty"`
	// Standard means that the operator creates the operand by default. Settings in When that must be true then count as
	// true if they are unset.
	Standard bool `json:"standard,omitempty"`
	// Label is the part after "nvidia.com/gpu.deploy." of the label in the operand's node selector, such as "driver".
	// Operands of v1.7 have none.
	Label string `json:"label,omitempty"`
	// Workloads are the workload types whose nodes always get the label: container, vm-passthrough or vm-vgpu.
	Workloads []string `json:"workloads,omitempty"`
	// Containers are the pod's containers, init containers first. Settings describes the first one that is not an init
	// container.
	Containers []Container `json:"containers"`
	// Reads lists the fields of other sections that the operator reads for the operand. A field includes all fields
	// below it.
	Reads []string `json:"reads,omitempty"`
}

// Container is a container of an operand's pod.
type Container struct {
	Name string `json:"name"`
	Init bool   `json:"init,omitempty"`
	// Image is the section with the settings of the image, such as "driver.manager".
	Image string `json:"image"`
	// System means that the operator appends the nodes' operating system to the tag, unless the image has a digest.
	System bool `json:"system,omitempty"`
	// When lists the conditions under which the pod has the container. All must be true.
	When []Condition `json:"when,omitempty"`
}

// Condition is true if a setting is true ("driver.enabled"), is set ("devicePlugin.config.name=*") or has a value
// ("sandboxWorkloads.mode=kata"). The constants below are not settings.
type Condition string

// These conditions are not settings.
const (
	Never     Condition = "never"     // the operator no longer supports the operand
	Openshift Condition = "openshift" // the cluster is OpenShift
	RedHat    Condition = "redhat"    // the operating system in the driver tag contains rhel or rhcos
)

// Key returns the setting that the condition depends on. For a constant, it returns the constant.
func (c Condition) Key() string {
	key, _, _ := strings.Cut(string(c), "=")
	return key
}

// Holds reports whether the condition is true for a value of its setting, formatted as text. An empty value means
// unset. absent is the result for a setting that must be true and is unset.
func (c Condition) Holds(value string, absent bool) bool {
	switch _, want, compares := strings.Cut(string(c), "="); {
	case c == Never:
		return false
	case want == "*":
		return value != ""
	case compares:
		return value == want
	case value == "":
		return absent
	}
	return value == "true"
}

// ImageFields returns the fields that select and pull the container's image.
func (c Container) ImageFields() (out []string) {
	for _, name := range []string{"repository", "image", "version", "imagePullPolicy", "imagePullSecrets"} {
		out = append(out, c.Image+"."+name)
	}
	return out
}

// Operands returns the operands of release v in the order in which the newest operator creates them.
func (t *Table) Operands(v Version) []Operand { return slices.Clone(t.release(v).operands) }

// Part is a group of values, or one of them, that has an effect only under conditions. Other operands may still read
// some fields of a group: see Reads.
type Part struct {
	Group string
	// When lists the conditions. All must be true. The first one of a group is its own switch.
	When []Condition
	// Except lists names in the group that belong to another part, or that always have an effect.
	Except []string
	// Host is the operand's group if the part is a container of that operand's pod, such as "driver" for GDS. It is
	// empty for other parts.
	Host string
}

// switches lists groups, other than operands, that a key disables.
var switches = []Part{
	{Group: "node-feature-discovery", When: []Condition{"nfd.enabled"}},
	{Group: "dcgmExporter.serviceMonitor", When: []Condition{"dcgmExporter.serviceMonitor.enabled"}},
	{Group: "sandboxWorkloads", When: []Condition{"sandboxWorkloads.enabled"}},
	{Group: "draDriver", When: []Condition{"gpuCluster.deployCR"}},
	{Group: "driver.rdma", When: []Condition{"driver.rdma.enabled", "driver.enabled"}},
	{Group: "driver.upgradePolicy", When: []Condition{"driver.upgradePolicy.autoUpgrade", "driver.enabled"},
		Except: []string{"autoUpgrade"}},
	// the templates and the controller of NVIDIADrivers read this group regardless of driver.enabled
	{Group: "driver.nvidiaDriverCRD", When: []Condition{"driver.nvidiaDriverCRD.enabled"}},
}

// Parts returns the groups of operands that can be disabled in release v, and those that have no effect in it. It also
// returns all switches, including those that v does not have.
func (t *Table) Parts(v Version) (out []Part) {
	add := func(group string, when []Condition, host string) {
		own := Condition(group + ".enabled")
		known := slices.ContainsFunc(out, func(p Part) bool { return p.Group == group })
		if known || !slices.Contains(when, own) && !slices.Contains(when, Never) {
			return
		}
		others := slices.DeleteFunc(slices.Clone(when), func(c Condition) bool { return c == own })
		part := Part{Group: group, When: append([]Condition{own}, others...), Host: host}
		for _, s := range switches {
			if name, found := strings.CutPrefix(s.Group, group+"."); found {
				part.Except = append(part.Except, name)
			}
		}
		out = append(out, part)
	}
	for _, o := range t.Operands(v) {
		add(o.Settings, o.When, "")
		for _, c := range o.Containers {
			add(c.Image, slices.Concat(o.When, c.When), o.Settings)
		}
	}
	return append(out, switches...)
}

// SystemImages returns the sections at release v whose image tags get the nodes' operating system appended.
func (t *Table) SystemImages(v Version) (out []string) {
	for _, o := range t.Operands(v) {
		for _, c := range o.Containers {
			if c.System && !slices.Contains(out, c.Image) {
				out = append(out, c.Image)
			}
		}
	}
	return out
}

// Reads returns the fields that operands of release v use from sections other than their own, with the conditions for
// it. Fields below them are read too. The images of containers without conditions are not included.
func (t *Table) Reads(v Version) (out []Part) {
	for _, o := range t.Operands(v) {
		for _, field := range o.Reads {
			out = append(out, Part{Group: field, When: o.When})
		}
		for _, c := range o.Containers {
			for _, field := range c.ImageFields() {
				if c.Image != o.Settings && len(c.When) > 0 {
					out = append(out, Part{Group: field, When: slices.Concat(o.When, c.When)})
				}
			}
		}
	}
	return out
}
