package chart

import (
	"slices"
	"strings"
)

// An Operand is a DaemonSet that the operator of a release makes.
type Operand struct {
	// DaemonSet is its name. The driver's and the vGPU manager's may go on with the operating system, the kernel or
	// the name of an NVIDIADriver.
	DaemonSet string `json:"-"`
	// Settings is the part of the ClusterPolicy that describes it: "driver". The chart's values have the same names.
	Settings string `json:"settings"`
	// When are the conditions under which the operator makes it, all of which must hold.
	When []Condition `json:"when,omitempty"`
	// Standard says that it is made where the ClusterPolicy leaves its switches out.
	Standard bool `json:"standard,omitempty"`
	// Label follows nvidia.com/gpu.deploy. in its node selector; empty up to v1.7.
	Label string `json:"label,omitempty"`
	// Workloads are the types of workload whose nodes have the label in any case: container, vm-passthrough, vm-vgpu.
	Workloads []string `json:"workloads,omitempty"`
	// Containers are in the order of the pod, the init containers first. The container that Settings describes is
	// the first that is no init container.
	Containers []Container `json:"containers"`
}

// A Container is one of an operand's pod.
type Container struct {
	Name string `json:"name"`
	Init bool   `json:"init,omitempty"`
	// Image is the path of the settings that name the image: "driver.manager".
	Image string `json:"image"`
	// System says that the operator ends the tag in the operating system of the nodes, unless it is a digest.
	System bool `json:"system,omitempty"`
	// When are the conditions under which the container is in the pod, all of which must hold.
	When []Condition `json:"when,omitempty"`
}

// A Condition is a setting that is true ("driver.enabled"), that is set at all ("devicePlugin.config.name=*") or that has
// a value ("sandboxWorkloads.mode=kata"), or one of the constants.
type Condition string

// The conditions that no setting answers.
const (
	// Never is that of an operand whose settings the operator reads no more.
	Never Condition = "never"
	// Openshift is the cluster's kind.
	Openshift Condition = "openshift"
	// RedHat holds where the tag of the nodes' operating system contains rhel or rhcos.
	RedHat Condition = "redhat"
)

// Key returns the setting that the condition asks for, and for the constants themselves.
func (c Condition) Key() string {
	key, _, _ := strings.Cut(string(c), "=")
	return key
}

// Holds reports whether the condition holds where value is the text of its setting, empty where nothing sets it; absent
// is what the operator takes a switch for that is not set.
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

// A Part is a group of the values with its conditions: without them it has no effect.
type Part struct {
	Group string
	// When are the conditions, the group's own switch first.
	When []Condition
	// Except are names in the group without conditions.
	Except []string
	// Host is the group of the pod with its container; empty for a pod of its own.
	Host string
}

// switches are groups without effect while a key is false. Operand has the operands.
var switches = []Part{
	{"node-feature-discovery", []Condition{"nfd.enabled"}, nil, ""},
	{"dcgmExporter.serviceMonitor", []Condition{"dcgmExporter.serviceMonitor.enabled"}, nil, ""},
	{"sandboxWorkloads", []Condition{"sandboxWorkloads.enabled"}, nil, ""},
	{"draDriver", []Condition{"gpuCluster.deployCR"}, nil, ""},
	{"driver.rdma", []Condition{"driver.rdma.enabled"}, nil, ""},
	{"driver.upgradePolicy", []Condition{"driver.upgradePolicy.autoUpgrade"}, []string{"autoUpgrade"}, ""},
	{"driver.nvidiaDriverCRD", []Condition{"driver.nvidiaDriverCRD.enabled"}, nil, ""},
}

// shared are keys of an operand's group with other readers, too.
var shared = map[string][]string{"driver": {"rdma", "nvidiaDriverCRD"}}

// Parts returns the groups with a switch at release v, and those without any effect in it.
func (t *Table) Parts(v Version) []Part {
	var out []Part
	add := func(group string, when []Condition, host string) {
		own := Condition(group + ".enabled")
		if (slices.Contains(when, own) || slices.Contains(when, Never)) && !slices.ContainsFunc(out, func(p Part) bool { return p.Group == group }) {
			when = slices.DeleteFunc(slices.Clone(when), func(c Condition) bool { return c == own })
			out = append(out, Part{group, append([]Condition{own}, when...), shared[group], host})
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
