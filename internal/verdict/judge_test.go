package verdict

import (
	_ "embed"
	"fmt"
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

// rig is a Judge for a node with two GPUs. The second GPU has a GPU instance. As a Deriver, it adds the families that
// other derivers produce.
type rig struct {
	*testing.T
	step     time.Duration // offset of the wall clock
	plan     *gpu.Plan
	judge    Judge
	builder  *snapshot.Builder
	values   map[gpu.FieldID]float64 // values of GPU 0
	families []gpu.Family
	down     error   // why GPU 0 is not read
	number   float64 // value of the signal
}

func (*rig) Bind(*gpu.Topology, *gpu.Plan) {}

func (r *rig) Derive(list []gpu.Family, _ *snapshot.Cycle) []gpu.Family {
	return append(list, r.families...)
}

func (*rig) Unavailable(list []gpu.FieldHealth, _ *snapshot.Cycle) []gpu.FieldHealth { return list }

func newRig(t *testing.T) *rig {
	r := &rig{T: t, values: map[gpu.FieldID]float64{}, plan: &gpu.Plan{
		Interval: time.Second, Devices: gpu.Selector{Flex: true}, Derived: []gpu.Derived{{Name: catalog.GPUVerdict}},
	}}
	for _, name := range Families() {
		r.plan.Derived = append(r.plan.Derived, gpu.Derived{Name: name})
	}
	// The plan also has an NVLink field that no rule uses. Its ID is that of a GPU field.
	r.plan.Fields = []gpu.Field{
		{ID: catalog.NVLinkCountLinkRecoveryFailedEvents, Levels: gpu.KindsOf(gpu.KindNVLink)},
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
		{Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7, Parent: 1, ParentKind: gpu.KindGPU}, UUID: "MIG-7"},
	})
	r.builder = snapshot.NewBuilder(top, r.plan, []snapshot.Deriver{r, &r.judge})
}

// at reads at a time since the start. It returns the verdict and reason of both GPUs.
func (r *rig) at(d time.Duration) (said [2]string) {
	r.Helper()
	now := begin.Add(d + r.step)
	batch := &gpu.Batch{}
	for i, f := range r.plan.Fields {
		if f.ID == catalog.GPUTemp {
			batch.Add(0, i, gpu.Int(40), now)
			batch.Add(1, i, gpu.Int(40), now)
		} else if v, ok := r.values[f.ID]; ok {
			batch.Add(0, i, gpu.Float(v), now)
		}
	}
	if r.down != nil {
		batch.FailPart(0, gpu.PartEntity, r.down)
	}
	s := r.builder.Build(snapshot.Reading{Batch: batch, Begin: now, Now: now, Elapsed: d})
	for _, x := range s.Families[len(s.Families)-1].Series {
		if v, _ := x.Value.Int64(); v != 1 {
			r.Errorf("value of the verdict = %v, want 1", x.Value)
		}
		said[x.Row] = strings.TrimSpace(said[x.Row] + x.Labels[0].Value + " " + x.Labels[1].Value)
	}
	return said
}

// signals reads once per minute with the signal of a rule on or off, and checks the last verdict.
func (r *rig) signals(when string, s *Signal, on bool, from, to int, want string) {
	r.Helper()
	for minute := from; minute <= to; minute++ {
		at := time.Duration(minute) * time.Minute
		switch {
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
			r.families = r.seriesOf(s)
		}
		if got := r.at(at); minute == to && got != [2]string{want, "ok"} {
			r.Errorf("%s: verdicts = %q, want %q and ok", when, got, want)
		}
	}
}

// seriesOf returns the family of a signal: a series that it selects, and one that it does not.
func (r *rig) seriesOf(s *Signal) []gpu.Family {
	x := gpu.Series{Value: gpu.Float(r.number)}
	other := gpu.Series{Value: gpu.Int(77), Labels: gpu.Labels(catalog.TreatmentLabel, "informational")}
	if s.Label != "" {
		selected, another := s.Values[len(s.Values)-1], "another"
		if s.Except {
			selected, another = another, selected
		}
		x.Labels, other.Labels = gpu.Labels(s.Label, selected), gpu.Labels(s.Label, another)
	}
	ofNode := gpu.Series{Row: gpu.AllRows, Value: other.Value, Labels: x.Labels}
	return []gpu.Family{{Name: s.Family, Series: []gpu.Series{ofNode, other, x}}}
}

// Each rule becomes active after its signal has held for the rule's time, and stays active for the rule's memory.
func TestRules(t *testing.T) {
	for i := range table {
		x := &table[i]
		if x.Signal.Test == Lost {
			continue // covered by TestStates
		}
		t.Run(x.Reason, func(t *testing.T) {
			r, s := newRig(t), &x.Signal
			after, memory, bad := int(x.After/time.Minute), int(x.Memory/time.Minute), x.Verdict+" "+x.Reason
			r.signals("before", s, false, 0, 0, "ok")
			end := 1
			if after > 0 {
				r.signals("too short", s, true, 1, after, "ok")
				r.signals("interrupted", s, false, after+1, after+1, "ok")
				r.signals("again too short", s, true, after+2, 2*after+1, "ok")
				end = 2*after + 2
			}
			r.signals("at last", s, true, end, end, bad)
			r.open() // a reload, or a new topology
			r.signals("in a new session", s, true, end, end, bad)
			if memory > 0 {
				r.signals("remembered", s, false, end+memory-1, end+memory-1, bad)
			}
			r.signals("past", s, false, end+max(memory, 1), end+max(memory, 1), "ok")
		})
	}
}

//go:embed testdata/states.txt
var states string

// TestStates runs every script of the file.
func TestStates(t *testing.T) {
	for line := range strings.Lines(states) {
		name, script, found := strings.Cut(strings.TrimSpace(line), ": ")
		if !found || line[0] == '#' {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r, minute := newRig(t), 0
			for step := range strings.SplitSeq(script, "; ") {
				words := strings.Fields(step)
				at, err := strconv.Atoi(words[0])
				if err != nil {
					t.Fatal(err)
				}
				for ; minute < at; minute++ {
					r.at(time.Duration(minute) * time.Minute)
				}
				n := r.change(words[1:], time.Duration(at)*time.Minute)
				want := strings.Join(words[1+n:], " ")
				if got := r.at(time.Duration(at) * time.Minute)[0]; got != want {
					t.Errorf("minute %d, %v: verdict = %q, want %q", at, words[1:1+n], got, want)
				}
				minute = at + 1
			}
		})
	}
}

// change applies the change at the start of words, and returns the number of its words.
func (r *rig) change(words []string, at time.Duration) int {
	r.Helper()
	switch words[0] {
	case "-":
	case "lost", "permission", "timeout", "back":
		errs := map[string]error{"lost": gpu.ErrLost, "permission": gpu.ErrPermission, "timeout": gpu.ErrTimeout}
		r.down = errs[words[0]]
	case "engine":
		r.open()
	case "exporter":
		r.judge = Judge{}
		r.open()
	case "clock":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			r.Fatal(err)
		}
		r.step += d
		return 2
	case "xid":
		r.setXID(0, words[1], begin.Add(at+r.step))
		return 2
	case "finding":
		r.families = nil
		if n, err := strconv.ParseFloat(words[1], 64); err == nil {
			r.families = []gpu.Family{{Name: catalog.GPUHealthStatus, Series: []gpu.Series{{Value: gpu.Float(n)}}}}
		}
		return 2
	case "field":
		name, value, _ := strings.Cut(words[1], "=")
		field, ok := catalog.Lookup("DCGM_FI_DEV_" + name)
		if !ok {
			r.Fatalf("unknown field %s", name)
		}
		delete(r.values, field.Entry.ID)
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			r.values[field.Entry.ID] = n
		}
		return 2
	default:
		r.Fatalf("unknown change %q", words)
	}
	return 1
}

// setXID sets when an XID was last seen.
func (r *rig) setXID(row int, xid string, at time.Time) {
	if r.families == nil {
		r.families = []gpu.Family{{Name: catalog.XIDLastSeen}}
	}
	f := &r.families[0]
	f.Series = slices.DeleteFunc(f.Series, func(x gpu.Series) bool { return x.Labels[0].Value == xid })
	seen := gpu.Series{Row: row, Labels: gpu.Labels("xid", xid), Value: gpu.Float(float64(at.Unix()))}
	f.Series = append(f.Series, seen)
}

// A signal of an instance affects the verdict on its GPU.
func TestInstance(t *testing.T) {
	r := newRig(t)
	r.setXID(2, "95", begin)
	r.families[0].Series = append(r.families[0].Series, // an older one, which differs in another label
		gpu.Series{Row: 2, Labels: gpu.Labels("xid", "95", "link", "1"), Value: gpu.Int(1)})
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
// If NVIDIA's catalog asks for a reset or restart but the XID does not drain, its row has a reason.
func TestXIDs(t *testing.T) {
	for code := int64(1); code < 1000; code++ {
		r, x := newRig(t), catalog.XIDOf(code)
		r.setXID(0, strconv.FormatInt(code, 10), begin)
		want := OK
		if severity := x.Class.Severity; x.Class != catalog.XIDAction && severity == catalog.AlertCritical {
			want = Drain
		} else if x.Class != catalog.XIDAction && severity == catalog.AlertWarning {
			want = Watch
		}
		memory := x.Class.Memory
		for at, want := range map[time.Duration]string{0: want, memory - time.Second: want, memory: OK} {
			if got, _, _ := strings.Cut(r.at(max(at, 0))[0], " "); at >= 0 && got != want {
				t.Errorf("XID %d (%v) after %v: verdict = %q, want %q", code, x.Class, at, got, want)
			}
		}
		grave := slices.Contains([]string{"reset the GPU", "restart the node"}, x.First)
		if grave != (OfXID(x.Class) == Drain) && x.Why == "" && x.First != "check the power cables" {
			t.Errorf("XID %d (first action %q) leads to %s, want a reason in its row", code, x.First, OfXID(x.Class))
		}
	}
}

// The verdict is unknown without its counters, unless a GPU must be drained or replaced.
func TestVerdictWithoutCounters(t *testing.T) {
	for i, name := range Families() {
		r := newRig(t)
		r.plan.Derived[1+i].Name = "another"
		r.open()
		if got := r.at(0); got != [2]string{"unknown no_counters", "unknown no_counters"} {
			t.Errorf("without %s: verdicts = %q, want unknown no_counters", name, got)
		}
		r.values[catalog.RowRemapFailure] = 1
		r.at(time.Minute)
		if got := r.at(2 * time.Minute)[0]; got != "replace row_remap_failed" {
			t.Errorf("without %s, with a failed row remap: verdict = %q, want replace row_remap_failed", name, got)
		}
	}
}

// The state of a GPU that is missing for a long time is deleted, and the number of GPUs is limited.
func TestForgetting(t *testing.T) {
	r := newRig(t)
	r.at(0)
	r.judge.past["GPU-gone"] = &past{}
	r.open()
	r.at(forgetAfter)
	if r.judge.past["GPU-gone"] == nil {
		t.Error("state of a missing GPU was deleted after exactly forgetAfter, want it kept")
	}
	r.at(forgetAfter + time.Second)
	if len(r.judge.past) != 2 {
		t.Errorf("GPUs with state = %d, want 2", len(r.judge.past))
	}
	for i := range 2 * maxGPUs {
		one := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: fmt.Sprint("GPU-", i)}
		r.judge.Bind(gpu.NewTopology([]gpu.Device{one}), r.plan)
	}
	if n := len(r.judge.past); n != maxGPUs {
		t.Errorf("GPUs with state = %d, want %d", n, maxGPUs)
	}
}
