package verdict

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

var begin = time.Unix(1_800_000_000, 0)

// rig is a Judge for a node with two GPUs. The second GPU has a GPU instance.
type rig struct {
	*testing.T
	now      time.Time
	step     time.Duration // offset of the wall clock
	plan     *gpu.Plan
	judge    Judge
	builder  *snapshot.Builder
	values   map[gpu.FieldID]float64 // values of GPU 0
	families []gpu.Family
	down     error   // values of GPU 0
	number   float64 // value of the signal
}

// made is a Deriver of the families that other derivers produce.
type made struct{ r *rig }

func (made) Bind(*gpu.Topology, *gpu.Plan) {}

func (m made) Derive(list []gpu.Family, _ *snapshot.Cycle) []gpu.Family {
	return append(list, m.r.families...)
}

func (made) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth { return list }

func newRig(t *testing.T) *rig {
	r := &rig{T: t, now: begin, values: map[gpu.FieldID]float64{}, plan: &gpu.Plan{
		Interval: time.Second, Devices: gpu.Selector{Flex: true}, Derived: []gpu.Derived{{Name: catalog.GPUVerdict}},
	}}
	for _, name := range Families() {
		r.plan.Derived = append(r.plan.Derived, gpu.Derived{Name: name})
	}
	for _, id := range append(catalog.FamilyNamed(catalog.GPUVerdict).Values, catalog.GPUTemp) {
		e, _ := catalog.ByID(id)
		r.plan.Fields = append(r.plan.Fields, e.Field())
	}
	r.open()
	return r
}

// open starts a session.
func (r *rig) open() {
	top := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1, UUID: "GPU-1"},
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7, Parent: 1, ParentKind: gpu.KindGPU}, GPU: 1, UUID: "MIG-7"},
	})
	r.builder = snapshot.NewBuilder(top, r.plan, []snapshot.Deriver{made{r}, &r.judge})
}

// at reads at a time since the start. It returns the verdict and reason of both GPUs.
func (r *rig) at(d time.Duration) (said [2]string) {
	r.Helper()
	r.now = begin.Add(d + r.step)
	batch := &gpu.Batch{}
	for i, f := range r.plan.Fields {
		if f.ID == catalog.GPUTemp {
			batch.Add(0, i, gpu.Int(40), r.now)
			batch.Add(1, i, gpu.Int(40), r.now)
		} else if v, ok := r.values[f.ID]; ok {
			batch.Add(0, i, gpu.Float(v), r.now)
		}
	}
	if r.down != nil {
		batch.FailPart(0, gpu.PartEntity, r.down)
	}
	s := r.builder.Build(snapshot.Reading{Batch: batch, Begin: r.now, Now: r.now, Elapsed: d})
	for _, f := range s.Families {
		for _, x := range f.Series {
			if f.Name != catalog.GPUVerdict {
				continue
			}
			if v, _ := x.Value.Int64(); v != 1 {
				r.Errorf("value of the verdict = %v, want 1", x.Value)
			}
			said[x.Row] += x.Labels[0].Value + " " + x.Labels[1].Value
		}
	}
	return said
}

// signals reads once per minute with the signal of a rule on or off, and returns the last verdict.
func (r *rig) signals(s *Signal, on bool, from, to int) (said string) {
	r.Helper()
	for minute := from; minute <= to; minute++ {
		at := time.Duration(minute) * time.Minute
		switch {
		case s.Test == Lost:
			if r.down = nil; on {
				r.down = gpu.ErrLost
			}
		case s.Test == Recent && on:
			r.number = float64(begin.Add(at).Unix())
		case s.Test == Grows && on:
			r.number++
		case s.Test == Within && (s.Least > 0) == on:
			r.number = max(s.Least, 1)
		case s.Test == Within:
			r.number = 0
		}
		if s.Count != 0 {
			r.values[s.Count] = 1
		}
		for i, id := range s.Fields {
			r.values[id] = map[bool]float64{true: r.number}[i == 0]
		}
		if s.Family != "" {
			x := gpu.Series{Row: 0, Value: gpu.Float(r.number)}
			other := gpu.Series{Row: gpu.AllRows, Value: gpu.Int(77)}
			if s.Label != "" {
				selected, another := s.Values[len(s.Values)-1], "another"
				if s.Except {
					selected, another = another, selected
				}
				x.Labels = []gpu.Label{{Name: s.Label, Value: selected}}
				other.Row, other.Labels = 0, []gpu.Label{{Name: s.Label, Value: another}}
			}
			r.families = []gpu.Family{{Name: s.Family, Series: []gpu.Series{other, x}}}
		}
		both := r.at(at)
		if said = both[0]; both[1] != "ok " {
			r.Errorf("verdict on GPU 1 = %q, want ok", both[1])
		}
	}
	return said
}

// Each rule becomes active after its signal has held for the rule's time, and stays active for the rule's memory.
func TestRules(t *testing.T) {
	for i := range table {
		x := &table[i]
		if x.Signal.Test == Lost {
			continue // covered by TestStates
		}
		t.Run(x.Reason, func(t *testing.T) {
			r := newRig(t)
			after, memory, bad := int(x.After/time.Minute), int(x.Memory/time.Minute), x.Verdict+" "+x.Reason
			expect := func(when, got, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s: verdict = %q, want %q", when, got, want)
				}
			}
			expect("before", r.signals(&x.Signal, false, 0, 0), "ok ")
			end := 0
			if after > 0 {
				expect("too short", r.signals(&x.Signal, true, 1, after), "ok ")
				expect("interrupted", r.signals(&x.Signal, false, after+1, after+1), "ok ")
				expect("again too short", r.signals(&x.Signal, true, after+2, 2*after+1), "ok ")
				end = 2*after + 1
			}
			end++
			expect("at last", r.signals(&x.Signal, true, end, end), bad)
			r.open() // a reload, or a new topology
			expect("in a new session", r.signals(&x.Signal, true, end, end), bad)
			if memory > 0 {
				expect("remembered", r.signals(&x.Signal, false, end+memory-1, end+memory-1), bad)
			}
			expect("past", r.signals(&x.Signal, false, end+max(memory, 1), end+max(memory, 1)), "ok ")
		})
	}
}

// The most severe rule sets the verdict, whatever the order of the signals.
func TestMostSevereRule(t *testing.T) {
	r := newRig(t)
	r.at(0)
	r.values[catalog.RowRemapPending], r.values[catalog.GetGPURecoveryAction], r.values[catalog.RowRemapFailure] = 1, 1, 1
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{time.Minute, "ok "}, {2 * time.Minute, "replace row_remap_failed"}, {6 * time.Minute, "replace row_remap_failed"}} {
		if got := r.at(step.at)[0]; got != step.want {
			t.Errorf("after %v: verdict = %q, want %q", step.at, got, step.want)
		}
	}
	r.values[catalog.RowRemapFailure] = 0
	if got := r.at(7 * time.Minute)[0]; got != "drain recovery_action" {
		t.Errorf("next verdict = %q, want drain recovery_action", got)
	}
	r.values[catalog.GetGPURecoveryAction] = 0
	if got := r.at(16 * time.Minute)[0]; got != "watch row_remap_pending" {
		t.Errorf("last verdict = %q, want watch row_remap_pending", got)
	}
}

// A signal of an instance affects the verdict on its GPU.
func TestInstance(t *testing.T) {
	r := newRig(t)
	r.families = []gpu.Family{{Name: catalog.XIDLastSeen, Series: []gpu.Series{
		{Row: 2, Labels: []gpu.Label{{Name: "xid", Value: "95"}}, Value: gpu.Float(float64(begin.Unix()))},
	}}}
	if got := r.at(time.Second)[1]; got != "drain xid_hardware" {
		t.Errorf("verdict = %q, want drain xid_hardware", got)
	}
}

// Every field of the table is read for the verdict, and every reason is unique.
func TestTable(t *testing.T) {
	read, reasons := catalog.FamilyNamed(catalog.GPUVerdict).Values, map[string]bool{}
	for i := range table {
		x := &table[i]
		if reasons[x.Reason] {
			t.Errorf("reason %s is used twice", x.Reason)
		}
		reasons[x.Reason] = true
		for _, id := range append(slices.Clone(x.Signal.Fields), x.Signal.Count) {
			if id != 0 && !slices.Contains(read, id) {
				t.Errorf("%s: field %d is not read for the verdict", x.Reason, id)
			}
		}
		if x.Signal.Family != "" && catalog.FamilyNamed(x.Signal.Family) == nil {
			t.Errorf("%s: family %s does not exist", x.Reason, x.Signal.Family)
		}
	}
}

// A critical XID drains, a warning leads to watch, and other XIDs have no rule. XID 154 is left to the recovery action.
func TestXIDs(t *testing.T) {
	for code := int64(1); code < 1000; code++ {
		r, x := newRig(t), catalog.XIDOf(code)
		r.families = []gpu.Family{{Name: catalog.XIDLastSeen, Series: []gpu.Series{
			{Row: 0, Labels: []gpu.Label{{Name: "xid", Value: strconv.FormatInt(code, 10)}}, Value: gpu.Float(float64(begin.Unix()))},
		}}}
		want := map[catalog.AlertSeverity]string{catalog.AlertCritical: Drain, catalog.AlertWarning: Watch}[x.Class.Severity()]
		if want == "" || x.Class == catalog.XIDAction {
			want = OK
		}
		for at, want := range map[time.Duration]string{0: want, x.Class.Memory() - time.Second: want, x.Class.Memory(): OK} {
			if got, _, _ := strings.Cut(r.at(max(at, 0))[0], " "); at >= 0 && got != want {
				t.Errorf("XID %d (%v) after %v: verdict = %q, want %q", code, x.Class, at, got, want)
			}
		}
	}
}

// If NVIDIA's catalog asks for a reset or restart but the XID does not drain, its row has a reason.
func TestActionsThatDoNotDrain(t *testing.T) {
	for code := range int64(1000) {
		x := catalog.XIDOf(code)
		grave := slices.Contains([]string{"reset the GPU", "restart the node"}, x.First)
		if grave != (OfXID(x.Class) == Drain) && x.Why == "" && x.First != "check the power cables" {
			t.Errorf("XID %d (first action %q) leads to %s, want a reason in its row why it does not follow from the action", code, x.First, OfXID(x.Class))
		}
	}
}
