package gpu

import (
	"slices"
	"strings"
	"time"
)

// A Label is a name and an unescaped UTF-8 value.
type Label struct{ Name, Value string }

// Labels returns labels from alternating names and values. It omits labels with an empty value.
func Labels(pairs ...string) []Label {
	labels := make([]Label, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			labels = append(labels, Label{Name: pairs[i], Value: pairs[i+1]})
		}
	}
	return labels
}

// Sharing is how the owners of an entity share it.
type Sharing uint8

// The ways of sharing. Their String is the value of the sharing label.
const (
	SharingNone        Sharing = iota // exclusive: one owner has the whole entity
	SharingTimeSlicing                // time-sliced replicas
	SharingMPS                        // replicas under the MPS daemon
	SharingDRA                        // one claim that several pods use
)

// String returns the value of the sharing label.
func (s Sharing) String() string { return [...]string{"none", "time-slicing", "mps", "dra"}[s] }

// An Owner holds an entity or one replica of it. It is a container of a pod, a job, or a container of a runtime.
type Owner struct {
	Namespace, Pod, Container string
	PodUID                    string  // empty if unknown
	Resource                  string  // extended resource or DRA driver: "nvidia.com/gpu", "gpu.nvidia.com"
	Replica                   string  // replica ID ("3" in GPU-…::3) or a claim's share ID; empty for a whole entity
	Part                      float64 // fraction of the capacity that the claim consumes, up to 1; 0 if unknown
	Labels                    []Label // further labels: of the pod, dra_*, hpc_job
}

// PodLabels returns the labels container, namespace and pod, except empty ones.
func (o *Owner) PodLabels() []Label {
	return Labels("container", o.Container, "namespace", o.Namespace, "pod", o.Pod)
}

// AllLabels returns the labels of PodLabels and the further labels.
func (o *Owner) AllLabels() []Label { return append(o.PodLabels(), o.Labels...) }

// VirtualGPULabels returns the labels of the owner's copy of a shared entity's series (--kubernetes-virtual-gpus),
// sorted by name. It returns nil for an owner without a pod or a replica.
func (o *Owner) VirtualGPULabels() []Label {
	if o.Replica == "" || o.Pod == "" {
		return nil
	}
	labels := append(append(o.PodLabels(), Label{Name: "vgpu", Value: o.Replica}), o.Labels...)
	slices.SortStableFunc(labels, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	return labels
}

// A Use lists the owners of one entity.
type Use struct {
	Sharing    Sharing
	Replicas   int     // number of replicas that the kubelet has; 0 if not shared or unknown
	Owners     []Owner // in a stable order; a pod that holds two replicas is listed twice
	Incomplete bool    // there may be owners that are not listed
}

// Owners holds the owners of all entities. It is immutable once an Attributor has returned it. An Attributor returns
// the same pointer as long as nothing changes.
type Owners struct {
	Labels     [][]Label   // labels of the exclusive owner by row; may be shorter than the topology
	Copies     [][][]Label // by row: owner labels of each copy of the series; nil for one series with Labels
	Uses       []Use       // uses by row; may be shorter than the topology
	Incomplete bool        // one of several attributors has not answered
}

// UseOf returns the use of a row. It is incomplete if o is nil, or if o is incomplete and no pod owns the entity: a
// pod is never joined by owners of another attributor.
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

// Of returns the owner labels of a row, or nil if there are none.
func (o *Owners) Of(row int) []Label {
	if o == nil || row >= len(o.Labels) {
		return nil
	}
	return o.Labels[row]
}

// CopiesOf returns the owner labels of each copy of the row's series, or nil if there is only one series.
func (o *Owners) CopiesOf(row int) [][]Label {
	if o == nil || row >= len(o.Copies) {
		return nil
	}
	return o.Copies[row]
}

// A Column holds the values of one counter.
type Column struct {
	Counter *Counter
	Values  []Value // by row of the Topology; absent if nothing was read
}

// A Series is one sample of a derived family.
type Series struct {
	Row     int     // the entity whose labels the series has, or AllRows if it has none
	Labels  []Label // further labels in page order; several families may share the slice
	NoOwner bool    // the labels of the current owner are left out
	Owner   []Label // labels of another owner, such as the owner at the time of an event, sorted; needs NoOwner
	Value   Value
}

// A Family is a metric family computed by a snapshot.Deriver.
type Family struct {
	Name       string
	Type       MetricType
	Help       string
	Series     []Series
	OfGPUs     bool // the series also hold for each instance of their GPU
	LikeField  bool // the family shows a field: a page without the fields of a GPU has none of its series
	OfNode     bool // series without an entity get the host label
	OwnersOnly bool // the series are the owners' parts of the column of the same name, which has the device's total
}

// EntityHealth is the state of one entity in a snapshot.
type EntityHealth struct {
	Err          error // why the entity cannot be read; nil if it can
	OldestSample int64 // time of the oldest served sample in Unix nanoseconds; zero if there is none
}

// A FieldHealth records that a field is not served for an entity, and why.
type FieldHealth struct {
	Field  string // the counter's name
	Row    int    // the entity, or AllRows
	Reason string // value of the reason label
}

// Health is the state of the collection. It is served even when there is no data.
type Health struct {
	Err         error          // why there is no data; nil if the latest cycle succeeded
	Entities    []EntityHealth // by row of the Topology
	Unavailable []FieldHealth  // in a stable order
}

// A Snapshot is the content of one page. Its receiver must not change it, nor keep it beyond the call: the next
// snapshot reuses its memory.
type Snapshot struct {
	Time     time.Time
	ValidFor time.Duration // how long its page may be served; zero means without limit
	Topology *Topology     // nil while there is no session
	Owners   *Owners       // nil if there is no attributor
	Columns  []Column
	Families []Family
	Health   Health
}
