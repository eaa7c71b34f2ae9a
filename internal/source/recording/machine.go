package recording

import (
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Topology returns the entities of the recorded session.
func (r *Recording) Topology() *gpu.Topology {
	devices := make([]gpu.Device, len(r.Devices))
	for i := range r.Devices {
		d := &r.Devices[i]
		kind, _ := kinds.of(d.Kind)
		parent, _ := kinds.of(d.ParentKind)
		devices[i] = gpu.Device{
			Entity: gpu.Entity{Kind: kind, ID: d.ID, ParentKind: parent, Parent: d.Parent},
			GPU:    d.GPU, UUID: d.UUID, PCIBusID: d.PCIBusID, NVMLIndex: d.NVMLIndex, Minor: d.Minor, Model: d.Model,
			InstanceID: d.InstanceID, ComputeID: d.ComputeID, Profile: d.Profile, MIGUUID: d.MIGUUID, Link: d.Link, Serial: d.Serial,
		}
		if d.Place != nil {
			devices[i].Place = &gpu.Place{NUMANode: d.Place.NUMANode, CPUs: d.Place.CPUs}
		}
	}
	t := gpu.NewTopology(devices)
	for _, c := range r.Parts {
		t.ComputeInstances = append(t.ComputeInstances, gpu.ComputeInstance{Instance: c.Instance, ID: c.ID, Profile: c.Profile, UUID: c.MIGUUID})
	}
	for _, p := range r.Pairs {
		path, _ := paths.of(p.Path)
		t.Pairs = append(t.Pairs, gpu.Pair{A: p.A, B: p.B, Path: path, NVLinks: p.NVLinks, Generation: p.Generation})
	}
	t.Source, t.Driver, t.Library, t.Engine, t.Host = r.Source, r.Driver, r.Library, r.Engine, r.Host
	return t
}

// Interval is the plan's that was recorded.
func (r *Recording) interval() time.Duration { return time.Duration(r.Interval) * time.Microsecond }

// owners returns the answer of an attributor, by row of the recorded topology.
func (o *Owners) owners(rows int) *gpu.Owners {
	answer := &gpu.Owners{Labels: make([][]gpu.Label, rows), Uses: make([]gpu.Use, rows)}
	for i := range o.Uses {
		u := &o.Uses[i]
		sharing, _ := sharings.of(u.Sharing)
		use := gpu.Use{Sharing: sharing, Replicas: u.Replicas}
		for _, w := range u.Owners {
			use.Owners = append(use.Owners, gpu.Owner{
				Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, PodUID: w.PodUID,
				Resource: w.Resource, Replica: w.Replica, Part: w.Part, Labels: gpuLabels(w.Labels),
			})
		}
		answer.Labels[u.Row], answer.Uses[u.Row] = gpuLabels(u.Labels), use
	}
	return answer
}

func gpuLabels(list []Label) []gpu.Label {
	var labels []gpu.Label
	for _, l := range list {
		labels = append(labels, gpu.Label{Name: l[0], Value: l[1]})
	}
	return labels
}

// A moment is a Read with its times, At and those in the Batch, in nanoseconds since the first
// Read; a sample that is older than that has a negative one.
type moment struct {
	at    int64
	batch gpu.Batch
}

func (r *Read) moment() moment {
	m := moment{at: r.At * 1000}
	when := func(age int64) int64 { return (r.At - age) * 1000 }
	for i := range r.Samples {
		s := &r.Samples[i]
		for j, v := range s.Values {
			age := int64(0)
			if s.Ages != nil {
				age = s.Ages[j]
			}
			m.batch.AddAt(s.Rows[j], s.Field, v.Value, when(age))
		}
	}
	for i := range r.Faults {
		for _, row := range r.Faults[i].Rows {
			m.batch.Fail(row, r.Faults[i].Field, errorOf(r.Faults[i].Reason))
		}
	}
	for _, p := range r.Processes {
		m.batch.Processes = append(m.batch.Processes, gpu.Process{Row: p.Row, PID: p.PID, Busy: p.Busy.Value, Memory: p.Memory.Value, Time: when(p.Age)})
	}
	for _, u := range r.Utilizations {
		m.batch.Utilizations = append(m.batch.Utilizations, gpu.Utilization{Row: u.Row, Busy: u.Busy.Value})
	}
	for _, h := range r.Health {
		m.batch.Health = append(m.batch.Health, gpu.HealthCheck{Row: h.Row, Watch: h.Watch, Code: h.Code, Result: h.Result, Time: when(h.Age)})
	}
	for _, p := range r.Peers {
		m.batch.Peers = append(m.batch.Peers, gpu.PeerState(p))
	}
	return m
}
