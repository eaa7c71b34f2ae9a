package gpu

import (
	"slices"
	"strings"
	"time"
)

// A Label is a name and a value, which is unescaped UTF-8.
type Label struct{ Name, Value string }

// Sharing is the way in which an entity is divided among its owners.
type Sharing uint8

// The ways of sharing, in the words of the sharing label.
const (
	SharingNone        Sharing = iota // one owner has the whole entity
	SharingTimeSlicing                // replicas that take turns
	SharingMPS                        // replicas under the MPS daemon
	SharingDRA                        // a claim that several pods share
)

// String returns the value of the sharing label.
func (s Sharing) String() string { return [...]string{"none", "time-slicing", "mps", "dra"}[s] }

// An Owner is a container of a pod, a job, or a container of a runtime, with an entity or a replica of it.
type Owner struct {
	Namespace, Pod, Container string
	PodUID                    string  // empty where unknown
	Resource                  string  // that assigned it, or its driver: "nvidia.com/gpu", "gpu.nvidia.com"
	Replica                   string  // its id ("3" of GPU-…::3), or the share id of a claim; empty for a whole entity
	Part                      float64 // of the entity's capacity, which its claim's share consumes, up to 1; 0 where unknown
	Labels                    []Label // further ones: of the pod, dra_*, hpc_job
}

// PodLabels returns container, namespace and pod, as far as the owner has them.
func (o *Owner) PodLabels() []Label {
	labels := []Label{{Name: "container", Value: o.Container}, {Name: "namespace", Value: o.Namespace}, {Name: "pod", Value: o.Pod}}
	return slices.DeleteFunc(labels, func(l Label) bool { return l.Value == "" })
}

// VirtualGPULabels returns the labels, sorted by name, of the owner's copy of a shared entity's series
// (--kubernetes-virtual-gpus); nil for an owner without pod or replica.
func (o *Owner) VirtualGPULabels() []Label {
	if o.Replica == "" || o.Pod == "" {
		return nil
	}
	labels := append(append(o.PodLabels(), Label{Name: "vgpu", Value: o.Replica}), o.Labels...)
	slices.SortStableFunc(labels, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	return labels
}

// A Use says who uses one entity.
type Use struct {
	Sharing    Sharing
	Replicas   int     // of the entity, by the kubelet; 0 where it is not divided or unknown
	Owners     []Owner // in a stable order; a pod with two replicas is in it twice
	Incomplete bool    // there may be owners beside these
}

// Owners says who uses which entity. An Attributor does not change it after it returned it, and returns it again while
// nothing changes.
type Owners struct {
	Labels     [][]Label // per row, of the entity's only owner; nil or shorter where there is none
	Uses       []Use     // per row; nil or shorter where the attributor does not report it
	Incomplete bool      // one of several attributors has not answered
}

// UseOf returns who uses the entity of a row; a nil o knows of nobody. Beside a pod nobody is missing.
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

// A Column has the values of one counter.
type Column struct {
	Counter *Counter
	Values  []Value // per row of the Topology; absent where nothing was read
}

// A Series is one sample of a derived family.
type Series struct {
	Row     int     // the entity whose labels it carries, or AllRows for none
	Labels  []Label // further ones, in order; series of several families can share them
	NoOwner bool    // the labels of the entity's present owner are left out
	Owner   []Label // of another owner, such as that of the time of an event, sorted by name; needs NoOwner
	Value   Value
}

// A Family is a metric family that a snapshot.Deriver makes.
type Family struct {
	Name       string
	Type       MetricType
	Help       string
	Series     []Series
	OfGPUs     bool // the series are true of each instance of their GPU: a strict page repeats them there
	OfNode     bool // series without an entity carry the name of the machine
	OwnersOnly bool // the series are the owners' parts of the column of the same name, which is the device's own
}

// EntityHealth is the state of one entity in a snapshot.
type EntityHealth struct {
	Err          error // why the entity is not read; nil where it is
	OldestSample int64 // time of the oldest served sample, in Unix nanoseconds; zero for none
}

// FieldHealth says that a field is not served for an entity, and why.
type FieldHealth struct {
	Field  string // the counter's name
	Row    int    // the entity, or AllRows
	Reason string // of the reason label
}

// Health is the state of the collection. It is served also when there is no data.
type Health struct {
	Err         error          // why there is no data; nil when the latest cycle succeeded
	Entities    []EntityHealth // per row of the Topology
	Unavailable []FieldHealth  // in a stable order
}

// A Snapshot has the content of one page. Nothing changes it once it is published.
type Snapshot struct {
	Time     time.Time
	ValidFor time.Duration // a page of it may be served for as long; zero for good
	Topology *Topology     // nil while there is no session
	Owners   *Owners       // nil where nothing attributes
	Columns  []Column
	Families []Family
	Health   Health
}
