package chart

import "strings"

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
