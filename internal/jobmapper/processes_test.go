package jobmapper

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// A cycle is what one collection finds: the processes per row, and the rows that fail.
type cycle struct {
	processes map[int][]uint32
	faults    []gpu.Fault
}

// A shift is Processes under a Mapper without files, over a topology, as the Loop calls them.
type shift struct {
	*Processes
	mapper  *Mapper
	builder *snapshot.Builder
	t       *gpu.Topology
	failing map[uint32]error
}

// divided is node whose first instance is divided: the driver lists the processes of it as a whole.
func divided() *gpu.Topology {
	devices := node().Devices
	part := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindComputeInstance, ParentKind: gpu.KindGPU, Parent: 2, ID: 30}, GPU: 2, InstanceID: 1}
	return gpu.NewTopology(append(devices[:5:5], part, devices[5]))
}

// newShift returns one whose processes have the jobs of their ids' hundreds; those below 100 have
// none.
func newShift(t *gpu.Topology) *shift {
	s := &shift{t: t, failing: map[uint32]error{}}
	s.Processes = NewProcesses(func(pid uint32) (string, error) {
		if err := s.failing[pid]; err != nil || pid < 100 {
			return "", err
		}
		return fmt.Sprint(pid / 100), nil
	})
	s.mapper = New(Options{Processes: s.Processes, Metrics: NewMetrics(prometheus.NewRegistry())})
	s.builder = snapshot.NewBuilder(t, &gpu.Plan{Interval: time.Second}, []snapshot.Deriver{s.Processes})
	return s
}

// see is a collection, of a kind, and what is said of it at the next.
func (s *shift) see(t *testing.T, kind snapshot.Kind, c cycle) *gpu.Owners {
	t.Helper()
	b := gpu.Batch{Faults: c.faults}
	s.builder.Prepare(&b)
	for row, list := range c.processes {
		for _, pid := range list {
			b.Processes = append(b.Processes, gpu.Process{Row: row, PID: pid})
		}
	}
	now := time.Now()
	s.builder.Build(snapshot.Reading{Kind: kind, Batch: &b, Begin: now, Now: now})
	o, err := s.mapper.Attribute(t.Context(), s.t)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

type rows = map[int][]uint32

func TestProcesses(t *testing.T) {
	type m = map[string]string
	failed := fmt.Errorf("proc: %w", gpu.ErrPermission)
	tests := map[string]struct {
		cycle
		failing map[uint32]error
		want    m // users
		unknown m // reason → rows
	}{
		"nothing":                 {},
		"a job":                   {cycle: cycle{processes: rows{0: {700, 701, 5}, 1: {800}}}, want: m{"0": "7", "1": "8"}},
		"two jobs, each once":     {cycle: cycle{processes: rows{0: {800, 700, 801}}}, want: m{"0": "7 8"}},
		"instances":               {cycle: cycle{processes: rows{3: {700}, 4: {800}}}, want: m{"2.1": "7", "2.5": "8"}},
		"of the partitioned GPU":  {cycle: cycle{processes: rows{2: {700}}}},
		"of a compute instance":   {cycle: cycle{processes: rows{5: {700}, 3: {700}}}, want: m{"2.1": "7"}},
		"of what is no GPU":       {cycle: cycle{processes: rows{6: {700}, -1: {700}, 99: {700}}}},
		"one process not known":   {cycle: cycle{processes: rows{0: {700, 701}, 1: {800}}}, failing: map[uint32]error{701: failed}, want: m{"1": "8"}, unknown: m{"permission": "1"}},
		"the first not known":     {cycle: cycle{processes: rows{0: {701, 700}}}, failing: map[uint32]error{701: failed}, unknown: m{"permission": "1"}},
		"a row that fails":        {cycle: cycle{processes: rows{0: {700}, 1: {800}}, faults: []gpu.Fault{{Row: 0, Field: gpu.FieldProcesses, Err: gpu.ErrTimeout}}}, want: m{"1": "8"}, unknown: m{"timeout": "1"}},
		"all rows fail":           {cycle: cycle{processes: rows{0: {700}}, faults: []gpu.Fault{{Row: gpu.AllRows, Field: gpu.FieldProcesses, Err: gpu.ErrNotSupported}}}, unknown: m{"not_supported": "4"}},
		"a GPU that is lost":      {cycle: cycle{processes: rows{0: {700}}, faults: []gpu.Fault{{Row: 0, Field: gpu.AllFields, Err: gpu.ErrLost}}}},
		"only how busy they are":  {cycle: cycle{processes: rows{0: {700}}, faults: []gpu.Fault{{Row: 0, Field: gpu.FieldProcessBusy, Err: gpu.ErrNotSupported}}}, want: m{"0": "7"}},
		"a field of another kind": {cycle: cycle{processes: rows{0: {700}}, faults: []gpu.Fault{{Row: 0, Field: gpu.FieldPeerStates, Err: gpu.ErrTimeout}}}, want: m{"0": "7"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newShift(divided())
			s.see(t, snapshot.Served, cycle{processes: rows{0: {900}, 1: {900}, 3: {900}}}) // of the past
			s.failing = tt.failing
			got := s.see(t, snapshot.Served, tt.cycle)
			if tt.want == nil {
				tt.want = m{}
			}
			if diff := cmp.Diff(tt.want, users(got)); diff != "" {
				t.Errorf("users: %s", diff)
			}
			for _, reason := range gpu.Reasons() {
				want := 0
				_, _ = fmt.Sscan(tt.unknown[reason], &want)
				if n := testutil.ToFloat64(s.mapper.metrics.unknownJobs.WithLabelValues(reason)); int(n) != want {
					t.Errorf("%v rows are unknown for %s, want %d", n, reason, want)
				}
			}
			s.failing = nil
			s.see(t, snapshot.Served, cycle{})
			for reason := range tt.unknown {
				if n := testutil.ToFloat64(s.mapper.metrics.unknownJobs.WithLabelValues(reason)); n != 0 {
					t.Errorf("%v rows are still unknown for %s", n, reason)
				}
			}
		})
	}
}

// TestProcessesSameUntilTheyChange holds that the owners are one and the same as long as the jobs
// are, whichever processes they have; that an answer never changes; and that a reading that is not
// served and another topology say nothing.
func TestProcessesSameUntilTheyChange(t *testing.T) {
	s := newShift(node())
	first := s.see(t, snapshot.Served, cycle{processes: rows{0: {700}, 1: {800, 900}}})
	said := fmt.Sprint(users(first), labels(first))
	if got := s.see(t, snapshot.Served, cycle{processes: rows{1: {901, 800, 802}, 0: {701, 1}}}); got != first {
		t.Error("new owners for the same jobs")
	}
	for _, kind := range []snapshot.Kind{snapshot.Final, snapshot.Overlapping} {
		if got := s.see(t, kind, cycle{}); got != first {
			t.Errorf("new owners by a reading of kind %d", kind)
		}
	}
	second := s.see(t, snapshot.Served, cycle{processes: rows{0: {800}}})
	if second == first || second.Generation == first.Generation {
		t.Error("the old owners for another job")
	}
	if now := fmt.Sprint(users(first), labels(first)); now != said {
		t.Errorf("the first answer was %s and is %s", said, now)
	}
	other, err := s.mapper.Attribute(t.Context(), node())
	if err != nil || len(users(other)) != 0 {
		t.Errorf("another topology: %v, %v", users(other), err)
	}
}

// TestPrepareRequestsBesideOthers holds that what another Deriver requests is requested too, and
// its own slice is left alone.
func TestPrepareRequestsBesideOthers(t *testing.T) {
	s := newShift(node())
	theirs := []bool{false, true, true, false}
	b := gpu.Batch{RequestProcesses: theirs}
	s.Prepare(&b)
	if diff := cmp.Diff([]bool{true, true, true, true, true, false}, b.RequestProcesses); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]bool{false, true, true, false}, theirs); diff != "" {
		t.Errorf("the other's slice: %s", diff)
	}
	s.builder.Prepare(&b)
	if diff := cmp.Diff([]bool{true, true, false, true, true, false}, b.RequestProcesses); diff != "" {
		t.Errorf("alone: %s", diff)
	}
}
