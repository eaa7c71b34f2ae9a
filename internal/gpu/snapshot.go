package gpu

import (
	"slices"
	"strings"
	"time"
)

// A Label is a name and a value. Values are unescaped UTF-8; exposition escapes them.
type Label struct {
	Name  string
	Value string
}

// Sharing says how an entity is divided among its owners.
type Sharing uint8

// The ways of sharing, in the words of the sharing label.
const (
	SharingNone        Sharing = iota // one owner has the whole entity
	SharingTimeSlicing                // replicas that take turns
	SharingMPS                        // replicas under the MPS daemon
	SharingDRA                        // a claim that several pods share
)

// String returns the value of the sharing label.
func (s Sharing) String() string {
	switch s {
	case SharingTimeSlicing:
		return "time-slicing"
	case SharingMPS:
		return "mps"
	case SharingDRA:
		return "dra"
	default:
		return "none"
	}
}

// An Owner is a container of a pod (or a job, or a container of a runtime) to which an entity or a
// replica of it is assigned.
type Owner struct {
	Namespace, Pod, Container string
	PodUID                    string // empty where unknown
	// Resource is the resource or driver that assigned it, for instance "nvidia.com/gpu" or
	// "gpu.nvidia.com".
	Resource string
	// Replica is the id of the replica ("3" of GPU-…::3), or the share id of a claim; empty for a
	// whole entity.
	Replica string
	// Labels are further labels of this owner, without those above: pod labels, dra_*, hpc_job.
	Labels []Label
}

// PodLabels returns the labels that name the owner, sorted by name: container, namespace and pod, as
// far as it has them.
func (o *Owner) PodLabels() []Label {
	labels := []Label{{Name: "container", Value: o.Container}, {Name: "namespace", Value: o.Namespace}, {Name: "pod", Value: o.Pod}}
	return slices.DeleteFunc(labels, func(l Label) bool { return l.Value == "" })
}

// VirtualGPULabels returns the labels of the copy of a shared entity's series that belongs to the
// owner (--kubernetes-virtual-gpus), sorted by name; nil for an owner without pod or replica.
func (o *Owner) VirtualGPULabels() []Label {
	if o.Replica == "" || o.Pod == "" {
		return nil
	}
	labels := append(append(o.PodLabels(), Label{Name: "vgpu", Value: o.Replica}), o.Labels...)
	slices.SortStableFunc(labels, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	return labels
}

// A Use is who uses one entity.
type Use struct {
	Sharing Sharing
	// Replicas is how many replicas the entity is divided into, as far as the kubelet reports; 0 where
	// it is not divided or unknown.
	Replicas int
	// Owners are all owners, in a stable order. A pod that has two replicas is in it twice.
	Owners []Owner
	// Incomplete is set where there may be owners beside these.
	Incomplete bool
}

// Owners says who uses which entity. It is immutable once returned by an Attributor.
type Owners struct {
	// Generation changes whenever the content does; equal generations of one attributor mean equal
	// content, so that labels need not be written again.
	Generation uint64
	// Labels has, per row of the Topology, the labels of the entity's only owner; nil for an entity
	// that has none or several. It may be shorter than the Topology.
	Labels [][]Label
	// Uses has, per row, who uses the entity; nil or shorter where the attributor does not report it.
	Uses []Use
	// Incomplete is set where one of several attributors has not answered.
	Incomplete bool
}

// UseOf returns who uses the entity of a row: nobody knows where o is nil. A pod is the owner
// whatever job or container is reported beside it.
func (o *Owners) UseOf(row int) Use {
	if o == nil {
		return Use{Incomplete: true}
	}
	var use Use
	if row < len(o.Uses) {
		use = o.Uses[row]
	}
	use.Incomplete = use.Incomplete || o.Incomplete && !use.HasPod()
	return use
}

// HasPod reports whether a pod is among the owners.
func (u *Use) HasPod() bool {
	return slices.ContainsFunc(u.Owners, func(o Owner) bool { return o.Pod != "" })
}

// Of returns the owner labels of a row, nil where there are none.
func (o *Owners) Of(row int) []Label {
	if o == nil || row >= len(o.Labels) {
		return nil
	}
	return o.Labels[row]
}

// A Column is one counter's values: a value per row of the Topology, absent where the counter does
// not apply or nothing was read.
type Column struct {
	Counter *Counter
	Values  []Value
}

// A Series is one sample of a family that is not a plain column: exporter families such as
// DCGM_EXP_XID_ERRORS_COUNT, whose labels depend on values.
type Series struct {
	Row    int     // the entity whose labels it carries, or AllRows for none
	Labels []Label // beyond the entity's labels, in order; series of several families can share them
	// NoOwner says that of the entity's labels those of its present owner are left out; Owner are the
	// labels of the owner that it belongs to instead, such as that of the time of an event, sorted by
	// name. Owner needs NoOwner.
	NoOwner bool
	Owner   []Label
	Value   Value
}

// A Family is a metric family that the collector derives.
type Family struct {
	Name   string
	Type   MetricType
	Help   string
	Series []Series
	// OfGPUs says that the series are of GPUs and true of each of their instances: a page that shows
	// instances in the place of their GPU repeats them.
	OfGPUs bool
	// OwnersOnly says that the series are the owners' parts of the column of the same name, which is
	// then the device's own.
	OwnersOnly bool
}

// EntityHealth is the state of one entity in a snapshot.
type EntityHealth struct {
	// Err is nil for an entity that is read, else why it is not.
	Err error
	// OldestSample is the time of the oldest sample that is served for the entity, in Unix
	// nanoseconds; zero where none is.
	OldestSample int64
}

// FieldHealth says that a field is not served for an entity, and why.
type FieldHealth struct {
	Field  string // the counter's name as it was requested
	Row    int    // the entity, or AllRows
	Reason string // one of Reasons
}

// Health is the state of the collection, apart from its data. It is served also when there is no
// data.
type Health struct {
	// Err is nil when the latest cycle succeeded, else why there is no data.
	Err error
	// Entities has an element per row of the Topology.
	Entities []EntityHealth
	// Unavailable lists what was requested and is not served, in a stable order.
	Unavailable []FieldHealth
}

// A Snapshot is everything that one page is written from. The collector hands it to its publisher
// and reuses it afterwards: it is valid and immutable during that call only. Topology and Owners
// stay valid for good.
type Snapshot struct {
	Time time.Time
	// ValidFor is for how long a page of it may be served: the collector has published another one by
	// then, unless it is stalled. Zero is for good.
	ValidFor time.Duration
	Topology *Topology // nil before the first session and while there is none
	Owners   *Owners   // nil where nothing attributes
	Columns  []Column
	Families []Family
	Health   Health
}
