package chart

import (
	"slices"
	"strings"
)

// Operand is a DaemonSet that the operator creates.
type Operand struct {
	// DaemonSet is its name. For the driver and the vGPU manager, a suffix may follow: the operating system, the kernel
	// or the name of an NVIDIADriver.
	DaemonSet string `json:"-"`
	// Settings is its section of the ClusterPolicy, such as "driver". The chart's values use the same names.
	Settings string `json:"settings"`
	// When lists the conditions that must all be true for the operator to create it.
	When []Condition `json:"when,omitempty"`
	// Standard means that the operator creates it by default, if its switches are not set.
	Standard bool `json:"standard,omitempty"`
	// Label is the suffix of nvidia.com/gpu.deploy. in its node selector. It is empty up to v1.7.
	Label string `json:"label,omitempty"`
	// Workloads are the workload types whose nodes always get the label: container, vm-passthrough, vm-vgpu.
	Workloads []string `json:"workloads,omitempty"`
	// Containers are the pod's containers, init containers first. Settings describes the first container that is not an
	// init container.
	Containers []Container `json:"containers"`
	// Reads lists the fields of other sections that the operator reads for it. A field stands for all fields below it.
	Reads []string `json:"reads,omitempty"`
}

// Container is a container of an operand's pod.
type Container struct {
	Name string `json:"name"`
	Init bool   `json:"init,omitempty"`
	// Image is the section with the image settings, such as "driver.manager".
	Image string `json:"image"`
	// System means that the operator appends the nodes' operating system to the tag, unless the image has a digest.
	System bool `json:"system,omitempty"`
	// When lists the conditions that must all be true for the pod to have the container.
	When []Condition `json:"when,omitempty"`
}

// Condition is true if a setting is true ("driver.enabled"), is set ("devicePlugin.config.name=*") or has a value
// ("sandboxWorkloads.mode=kata"). The constants are special conditions.
type Condition string

// Conditions that are not settings.
const (
	// Never is the condition of operands that the operator no longer supports.
	Never Condition = "never"
	// Openshift is true on OpenShift.
	Openshift Condition = "openshift"
	// RedHat is true if the operating system in the driver tag contains rhel or rhcos.
	RedHat Condition = "redhat"
)

// Key returns the setting of the condition. For the constants it returns the constant.
func (c Condition) Key() string {
	key, _, _ := strings.Cut(string(c), "=")
	return key
}

// Holds reports whether the condition is true if its setting has the text value. An empty value means unset; absent is
// the operator's default for unset switches.
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

// ImageFields returns the fields that name and pull the container's image.
func (c Container) ImageFields() []string {
	fields := []string{"repository", "image", "version", "imagePullPolicy", "imagePullSecrets"}
	for i, name := range fields {
		fields[i] = c.Image + "." + name
	}
	return fields
}

// Part is a group of values that its switch disables. Other operands may still read some of its fields: see Reads.
type Part struct {
	Group string
	// When are the conditions, the group's own switch first.
	When []Condition
	// Except lists names in the group that belong to another part, or that always have an effect.
	Except []string
	// Host is the group whose pod runs this part's container. It is empty if the part has its own pod.
	Host string
}

// switches lists groups that a key disables, besides the operands.
var switches = []Part{
	{"node-feature-discovery", []Condition{"nfd.enabled"}, nil, ""},
	{"dcgmExporter.serviceMonitor", []Condition{"dcgmExporter.serviceMonitor.enabled"}, nil, ""},
	{"sandboxWorkloads", []Condition{"sandboxWorkloads.enabled"}, nil, ""},
	{"draDriver", []Condition{"gpuCluster.deployCR"}, nil, ""},
	{"driver.rdma", []Condition{"driver.rdma.enabled", "driver.enabled"}, nil, ""},
	{"driver.upgradePolicy", []Condition{"driver.upgradePolicy.autoUpgrade", "driver.enabled"}, []string{"autoUpgrade"}, ""},
	// the chart's templates and the controller of NVIDIADrivers read it, whatever driver.enabled is
	{"driver.nvidiaDriverCRD", []Condition{"driver.nvidiaDriverCRD.enabled"}, nil, ""},
}

// Parts returns the groups that can be disabled at release v, and those that have no effect in it.
func (t *Table) Parts(v Version) []Part {
	var out []Part
	add := func(group string, when []Condition, host string) {
		own := Condition(group + ".enabled")
		if (slices.Contains(when, own) || slices.Contains(when, Never)) && !slices.ContainsFunc(out, func(p Part) bool { return p.Group == group }) {
			when = slices.DeleteFunc(slices.Clone(when), func(c Condition) bool { return c == own })
			out = append(out, Part{group, append([]Condition{own}, when...), inside(group), host})
		}
	}
	for _, o := range t.Operands(v) {
		add(o.Settings, o.When, "")
		for _, c := range o.Containers {
			add(c.Image, slices.Concat(o.When, c.When), o.Settings)
		}
	}
	return append(out, switches...)
}

// SystemImages returns the sections at release v to whose image tag the operator appends the nodes' operating system.
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

// inside returns the names of the groups in switches that are directly below a group.
func inside(group string) (names []string) {
	for _, p := range switches {
		if name, found := strings.CutPrefix(p.Group, group+"."); found {
			names = append(names, name)
		}
	}
	return names
}

// A Read is a field that the operator reads for an operand with another section. A field stands for all fields below
// it.
type Read struct {
	Field string
	// When lists the conditions that must all be true for the operator to read it.
	When []Condition
}

// Reads returns the fields at release v that an operand with another section reads.
func (t *Table) Reads(v Version) []Read {
	var out []Read
	for _, o := range t.Operands(v) {
		for _, field := range o.Reads {
			out = append(out, Read{field, o.When})
		}
		for _, c := range o.Containers {
			if c.Image == o.Settings || len(c.When) == 0 {
				continue
			}
			for _, field := range c.ImageFields() {
				out = append(out, Read{field, slices.Concat(o.When, c.When)})
			}
		}
	}
	return out
}
