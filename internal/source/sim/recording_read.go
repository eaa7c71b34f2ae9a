package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// ReadRecording reads what Recording.Write wrote, compressed by gzip or not.
// file names it in errors, which are of type *SyntaxError where the content is
// wrong. What it returns can be played.
func ReadRecording(r io.Reader, file string) (*Recording, error) {
	in := bufio.NewReader(r)
	p := recordingReader{
		file: file, rec: &Recording{Pods: map[uint32]string{}},
		rows: map[gpu.Entity]int{}, parents: map[gpu.Entity]bool{}, ids: map[gpu.FieldID]bool{},
	}
	var plain io.Reader = in
	if magic, err := in.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, p.errorf("the compressed data is broken (%v)", err)
		}
		plain = z
	}
	if err := p.lines(io.LimitReader(plain, MaxRecording+1)); err != nil {
		return nil, err
	}
	return p.rec, nil
}

type recordingReader struct {
	file  string
	line  int
	rec   *Recording
	ended bool

	facts   int // in all reads
	head    headerLine
	devices []gpu.Device
	rows    map[gpu.Entity]int
	parents map[gpu.Entity]bool // of the devices so far
	parts   []gpu.ComputeInstance
	pairs   []gpu.Pair
	ids     map[gpu.FieldID]bool
}

func (p *recordingReader) errorf(format string, args ...any) error {
	return &SyntaxError{File: p.file, Line: p.line, Msg: fmt.Sprintf(format, args...)}
}

func (p *recordingReader) lines(r io.Reader) error {
	in, size := bufio.NewReader(r), 0
	for {
		text, err := in.ReadBytes('\n')
		if size += len(text); size > MaxRecording {
			return p.errorf("the recording is larger than %d MiB, which is the limit", MaxRecording>>20)
		}
		p.line++
		if err != nil && err != io.EOF {
			return p.errorf("the compressed data is broken or cut off (%v)", err)
		}
		if len(text) > maxRecordedLine {
			return p.errorf("the line is longer than %d MiB, which is the limit", maxRecordedLine>>20)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			if wrong := p.parse(text); wrong != nil {
				return wrong
			}
		}
		if err == io.EOF {
			break
		}
	}
	if !p.ended {
		if p.rec.Interval == 0 {
			p.line = 0
			return p.errorf("the file is empty, expected a recording of dcgm-exporter record")
		}
		return p.errorf("the recording ends without its last line: the file was cut off")
	}
	return nil
}

// parse takes one line.
func (p *recordingReader) parse(text []byte) error {
	var l recordingLine
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		if p.rec.Interval == 0 {
			return p.errorf("found no recording of dcgm-exporter record (%s)", decodeError(err))
		}
		return p.errorf("%s", decodeError(err))
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return p.errorf("column %d: found %.20q behind the object, expected the end of the line", dec.InputOffset()+1, rest)
	}
	var found []string
	for v, i := reflect.ValueOf(l), 0; i < v.NumField(); i++ {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			found = append(found, name)
		}
	}
	switch {
	case len(found) != 1:
		return p.errorf("found %d members %v, expected one of recording, device, part, pair, field, owners, pod, read, end", len(found), found)
	case p.ended:
		return p.errorf("found %s behind the end of the recording", found[0])
	case p.rec.Interval == 0 && l.Recording == nil:
		return p.errorf("found %s, expected the line that begins a recording", found[0])
	case len(p.rec.Reads) > 0 && l.Read == nil && l.End == nil:
		return p.errorf("found %s behind a read, expected another read or the end", found[0])
	case l.Recording != nil:
		return p.header(l.Recording)
	case l.Device != nil:
		return p.device(l.Device)
	case l.Part != nil:
		return p.part(l.Part)
	case l.Pair != nil:
		return p.pair(l.Pair)
	case l.Field != nil:
		return p.field(l.Field)
	case l.Owners != nil:
		return p.owners(l.Owners)
	case l.Pod != nil:
		if _, again := p.rec.Pods[l.Pod.PID]; again {
			return p.errorf("process %d again", l.Pod.PID)
		}
		p.rec.Pods[l.Pod.PID] = l.Pod.UID
		return nil
	case l.Read != nil:
		return p.read(l.Read)
	default:
		return p.end(l.End)
	}
}

// decodeError says what encoding/json found, in one clause with the column.
func decodeError(err error) string {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("column %d: %v", syntax.Offset, syntax)
	case errors.As(err, &typ):
		return fmt.Sprintf("column %d: %s is a %s, expected %s", typ.Offset, typ.Field, typ.Value, jsonKind(typ.Type))
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the line is cut off"
	default:
		return strings.TrimPrefix(err.Error(), "json: ")
	}
}

func jsonKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Pointer, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	default:
		return "an integer (" + t.Kind().String() + ")"
	}
}

func (p *recordingReader) header(h *headerLine) error {
	switch {
	case p.rec.Interval != 0:
		return p.errorf("a second recording, expected one in a file")
	case h.Format != recordingFormat:
		return p.errorf("format %q, expected %q", h.Format, recordingFormat)
	case h.Version != recordingVersion:
		return p.errorf("version %d of the format, this program reads version %d", h.Version, recordingVersion)
	case h.Interval <= 0 || h.Interval > int64(24*time.Hour/time.Microsecond):
		return p.errorf("interval_us is %d, expected more than 0, and a day at most", h.Interval)
	case h.Source == "":
		return p.errorf("source is empty, expected dcgm, nvml or sim")
	}
	p.rec.Masked, p.rec.Interval = h.Masked, time.Duration(h.Interval)*time.Microsecond
	p.head = *h
	return nil
}

func (p *recordingReader) device(l *deviceLine) error {
	e := gpu.Entity{ID: l.ID, Parent: l.Parent}
	var ok bool
	if e.Kind, ok = kindOf(l.Kind); !ok {
		return p.errorf("unknown kind %q of a device%s", l.Kind, didYouMean(l.Kind, kindWords()))
	}
	if e.ParentKind, ok = kindOf(l.ParentKind); !ok && l.ParentKind != "" {
		return p.errorf("unknown parent_kind %q%s", l.ParentKind, didYouMean(l.ParentKind, kindWords()))
	}
	switch _, again := p.rows[e]; {
	case again:
		return p.errorf("%v again", e)
	case p.parents[e]:
		return p.errorf("%v comes behind a device that is part of it, expected before", e)
	case len(p.devices) == maxRecordedRows:
		return p.errorf("more than %d devices", maxRecordedRows)
	case (e.Kind == gpu.KindGPU || e.Kind == gpu.KindGPUInstance) && (l.UUID == "" || l.PCIBusID == "" || l.Model == ""):
		return p.errorf("%v has UUID %q, PCI bus id %q and model %q, expected each", e, l.UUID, l.PCIBusID, l.Model)
	}
	d := gpu.Device{
		Entity: e, GPU: l.GPU, UUID: l.UUID, PCIBusID: l.PCIBusID, NVMLIndex: l.NVMLIndex, Minor: l.Minor, Model: l.Model,
		InstanceID: l.InstanceID, ComputeID: l.ComputeID, Profile: l.Profile, MIGUUID: l.MIGUUID, Link: l.Link, Serial: l.Serial,
	}
	if l.Place != nil {
		d.Place = &gpu.Place{NUMANode: l.Place.NUMANode, CPUs: l.Place.CPUs}
	}
	p.rows[e] = len(p.devices)
	if e.ParentKind != gpu.KindNone {
		p.parents[gpu.Entity{Kind: e.ParentKind, ID: e.Parent}] = true
	}
	p.devices = append(p.devices, d)
	return nil
}

// kindOf is the inverse of gpu.Kind.String.
func kindOf(word string) (gpu.Kind, bool) {
	for k := gpu.KindGPU; k <= gpu.KindNode; k++ {
		if k.String() == word {
			return k, true
		}
	}
	return gpu.KindNone, false
}

func kindWords() []string {
	var words []string
	for k := gpu.KindGPU; k <= gpu.KindNode; k++ {
		words = append(words, k.String())
	}
	return words
}

// row reports what is wrong with the number of a row.
func (p *recordingReader) row(row int) error {
	if row < 0 || row >= len(p.devices) {
		return p.errorf("row %d, the recording has %d devices before this line", row, len(p.devices))
	}
	return nil
}

func (p *recordingReader) part(l *partLine) error {
	if p.row(l.Instance) != nil || p.devices[l.Instance].Entity.Kind != gpu.KindGPUInstance {
		return p.errorf("a part of row %d, expected the row of a GPU instance", l.Instance)
	}
	if n := len(p.parts); n > 0 {
		if last := &p.parts[n-1]; last.Instance > l.Instance || last.Instance == l.Instance && last.ID >= l.ID {
			return p.errorf("part %d of row %d comes behind part %d of row %d, expected parts in order, each once", l.ID, l.Instance, last.ID, last.Instance)
		}
	}
	p.parts = append(p.parts, gpu.ComputeInstance{Instance: l.Instance, ID: l.ID, Profile: l.Profile, UUID: l.MIGUUID})
	return nil
}

func (p *recordingReader) pair(l *pairLine) error {
	isGPU := func(row int) bool { return p.row(row) == nil && p.devices[row].Entity.Kind == gpu.KindGPU }
	if !isGPU(l.A) || !isGPU(l.B) || l.A >= l.B {
		return p.errorf("a pair of rows %d and %d, expected two GPUs, the smaller row first", l.A, l.B)
	}
	if n := len(p.pairs); n > 0 && (p.pairs[n-1].A > l.A || p.pairs[n-1].A == l.A && p.pairs[n-1].B >= l.B) {
		return p.errorf("the pair of rows %d and %d comes behind that of %d and %d, expected pairs in order, each once", l.A, l.B, p.pairs[n-1].A, p.pairs[n-1].B)
	}
	if l.NVLinks < 0 || l.Generation < 0 {
		return p.errorf("%d NVLinks of generation %d, expected 0 at least", l.NVLinks, l.Generation)
	}
	for path := gpu.PathUnknown; path <= gpu.PathSystem; path++ {
		if path.String() == l.Path {
			p.pairs = append(p.pairs, gpu.Pair{A: l.A, B: l.B, Path: path, NVLinks: l.NVLinks, Generation: l.Generation})
			return nil
		}
	}
	return p.errorf("unknown path %q, expected PSB, PIX, PXB, PHB, NODE, SYS or none", l.Path)
}

func (p *recordingReader) field(l *fieldLine) error {
	if p.ids[l.ID] {
		return p.errorf("field %d again", l.ID)
	}
	p.ids[l.ID] = true
	p.rec.Fields = append(p.rec.Fields, RecordedField{ID: l.ID, Unit: l.Unit})
	return nil
}

func (p *recordingReader) owners(l *ownersLine) error {
	o := RecordedOwners{Attributor: l.Attributor, Labels: make([][]gpu.Label, len(p.devices)), Uses: make([]gpu.Use, len(p.devices))}
	for i := range l.Uses {
		u := &l.Uses[i]
		if err := p.row(u.Row); err != nil {
			return err
		}
		if u.Replicas < 0 {
			return p.errorf("%d replicas, expected 0 at least", u.Replicas)
		}
		use := gpu.Use{Replicas: u.Replicas}
		for use.Sharing = gpu.SharingNone; u.Sharing != "" && use.Sharing.String() != u.Sharing; use.Sharing++ {
			if use.Sharing > gpu.SharingDRA {
				return p.errorf("sharing %q, expected time-slicing, mps or dra", u.Sharing)
			}
		}
		for _, w := range u.Owners {
			if w.Part < 0 || w.Part > 1 {
				return p.errorf("an owner of %v of a GPU instance, expected 0 to 1", w.Part)
			}
			use.Owners = append(use.Owners, gpu.Owner{
				Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, PodUID: w.PodUID,
				Resource: w.Resource, Replica: w.Replica, Part: w.Part, Labels: labelsOfLines(w.Labels),
			})
		}
		o.Labels[u.Row], o.Uses[u.Row] = labelsOfLines(u.Labels), use
	}
	p.rec.Owners = append(p.rec.Owners, o)
	return nil
}

func labelsOfLines(lines []labelLine) []gpu.Label {
	var labels []gpu.Label
	for _, l := range lines {
		labels = append(labels, gpu.Label{Name: l[0], Value: l[1]})
	}
	return labels
}

func (p *recordingReader) read(l *readLine) error {
	at := l.At * 1000
	reads := p.rec.Reads
	switch {
	case l.At < 0 || l.At > int64(maxRecordedTime/time.Microsecond):
		return p.errorf("at_us is %d, expected 0 to %d", l.At, int64(maxRecordedTime/time.Microsecond))
	case len(reads) == 0 && l.At != 0:
		return p.errorf("the first read is at %d us, expected 0", l.At)
	case len(reads) > 0 && at <= reads[len(reads)-1].At:
		return p.errorf("the read at %d us comes behind one at %d us, expected a later one", l.At, micros(reads[len(reads)-1].At))
	}
	r := RecordedRead{At: at}
	// when returns when something of that age was, and notes what is wrong.
	var wrong error
	when := func(age int64) int64 {
		if age < 0 || age > int64(maxRecordedAge/time.Microsecond) {
			wrong = p.errorf("an age of %d us, expected 0 to %d", age, int64(maxRecordedAge/time.Microsecond))
		}
		return at - age*1000
	}
	row := func(row int) int {
		if err := p.row(row); err != nil {
			wrong = err
		}
		return row
	}
	for i := range l.Samples {
		if err := p.samples(&l.Samples[i], row, when, &r.Batch); err != nil {
			return err
		}
	}
	for _, g := range l.Faults {
		err, known := errorOf(g.Reason)
		switch {
		case !known:
			return p.errorf("unknown reason %q%s", g.Reason, didYouMean(g.Reason, gpu.Reasons()))
		case g.Field < gpu.FieldPeerStates || g.Field >= len(p.rec.Fields):
			return p.errorf("a fault of field %d, the recording has %d fields before this line", g.Field, len(p.rec.Fields))
		}
		for _, at := range g.Rows {
			if at != gpu.AllRows {
				row(at)
			}
			r.Batch.Fail(at, g.Field, err)
		}
	}
	for _, q := range l.Processes {
		process := gpu.Process{Row: row(q.Row), PID: q.PID, Time: when(q.Age)}
		if q.Busy != nil {
			process.Busy = q.Busy.Value
		}
		if q.Memory != nil {
			process.Memory = q.Memory.Value
		}
		if process.Busy.IsText() || process.Memory.IsText() {
			return p.errorf("process %d is busy %.20q and has the memory %.20q, expected numbers", q.PID, process.Busy, process.Memory)
		}
		r.Batch.Processes = append(r.Batch.Processes, process)
	}
	for _, u := range l.Utilizations {
		busy, ok := u.Busy.Value.Number()
		if !ok || busy < 0 || busy > 1 {
			return p.errorf("row %d was busy %.20q, expected a number from 0 to 1", u.Row, u.Busy.Value)
		}
		r.Batch.Utilizations = append(r.Batch.Utilizations, gpu.Utilization{Row: row(u.Row), Busy: u.Busy.Value})
	}
	for _, h := range l.Health {
		r.Batch.Health = append(r.Batch.Health, gpu.HealthCheck{Row: row(h.Row), Watch: h.Watch, Code: h.Code, Result: h.Result, Time: when(h.Age)})
	}
	for _, s := range l.Peers {
		r.Batch.Peers = append(r.Batch.Peers, gpu.PeerState{Row: row(s.Row), Peer: row(s.Peer), Status: s.Status})
	}
	p.rec.Reads = append(reads, r)
	if p.facts += r.facts(); p.facts > maxRecordedFacts {
		return p.errorf("more than %d samples, faults and processes until this read, which is the limit", maxRecordedFacts)
	}
	return wrong
}

// samples takes the samples of one field.
func (p *recordingReader) samples(g *sampleGroup, row func(int) int, when func(int64) int64, b *gpu.Batch) error {
	if g.Field < 0 || g.Field >= len(p.rec.Fields) {
		return p.errorf("samples of field %d, the recording has %d fields before this line", g.Field, len(p.rec.Fields))
	}
	id := p.rec.Fields[g.Field].ID
	if len(g.Values) != len(g.Rows) || g.Ages != nil && len(g.Ages) != len(g.Rows) {
		return p.errorf("field %d has %d rows, %d values and %d ages, expected as many of each (or no ages)", id, len(g.Rows), len(g.Values), len(g.Ages))
	}
	e, known := catalog.ByID(id)
	for i, v := range g.Values {
		if known && v.IsText() != (e.Type == catalog.Text) {
			return p.errorf("field %d (%s) has the value %.20q, expected a value of type %s", id, e.Name, v, e.Type)
		}
		age := int64(0)
		if g.Ages != nil {
			age = g.Ages[i]
		}
		b.AddAt(row(g.Rows[i]), g.Field, v.Value, when(age))
	}
	return nil
}

func (p *recordingReader) end(l *endLine) error {
	if len(p.rec.Reads) == 0 || l.Reads != len(p.rec.Reads) {
		return p.errorf("the end tells of %d reads, found %d; expected one at least", l.Reads, len(p.rec.Reads))
	}
	t := gpu.NewTopology(p.devices)
	t.Divided, t.Pairs = p.parts, p.pairs
	t.Source, t.Driver, t.Library, t.Engine, t.Host = p.head.Source, p.head.Driver, p.head.Library, p.head.Engine, p.head.Host
	p.rec.Topology, p.ended = t, true
	return nil
}
