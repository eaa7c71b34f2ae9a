package contract

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Fixture is a source under test, with the ways to disturb it.
type Fixture struct {
	// New returns a source in its healthy state. It is called once per subtest; clean up with t.Cleanup.
	New func(t *testing.T) collector.Source
	// Plan is the plan of the sessions. On a healthy source, at least one of its fields must have a value after Settle.
	Plan *gpu.Plan
	// Kinds lists the kinds of entities that a healthy source must have. Each kind must have a sample of some field.
	Kinds gpu.Kinds
	// Settle waits until the engine has taken new samples. It is nil if no wait is needed.
	Settle func(t *testing.T)
	// Now is the clock of the samples; nil means time.Now.
	Now func() time.Time

	// Lose removes the GPU at the given row. It is nil if the source cannot lose a GPU.
	Lose func(t *testing.T, row int)
	// Change changes the topology. It is nil if the source cannot change it.
	Change func(t *testing.T)
	// Kill stops the engine or driver. It is nil if the source cannot stop it.
	Kill func(t *testing.T)
	// XID causes XIDs on the GPU at the first row: 62 once on the first call, and 45 twice on the second. It is nil if
	// the source has no XIDs.
	XID func(t *testing.T)
	// Sample makes the engine take a sample of a field with AllSamples, on the GPU at the first row. It returns the
	// value, which differs from the previous one. It is nil if the source cannot take samples on request. Sampled is
	// the index of the field in the plan.
	Sample  func(t *testing.T) gpu.Value
	Sampled int
	// OpenHandles returns the number of open driver handles. It is nil if that is unknown.
	OpenHandles func(t *testing.T) int
}

// deadline bounds every wait of the suite. It is not a performance requirement.
const deadline = 30 * time.Second

// Run runs the contract suite on the fixture.
func Run(t *testing.T, f Fixture) {
	if f.Settle == nil {
		f.Settle = func(*testing.T) {}
	}
	if f.Now == nil {
		f.Now = time.Now
	}
	t.Run("topology is sound and immutable", f.topology)
	t.Run("samples satisfy the contract", f.samples)
	t.Run("canceled context returns", f.canceled)
	t.Run("close is idempotent, and another session can be opened", f.closing)
	if f.XID != nil {
		t.Run("an XID is reported once per session, always with the same ID", f.xids)
	}
	if f.Sample != nil {
		for seed := range uint64(histories) {
			t.Run(fmt.Sprint("each sample is in the trail once, history ", seed),
				func(t *testing.T) { f.trails(t, seed) })
		}
	}
	if f.Lose != nil {
		t.Run("a lost GPU does not affect other GPUs", f.losing)
	}
	if f.Change != nil {
		t.Run("a changed topology ends the session", f.changing)
	}
	if f.Kill != nil {
		t.Run("a lost engine ends the session", f.killing)
	}
}

func (f Fixture) open(t *testing.T) collector.Session {
	t.Helper()
	return f.openAt(t, f.New(t))
}

func (f Fixture) openAt(t *testing.T, src collector.Source) collector.Session {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	s, err := src.Open(ctx, f.Plan)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (f Fixture) read(t *testing.T, s collector.Session, b *gpu.Batch) {
	t.Helper()
	f.readRequest(t, s, gpu.ReadRequest{}, b)
}

func (f Fixture) readRequest(t *testing.T, s collector.Session, req gpu.ReadRequest, b *gpu.Batch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	b.Reset()
	if err := s.Read(ctx, req, b); err != nil {
		t.Fatalf("Read: %v", err)
	}
}

func (f Fixture) topology(t *testing.T) {
	s := f.open(t)
	top := s.Topology()
	if top == nil {
		t.Fatal("Topology() = nil, want a topology")
	}
	if top.Source == "" {
		t.Error("Topology().Source is empty")
	}
	seen := map[gpu.Entity]int{}
	labels := map[string]gpu.Entity{}
	kinds := gpu.Kinds(0)
	for row := range top.Devices {
		d := &top.Devices[row]
		kinds |= gpu.KindsOf(d.Entity.Kind)
		if d.Entity.Kind == gpu.KindNone {
			t.Errorf("row %d: no kind", row)
		}
		if prev, dup := seen[d.Entity]; dup {
			t.Errorf("%v is in row %d and in row %d", d.Entity, prev, row)
		}
		seen[d.Entity] = row
		if got, ok := top.Row(d.Entity); !ok || got != row {
			t.Errorf("Row(%v) = %d, %t; want %d", d.Entity, got, ok, row)
		}
		if p := top.ParentRow(row); p >= row {
			t.Errorf("row %d (%v) precedes its parent in row %d", row, d.Entity, p)
		}
		for _, problem := range problems(d) {
			t.Errorf("%v: %s", d.Entity, problem)
		}
		key := labelsOf(d)
		if other, dup := labels[key]; dup {
			t.Errorf("%v and %v have equal labels", d.Entity, other)
		}
		labels[key] = d.Entity
	}
	if missing := f.Kinds &^ kinds; missing != 0 {
		t.Errorf("topology has no %v", missing.List())
	}
	f.pairs(t, top)
	before := slices.Clone(top.Devices)
	var b gpu.Batch
	for range 3 {
		f.read(t, s, &b)
		f.Settle(t)
	}
	if s.Topology() != top {
		t.Error("Topology() returned another pointer after Read")
	}
	if !slices.Equal(before, top.Devices) {
		t.Error("devices of the topology changed during a Read")
	}
}

// isOfGPU reports whether an entity is a GPU or belongs to one.
func isOfGPU(e gpu.Entity) bool { return e.Kind == gpu.KindGPU || e.ParentKind == gpu.KindGPU }

// problems lists the labels that a device lacks, and a parent of the wrong kind.
func problems(d *gpu.Device) []string {
	var list []string
	bad := func(when bool, what string) {
		if when {
			list = append(list, what)
		}
	}
	bad(isOfGPU(d.Entity) && (d.UUID == "" || d.Model == "" || d.PCIBusID == ""),
		fmt.Sprintf("lacks identity: UUID %q, model %q, PCI %q", d.UUID, d.Model, d.PCIBusID))
	switch d.Entity.Kind {
	case gpu.KindGPUInstance:
		bad(d.Profile == "", "has no profile")
		bad(d.Entity.ParentKind != gpu.KindGPU, "parent is not a GPU")
	case gpu.KindNVLink:
		bad(d.Entity.ParentKind != gpu.KindGPU && d.Entity.ParentKind != gpu.KindNVSwitch,
			"parent is neither a GPU nor a switch")
	case gpu.KindCPUCore:
		bad(d.Entity.ParentKind != gpu.KindCPU, "parent is not a CPU")
	}
	return list
}

// labelsOf returns a key of the labels that distinguish a device from all others on a page.
func labelsOf(d *gpu.Device) string {
	switch e := d.Entity; e.Kind {
	case gpu.KindGPU, gpu.KindGPUInstance:
		return fmt.Sprint(e.Kind, d.UUID, d.InstanceID)
	case gpu.KindNVLink:
		return fmt.Sprint(e.Kind, e.ParentKind, e.Parent, "/", d.Link)
	default:
		return fmt.Sprint(e.Kind, e.ParentKind, e.Parent, "/", e.ID)
	}
}

// pairs checks the connections between GPUs that a topology reports. Each must be between two GPUs in row order, and be
// reported once. If they were not requested, there must be none.
func (f Fixture) pairs(t *testing.T, top *gpu.Topology) {
	t.Helper()
	if !f.Plan.Placement && len(top.Pairs) > 0 {
		t.Errorf("%d pairs of GPUs reported, but they were not requested", len(top.Pairs))
	}
	seen := map[[2]int]bool{}
	for _, p := range top.Pairs {
		if p.A < 0 || p.B >= len(top.Devices) || p.A >= p.B ||
			top.Devices[p.A].Entity.Kind != gpu.KindGPU || top.Devices[p.B].Entity.Kind != gpu.KindGPU {
			t.Errorf("pair %v: want two GPUs in row order", p)
		}
		if seen[[2]int{p.A, p.B}] {
			t.Errorf("pair %v is reported twice", p)
		}
		seen[[2]int{p.A, p.B}] = true
	}
}

func (f Fixture) samples(t *testing.T) {
	s := f.open(t)
	top := s.Topology()
	var b gpu.Batch
	var req gpu.ReadRequest
	kinds := gpu.Kinds(0)
	served, declined := make([]bool, len(f.Plan.Fields)), make([]bool, len(f.Plan.Fields))
	for _, d := range top.Devices {
		req.Processes = append(req.Processes, d.Entity.Kind == gpu.KindGPU || d.Entity.Kind == gpu.KindGPUInstance)
	}
	seen := trailed{}
	for range 3 {
		f.readRequest(t, s, req, &b)
		f.check(t, top, req, &b)
		f.checkTrails(t, top, &b, seen)
		for _, x := range b.Samples {
			kinds |= gpu.KindsOf(top.Devices[x.Row].Entity.Kind)
			served[x.Field] = true
		}
		for _, x := range b.Faults {
			if x.Part == gpu.PartField {
				declined[x.Field] = true
			}
		}
		if f.Sample != nil {
			f.Sample(t)
		}
		f.Settle(t)
	}
	if kinds == 0 {
		t.Error("three reads of a healthy source returned no sample")
	}
	if missing := f.Kinds &^ kinds; missing != 0 {
		t.Errorf("three reads of a healthy source returned no sample of %v", missing.List())
	}
	for i := range f.Plan.Fields {
		field := &f.Plan.Fields[i]
		// The XID field may have no value yet. Fields that no entity has are reported by the collector, not by the
		// source.
		exists := slices.ContainsFunc(top.Devices, func(d gpu.Device) bool { return field.Levels.Has(d.Entity.Kind) })
		if exists && !served[i] && !declined[i] && field.ID != xidField {
			t.Errorf("%s has neither a sample nor a fault", field.Name)
		}
	}
}

// check reports violations of the contract in a batch, except those in its trails.
func (f Fixture) check(t *testing.T, top *gpu.Topology, req gpu.ReadRequest, b *gpu.Batch) {
	t.Helper()
	cells := map[cell]bool{}
	for i := range b.Samples {
		x := &b.Samples[i]
		f.checkSample(t, top, x)
		if c := (cell{x.Row, x.Field}); cells[c] {
			t.Errorf("%s of %v: two samples in one Read", f.Plan.Fields[x.Field].Name, top.Devices[x.Row].Entity)
		} else {
			cells[c] = true
		}
	}
	f.checkXIDs(t, top, b)
	f.checkConditions(t, top, b)
	f.checkProcesses(t, req, b)
	f.checkFaults(t, top, b)
}

func (f Fixture) checkConditions(t *testing.T, top *gpu.Topology, b *gpu.Batch) {
	t.Helper()
	isGPU := func(row int) bool {
		return row >= 0 && row < len(top.Devices) && top.Devices[row].Entity.Kind == gpu.KindGPU
	}
	for _, x := range b.Peers {
		if !f.Plan.Peers || !isGPU(x.Row) || !isGPU(x.Peer) || x.Row == x.Peer || x.Status == "" {
			t.Errorf("peer state %+v: want it only if requested, for two GPUs and with a status", x)
		}
	}
	for _, x := range b.Links {
		if !f.Plan.Links || !isGPU(x.Row) {
			t.Errorf("link state %+v: want it only if requested, and for a GPU", x)
		}
	}
	for _, x := range b.Health {
		if f.Plan.Health == 0 || x.Row < 0 || x.Row >= len(top.Devices) || x.Watch == "" {
			t.Errorf("health check %+v: want it only if requested, for a device and with a watch", x)
		}
	}
}

func (f Fixture) checkProcesses(t *testing.T, req gpu.ReadRequest, b *gpu.Batch) {
	t.Helper()
	for _, x := range b.Processes {
		busy, known := x.Busy.Number()
		if !req.WantsProcesses(x.Row) || x.PID == 0 || known && (busy < 0 || busy > 1) {
			t.Errorf("process %+v: want it only if requested, with a PID and a utilization from 0 to 1", x)
		}
	}
	for _, x := range b.Utilizations {
		busy, known := x.Busy.Number()
		if !req.WantsProcesses(x.Row) || !known || busy < 0 || busy > 1 {
			t.Errorf("utilization %+v: want it only if processes were requested, with a value from 0 to 1", x)
		}
	}
}

func (f Fixture) checkFaults(t *testing.T, top *gpu.Topology, b *gpu.Batch) {
	t.Helper()
	for _, x := range b.Faults {
		if x.Err == nil {
			t.Errorf("fault of row %d, field %d has no error", x.Row, x.Field)
		}
		if x.Row < gpu.AllRows || x.Row >= len(top.Devices) || x.Part > gpu.PartPeerStates || x.Field < 0 ||
			x.Field >= len(f.Plan.Fields) {
			t.Errorf("fault %+v: want a row of the topology or AllRows, a field of the plan and a known part", x)
		}
	}
}

// A cell is a field of a row.
type cell struct{ row, field int }

func (f Fixture) checkSample(t *testing.T, top *gpu.Topology, s *gpu.Sample) {
	t.Helper()
	if s.Row < 0 || s.Row >= len(top.Devices) || s.Field < 0 || s.Field >= len(f.Plan.Fields) {
		t.Fatalf("sample outside the topology or the plan: row %d of %d, field %d of %d",
			s.Row, len(top.Devices), s.Field, len(f.Plan.Fields))
	}
	field, dev := &f.Plan.Fields[s.Field], &top.Devices[s.Row]
	bad := func(when bool, format string, args ...any) {
		t.Helper()
		if when {
			t.Errorf("%s of %v: %s", field.Name, dev.Entity, fmt.Sprintf(format, args...))
		}
	}
	n, number := s.Value.Number()
	bad(field.ID == xidField, "XID returned as a sample")
	bad(s.Value.IsAbsent(), "absent value returned as a sample")
	bad(s.Value.IsText() != field.Text, "value %q: text = %t, want %t", s.Value, s.Value.IsText(), field.Text)
	bad(!field.Levels.Has(dev.Entity.Kind), "this kind of entity does not have the field")
	bad(number && (n >= 140737488355328 && n <= 140737488355332 || n >= 9223372036854775792), "sentinel value %v", n)
	bad(s.Time <= 0, "sample has no time")
	ahead := time.Unix(0, s.Time).Sub(f.Now())
	bad(ahead > time.Minute, "sample is %v in the future, want at most a minute", ahead)
}

// trailed is the set of trail samples that the Reads of a session have returned, without their values.
type trailed map[gpu.Sample]bool

// checkTrails reports violations of the contract in the trails of b. Only fields with AllSamples may have trails. A
// session returns each sample once, in the order of time within a cell. The last one is the newest sample.
func (f Fixture) checkTrails(t *testing.T, top *gpu.Topology, b *gpu.Batch, seen trailed) {
	t.Helper()
	latest := map[cell]gpu.Sample{}
	for i := range b.Trails {
		x := b.Trails[i]
		f.checkSample(t, top, &x)
		field, dev := &f.Plan.Fields[x.Field], &top.Devices[x.Row]
		if !field.AllSamples {
			t.Errorf("%s of %v: trail was returned but not requested", field.Name, dev.Entity)
		}
		if c := (cell{x.Row, x.Field}); latest[c].Time < x.Time {
			latest[c] = x
		} else {
			t.Errorf("%s of %v: trail sample with time %d follows one with time %d, want ascending times", field.Name,
				dev.Entity, x.Time, latest[c].Time)
		}
		point := gpu.Sample{Row: x.Row, Field: x.Field, Time: x.Time}
		if seen[point] {
			t.Errorf("%s of %v: trail sample with time %d was returned twice, want it once", field.Name, dev.Entity,
				x.Time)
		}
		seen[point] = true
	}
	newest := map[cell]gpu.Sample{}
	for _, x := range b.Samples {
		newest[cell{x.Row, x.Field}] = x
		if f.Plan.Fields[x.Field].AllSamples && !seen[gpu.Sample{Row: x.Row, Field: x.Field, Time: x.Time}] {
			t.Errorf("%s of %v: newest sample was in no trail", f.Plan.Fields[x.Field].Name, top.Devices[x.Row].Entity)
		}
	}
	for c, x := range latest {
		if newest[c] != x {
			t.Errorf("%s of %v: newest sample is %+v, but the trail ends with %+v", f.Plan.Fields[c.field].Name,
				top.Devices[c.row].Entity, newest[c], x)
		}
	}
}

const (
	// number of random histories
	histories = 6
	// number of steps in each history; a step is a sample, a Read or a new session
	steps = 24
)

// trails runs a random history of samples, Reads and sessions. The trails of a session must have each sample taken
// since the session was opened, once and in order. They may begin with earlier samples. Repeated equal values are
// ignored, because a source may also sample at each Read.
func (f Fixture) trails(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	src := f.New(t)
	var values []gpu.Value // the sampled values
	type reader struct {
		collector.Session
		opened int // number of values when the session was opened
		seen   trailed
		got    []gpu.Value
	}
	var sessions []*reader
	open := func() {
		sessions = append(sessions, &reader{Session: f.openAt(t, src), opened: len(values), seen: trailed{}})
	}
	var b gpu.Batch
	read := func(s *reader) {
		t.Helper()
		f.read(t, s, &b)
		f.check(t, s.Topology(), gpu.ReadRequest{}, &b)
		f.checkTrails(t, s.Topology(), &b, s.seen)
		row := slices.IndexFunc(s.Topology().Devices, func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindGPU })
		for _, x := range b.Trails {
			if x.Row == row && x.Field == f.Sampled && (len(s.got) == 0 || s.got[len(s.got)-1] != x.Value) {
				s.got = append(s.got, x.Value)
			}
		}
		for _, x := range b.Samples {
			if x.Row == row && x.Field == f.Sampled && len(values) > 0 && x.Value != values[len(values)-1] {
				t.Fatalf("newest sample = %v, want %v", x.Value, values[len(values)-1])
			}
		}
	}
	values = append(values, f.Sample(t))
	open()
	for range steps {
		switch n := rng.IntN(12); {
		case n == 0 && len(sessions) < 3:
			open()
		case n < 5:
			read(sessions[rng.IntN(len(sessions))])
		default:
			values = append(values, f.Sample(t))
		}
	}
	for i, s := range sessions {
		values = append(values, f.Sample(t))
		read(s)
		read(s)
		missed := len(values) - len(s.got)
		if missed < 0 || missed > s.opened || !slices.Equal(s.got, values[missed:]) {
			t.Errorf("session %d, opened after %d samples: trail = %v, want the end of %v with every sample since then",
				i, s.opened, s.got, values)
		}
	}
}

// xidField is DCGM_FI_DEV_XID_ERRORS.
const xidField gpu.FieldID = 230

func (f Fixture) checkXIDs(t *testing.T, top *gpu.Topology, b *gpu.Batch) {
	t.Helper()
	planned := slices.IndexFunc(f.Plan.Fields, func(field gpu.Field) bool { return field.ID == xidField })
	for _, x := range b.XIDs {
		switch {
		case planned < 0 || x.Row < 0 || x.Row >= len(top.Devices) ||
			!f.Plan.Fields[planned].Levels.Has(top.Devices[x.Row].Entity.Kind):
			t.Errorf("XID %+v: want XIDs only if requested, and for a kind of entity that can have them", x)
		case x.Code < 1 || x.ID == 0:
			t.Errorf("XID %+v: want a positive code, and an ID other than 0", x)
		case x.Time <= 0 || x.Since < 0 || x.Since > x.Time || time.Unix(0, x.Time).Sub(f.Now()) > time.Minute:
			t.Errorf("XID %+v: want a positive Time that is not in the future, and Since from 0 to Time", x)
		}
	}
}

// xids checks that each session reports each XID once, and that all sessions report the same IDs. A new session may
// report earlier XIDs. If another session is opened or closed, a session must not repeat XIDs.
func (f Fixture) xids(t *testing.T) {
	src := f.New(t)
	first := f.openAt(t, src)
	gpuRow := slices.IndexFunc(first.Topology().Devices,
		func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindGPU })
	var b gpu.Batch
	// wait reads until the session has returned at least that many XIDs, and then once more
	wait := func(s collector.Session, atLeast int) (seen []gpu.XID) {
		t.Helper()
		end := time.Now().Add(deadline)
		for more := 2; more > 0; {
			f.read(t, s, &b)
			f.check(t, s.Topology(), gpu.ReadRequest{}, &b)
			for _, x := range b.XIDs {
				if x.Row == gpuRow {
					seen = append(seen, gpu.XID{Code: x.Code, ID: x.ID})
				}
			}
			switch {
			case len(seen) >= atLeast:
				more--
			case time.Now().After(end):
				t.Fatalf("XIDs = %+v, want %d", seen, atLeast)
			}
			f.Settle(t)
		}
		return seen
	}
	codes := func(list []gpu.XID) (codes []int64) {
		for _, x := range list {
			codes = append(codes, x.Code)
		}
		return codes
	}
	wait(first, 0)
	f.XID(t)
	if got := codes(wait(first, 1)); !slices.Equal(got, []int64{62}) {
		t.Fatalf("XIDs = %v, want 62 once", got)
	}
	second := f.openAt(t, src)
	again := slices.DeleteFunc(wait(second, 0), func(x gpu.XID) bool { return x.Code == 62 })
	if len(again) > 0 {
		t.Errorf("new session reported %+v besides XID 62, want none", again)
	}
	f.XID(t)
	before, after := wait(first, 2), wait(second, 2)
	if !slices.Equal(codes(before), []int64{45, 45}) || !reflect.DeepEqual(before, after) {
		t.Errorf("one session reported %+v, the other %+v; want XID 45 twice with equal IDs", before, after)
	}
	if err := first.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if got := wait(second, 0); len(got) > 0 {
		t.Errorf("after the first session was closed, the second reported %+v, want none", got)
	}
}

func (f Fixture) canceled(t *testing.T) {
	s := f.open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	done := make(chan error, 1)
	var b gpu.Batch
	go func() { done <- s.Read(ctx, gpu.ReadRequest{}, &b) }()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, context.Canceled) && gpu.Reason(err) == "error" {
			t.Errorf("Read with a canceled context: error %v, want nil, context.Canceled or a typed error", err)
		}
	case <-time.After(deadline):
		t.Fatal("Read with a canceled context did not return before the deadline")
	}
	f.read(t, s, &b) // the session must stay usable
}

func (f Fixture) closing(t *testing.T) {
	src := f.New(t)
	s := f.openAt(t, src)
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	var b gpu.Batch
	if err := s.Read(context.Background(), gpu.ReadRequest{}, &b); err == nil {
		t.Error("Read after Close succeeded, want an error")
	}
	if f.OpenHandles != nil {
		if n := f.OpenHandles(t); n != 0 {
			t.Errorf("%d handles open after Close, want 0", n)
		}
	}
	again := f.openAt(t, src)
	if got, want := len(again.Topology().Devices), len(s.Topology().Devices); got != want {
		t.Errorf("second session has %d devices, want %d as in the first", got, want)
	}
	f.read(t, again, &b)
}

func (f Fixture) losing(t *testing.T) {
	s := f.open(t)
	top := s.Topology()
	lost := slices.IndexFunc(top.Devices, func(d gpu.Device) bool { return d.Entity.Kind == gpu.KindGPU })
	if lost < 0 {
		t.Fatal("fixture has no GPU to lose")
	}
	others := func(b *gpu.Batch) map[[2]int]bool {
		cells := map[[2]int]bool{}
		for _, x := range b.Samples {
			if x.Row != lost && top.ParentRow(x.Row) != lost {
				cells[[2]int{x.Row, x.Field}] = true
			}
		}
		return cells
	}
	var b gpu.Batch
	f.read(t, s, &b)
	f.Settle(t)
	f.read(t, s, &b)
	before := others(&b)
	f.Lose(t, lost)
	f.Settle(t)
	f.read(t, s, &b)
	f.check(t, top, gpu.ReadRequest{}, &b)
	for _, x := range b.Samples {
		if x.Row == lost || top.ParentRow(x.Row) == lost {
			t.Errorf("%s of %v has a sample after its GPU was lost, want none", f.Plan.Fields[x.Field].Name,
				top.Devices[x.Row].Entity)
		}
	}
	if !slices.ContainsFunc(b.Faults, func(x gpu.Fault) bool {
		return x.Row == lost && x.Part == gpu.PartEntity && errors.Is(x.Err, gpu.ErrLost)
	}) {
		t.Errorf("faults = %v, want gpu.ErrLost for the lost GPU", b.Faults)
	}
	after := others(&b)
	for cell := range before {
		if !after[cell] {
			t.Errorf("%s of %v is missing after another GPU was lost, want its sample", f.Plan.Fields[cell[1]].Name,
				top.Devices[cell[0]].Entity)
		}
	}
}

func (f Fixture) changing(t *testing.T) {
	s := f.open(t)
	f.ends(t, s, f.Change, gpu.ErrTopology)
}

func (f Fixture) killing(t *testing.T) {
	s := f.open(t)
	f.ends(t, s, f.Kill, gpu.ErrLost)
}

// ends calls happen, which must end the session. It reads until the session ends, and checks the error and the open
// handles.
func (f Fixture) ends(t *testing.T, s collector.Session, happen func(*testing.T), want error) {
	t.Helper()
	var b gpu.Batch
	f.read(t, s, &b)
	select {
	case <-s.Done():
		t.Fatalf("Done is closed although the session is healthy: %v", s.Err())
	default:
	}
	if err := s.Err(); err != nil {
		t.Fatalf("Err of a healthy session = %v, want nil", err)
	}
	happen(t)
	end := time.Now().Add(deadline)
	for {
		f.Settle(t)
		b.Reset()
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		err := s.Read(ctx, gpu.ReadRequest{}, &b)
		cancel()
		select {
		case <-s.Done():
			if !errors.Is(s.Err(), want) {
				t.Errorf("Err() = %v, want %v", s.Err(), want)
			}
			if err := s.Close(); err != nil {
				t.Errorf("Close after the session ended: %v", err)
			}
			if f.OpenHandles != nil {
				if n := f.OpenHandles(t); n != 0 {
					t.Errorf("%d handles open after the session ended, want 0", n)
				}
			}
			return
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("session did not end; last Read: %v", err)
		}
	}
}
