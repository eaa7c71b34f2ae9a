package recording

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// A Recording is what a machine showed for a while: its entities, and what each of a few Reads
// found. It holds no text of an error and nothing of the environment.
type Recording struct {
	Header
	// Devices are every entity that the recorded session had, in the order of the rows.
	Devices []Device
	Parts   []Part
	Pairs   []Pair
	// Fields are those of the recorded plan.
	Fields []Field
	// Owners are what the attributors answered, each once.
	Owners []Owners
	// Pods are the UIDs of the pods of the recorded processes, by process id.
	Pods map[uint32]string
	// Reads are in the order of their time; there is at least one in a file.
	Reads []Read

	began int64 // when the first Read was added, in microseconds
}

// New returns a recording without a Read of a session for plan, whose topology is t.
func New(t *gpu.Topology, plan *gpu.Plan) *Recording {
	r := &Recording{Pods: map[uint32]string{}, Header: Header{
		Format: format, Version: version, Interval: plan.Interval.Microseconds(),
		Source: t.Source, Driver: t.Driver, Library: t.Library, Engine: t.Engine, Host: t.Host,
	}}
	for i := range t.Devices {
		r.Devices = append(r.Devices, deviceOf(&t.Devices[i]))
	}
	for _, c := range t.ComputeInstances {
		r.Parts = append(r.Parts, Part{Instance: c.Instance, ID: c.ID, Profile: c.Profile, MIGUUID: c.UUID})
	}
	for _, p := range t.Pairs {
		r.Pairs = append(r.Pairs, Pair{A: p.A, B: p.B, Path: p.Path.String(), NVLinks: p.NVLinks, Generation: p.Generation})
	}
	for i := range plan.Fields {
		e, _ := catalog.ByID(plan.Fields[i].ID)
		r.Fields = append(r.Fields, Field{ID: plan.Fields[i].ID, Name: e.Name, Unit: plan.Fields[i].Unit})
	}
	return r
}

func deviceOf(d *gpu.Device) Device {
	r := Device{
		Kind: d.Entity.Kind.String(), ID: d.Entity.ID, Parent: d.Entity.Parent,
		GPU: d.GPU, UUID: d.UUID, PCIBusID: d.PCIBusID, NVMLIndex: d.NVMLIndex, Minor: d.Minor, Model: d.Model,
		InstanceID: d.InstanceID, ComputeID: d.ComputeID, Profile: d.Profile, MIGUUID: d.MIGUUID,
		Link: d.Link, Serial: d.Serial,
	}
	if d.Entity.ParentKind != gpu.KindNone {
		r.ParentKind = d.Entity.ParentKind.String()
	}
	if d.Place != nil {
		r.Place = &Place{NUMANode: d.Place.NUMANode, CPUs: d.Place.CPUs}
	}
	return r
}

// AddOwners appends what an attributor answered for the topology of the recording.
func (r *Recording) AddOwners(attributor string, o *gpu.Owners) {
	answer := Owners{Attributor: attributor, Uses: []Use{}}
	for row := range r.Devices {
		use := o.UseOf(row)
		u := Use{Row: row, Replicas: use.Replicas}
		if row < len(o.Labels) {
			u.Labels = labelsOf(o.Labels[row])
		}
		if use.Sharing != gpu.SharingNone {
			u.Sharing = use.Sharing.String()
		}
		for _, w := range use.Owners {
			u.Owners = append(u.Owners, Owner{
				Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, PodUID: w.PodUID,
				Resource: w.Resource, Replica: w.Replica, Part: w.Part, Labels: labelsOf(w.Labels),
			})
		}
		if u.Labels != nil || u.Sharing != "" || u.Replicas != 0 || u.Owners != nil {
			answer.Uses = append(answer.Uses, u)
		}
	}
	r.Owners = append(r.Owners, answer)
}

func labelsOf(labels []gpu.Label) []Label {
	var list []Label
	for _, l := range labels {
		list = append(list, Label{l.Name, l.Value})
	}
	return list
}

// Add appends what a Read at a time found. Values that are no numbers, or that are of another type
// than the catalog says, are left out; what comes from the future counts as of now.
func (r *Recording) Add(at time.Time, b *gpu.Batch) {
	now := at.UnixMicro()
	if len(r.Reads) == 0 {
		r.began = now
	}
	age := func(t int64) int64 { return min(max(now-t/1000, 0), maxAge) }
	read := Read{At: now - r.began, Samples: r.samples(b, age)}
	for _, f := range b.Faults {
		reason := gpu.Reason(errorOf(gpu.Reason(f.Err)))
		if n := len(read.Faults); n == 0 || read.Faults[n-1].Field != f.Field || read.Faults[n-1].Reason != reason {
			read.Faults = append(read.Faults, Faults{Field: f.Field, Reason: reason})
		}
		g := &read.Faults[len(read.Faults)-1]
		g.Rows = append(g.Rows, f.Row)
	}
	for _, p := range b.Processes {
		read.Processes = append(read.Processes, Process{Row: p.Row, PID: p.PID, Busy: Value{p.Busy}, Memory: Value{p.Memory}, Age: age(p.Time)})
	}
	for _, u := range b.Utilizations {
		read.Utilizations = append(read.Utilizations, Utilization{Row: u.Row, Busy: Value{u.Busy}})
	}
	for _, h := range b.Health {
		read.Health = append(read.Health, Health{Row: h.Row, Watch: h.Watch, Code: h.Code, Result: h.Result, Age: age(h.Time)})
	}
	for _, p := range b.Peers {
		read.Peers = append(read.Peers, Peer(p))
	}
	r.Reads = append(r.Reads, read)
}

// samples returns the samples, the trails and the XIDs of a batch by their fields, those of a cell
// in the order of their times.
func (r *Recording) samples(b *gpu.Batch, age func(int64) int64) []Samples {
	all := slices.DeleteFunc(withTrails(b), func(s gpu.Sample) bool {
		e, known := catalog.ByID(r.Fields[s.Field].ID)
		n, _ := s.Value.Number()
		return math.IsInf(n, 0) || known && s.Value.IsText() != (e.Type == catalog.Text)
	})
	if f := slices.IndexFunc(r.Fields, func(f Field) bool { return f.ID == catalog.XIDErrors }); f >= 0 {
		for _, x := range b.XIDs {
			all = append(all, gpu.Sample{Row: x.Row, Field: f, Value: gpu.Int(x.Code), Time: x.Time})
		}
	}
	slices.SortStableFunc(all, func(a, b gpu.Sample) int {
		return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.Row, b.Row), cmp.Compare(age(b.Time), age(a.Time)))
	})
	var list []Samples
	for _, s := range all {
		if n := len(list); n == 0 || list[n-1].Field != s.Field {
			list = append(list, Samples{Field: s.Field})
		}
		g := &list[len(list)-1]
		g.Rows = append(g.Rows, s.Row)
		g.Values = append(g.Values, Value{s.Value})
		g.Ages = append(g.Ages, age(s.Time))
	}
	for i := range list {
		if g := &list[i]; slices.Max(g.Ages) == 0 {
			g.Ages = nil
		}
	}
	return list
}

// withTrails returns a copy of the samples of a batch, with those of its trails in place of their
// newest.
func withTrails(b *gpu.Batch) []gpu.Sample {
	type point struct {
		cell
		time int64
	}
	seen := make(map[point]bool, len(b.Trails))
	for _, s := range b.Trails {
		seen[point{cell{s.Row, s.Field}, s.Time}] = true
	}
	all := slices.Clone(b.Trails)
	for _, s := range b.Samples {
		if !seen[point{cell{s.Row, s.Field}, s.Time}] {
			all = append(all, s)
		}
	}
	return all
}

// errRecorded stands for an error of which the recording knows only that it is none of package
// gpu's.
var errRecorded = errors.New("a recorded error")

// errorOf is the inverse of gpu.Reason, as far as a Read reports the reason.
func errorOf(reason string) error {
	for _, err := range []error{
		gpu.ErrNotSupported, gpu.ErrPermission, gpu.ErrLost, gpu.ErrTimeout, gpu.ErrWedged,
		gpu.ErrUnavailable, gpu.ErrVersion, gpu.ErrReleased, gpu.ErrPIDNamespace,
	} {
		if gpu.Reason(err) == reason {
			return err
		}
	}
	return errRecorded
}
