package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Write writes the recording as lines of JSON. It refuses what would not be
// read again: more than MaxRecording bytes, or more samples than a machine has
// in a recording of that size. Text that is not UTF-8 is made so.
func (r *Recording) Write(w io.Writer) error {
	out := recordingWriter{to: w}
	t := r.Topology
	out.line(recordingLine{Recording: &headerLine{
		Format: recordingFormat, Version: recordingVersion, Masked: r.Masked, Interval: micros(int64(r.Interval)),
		Source: t.Source, Driver: t.Driver, Library: t.Library, Engine: t.Engine, Host: t.Host,
	}})
	for i := range t.Devices {
		out.line(recordingLine{Device: lineOfDevice(&t.Devices[i])})
	}
	for _, c := range t.Divided {
		out.line(recordingLine{Part: &partLine{Instance: c.Instance, ID: c.ID, Profile: c.Profile, MIGUUID: c.UUID}})
	}
	for _, p := range t.Pairs {
		out.line(recordingLine{Pair: &pairLine{A: p.A, B: p.B, Path: p.Path.String(), NVLinks: p.NVLinks, Generation: p.Generation}})
	}
	for _, f := range r.Fields {
		name := ""
		if e, ok := catalog.ByID(f.ID); ok {
			name = e.Name
		}
		out.line(recordingLine{Field: &fieldLine{ID: f.ID, Name: name, Unit: f.Unit}})
	}
	for i := range r.Owners {
		out.line(recordingLine{Owners: lineOfOwners(&r.Owners[i])})
	}
	for _, pid := range slices.Sorted(maps.Keys(r.Pods)) {
		out.line(recordingLine{Pod: &podLine{PID: pid, UID: r.Pods[pid]}})
	}
	facts := 0
	for i := range r.Reads {
		if facts += r.Reads[i].facts(); facts > maxRecordedFacts {
			return fmt.Errorf("more than %d samples in %d of %d reads: record fewer, or fewer fields or devices", maxRecordedFacts, i+1, len(r.Reads))
		}
		if out.line(recordingLine{Read: lineOfRead(&r.Reads[i])}); out.full {
			return fmt.Errorf("the recording is larger than %d MiB after %d of %d reads: record fewer, or fewer fields or devices", MaxRecording>>20, i, len(r.Reads))
		}
	}
	out.line(recordingLine{End: &endLine{Reads: len(r.Reads)}})
	return out.err
}

type recordingWriter struct {
	to   io.Writer
	size int
	full bool
	err  error // the first
}

func (w *recordingWriter) line(l recordingLine) {
	if w.err != nil || w.full {
		return
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if w.err = enc.Encode(l); w.err != nil {
		return
	}
	if b.Len() > maxRecordedLine {
		w.err = fmt.Errorf("a line of the recording is longer than %d MiB: record fewer fields or devices", maxRecordedLine>>20)
		return
	}
	if w.size += b.Len(); w.size > MaxRecording-1024 { // room for the end
		w.full = l.End == nil
		return
	}
	_, w.err = w.to.Write(b.Bytes())
}

func micros(nanoseconds int64) int64 { return nanoseconds / 1000 }

func lineOfDevice(d *gpu.Device) *deviceLine {
	l := &deviceLine{
		Kind: d.Entity.Kind.String(), ID: d.Entity.ID, Parent: d.Entity.Parent,
		GPU: d.GPU, UUID: d.UUID, PCIBusID: d.PCIBusID, NVMLIndex: d.NVMLIndex, Minor: d.Minor, Model: d.Model,
		InstanceID: d.InstanceID, ComputeID: d.ComputeID, Profile: d.Profile, MIGUUID: d.MIGUUID,
		Link: d.Link, Serial: d.Serial,
	}
	if d.Entity.ParentKind != gpu.KindNone {
		l.ParentKind = d.Entity.ParentKind.String()
	}
	if d.Place != nil {
		l.Place = &placeLine{NUMANode: d.Place.NUMANode, CPUs: d.Place.CPUs}
	}
	return l
}

func lineOfOwners(o *RecordedOwners) *ownersLine {
	l := &ownersLine{Attributor: o.Attributor, Uses: []useLine{}}
	for row := range max(len(o.Uses), len(o.Labels)) {
		u := useLine{Row: row}
		if row < len(o.Labels) {
			u.Labels = linesOfLabels(o.Labels[row])
		}
		if row < len(o.Uses) {
			use := &o.Uses[row]
			u.Replicas = use.Replicas
			if use.Sharing != gpu.SharingNone {
				u.Sharing = use.Sharing.String()
			}
			for _, w := range use.Owners {
				u.Owners = append(u.Owners, ownerLine{
					Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, PodUID: w.PodUID,
					Resource: w.Resource, Replica: w.Replica, Part: w.Part, Labels: linesOfLabels(w.Labels),
				})
			}
		}
		if u.Labels != nil || u.Sharing != "" || u.Replicas != 0 || u.Owners != nil {
			l.Uses = append(l.Uses, u)
		}
	}
	return l
}

func linesOfLabels(labels []gpu.Label) []labelLine {
	var l []labelLine
	for _, label := range labels {
		l = append(l, labelLine{label.Name, label.Value})
	}
	return l
}

func lineOfRead(r *RecordedRead) *readLine {
	l := &readLine{At: micros(r.At)}
	age := func(t int64) int64 { return micros(r.At - t) }
	for _, s := range r.Batch.Samples {
		if n := len(l.Samples); n == 0 || l.Samples[n-1].Field != s.Field {
			l.Samples = append(l.Samples, sampleGroup{Field: s.Field})
		}
		g := &l.Samples[len(l.Samples)-1]
		g.Rows = append(g.Rows, s.Row)
		g.Values = append(g.Values, recordedValue{s.Value})
		g.Ages = append(g.Ages, age(s.Time))
	}
	for i := range l.Samples {
		if g := &l.Samples[i]; !slices.ContainsFunc(g.Ages, func(a int64) bool { return a != 0 }) {
			g.Ages = nil
		}
	}
	for _, f := range r.Batch.Faults {
		reason := gpu.Reason(f.Err)
		if n := len(l.Faults); n == 0 || l.Faults[n-1].Field != f.Field || l.Faults[n-1].Reason != reason {
			l.Faults = append(l.Faults, faultGroup{Field: f.Field, Reason: reason})
		}
		g := &l.Faults[len(l.Faults)-1]
		g.Rows = append(g.Rows, f.Row)
	}
	for _, p := range r.Batch.Processes {
		q := processLine{Row: p.Row, PID: p.PID, Age: age(p.Time)}
		if !p.Busy.IsAbsent() {
			q.Busy = &recordedValue{p.Busy}
		}
		if !p.Memory.IsAbsent() {
			q.Memory = &recordedValue{p.Memory}
		}
		l.Processes = append(l.Processes, q)
	}
	for _, u := range r.Batch.Utilizations {
		l.Utilizations = append(l.Utilizations, utilizationLine{Row: u.Row, Busy: recordedValue{u.Busy}})
	}
	for _, h := range r.Batch.Health {
		l.Health = append(l.Health, healthLine{Row: h.Row, Watch: h.Watch, Code: h.Code, Result: h.Result, Age: age(h.Time)})
	}
	for _, p := range r.Batch.Peers {
		l.Peers = append(l.Peers, peerLine{Row: p.Row, Peer: p.Peer, Status: p.Status})
	}
	return l
}
