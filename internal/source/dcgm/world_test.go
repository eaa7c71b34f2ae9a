//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// deadline bounds every wait. It is generous, because no test measures speed.
const deadline = 20 * time.Second

// versions are the first lines of every script.
var versions = []string{"library 4.6.0", "engine 4.6.0", "driver 580.95.05", "nvml 13.580.95.05"}

// gpuLine returns the script line of a GPU. Index and minor number differ from the ID, as they can on real machines.
func gpuLine(id int, more string) string {
	return fmt.Sprintf(`gpu %d uuid=GPU-%d name="NVIDIA H100 80GB HBM3" bus=00000000:%02X:00.0 index=%d minor=%d %s`,
		id, id, 0x1b+0x11*id, id+1, id+2, more)
}

// world returns a script of two GPUs. GPU 1 is partitioned. DCGM's instance IDs differ from NVML's.
func world(more ...string) []string {
	return slices.Concat(versions, []string{
		gpuLine(0, "prof=1001-1012"),
		gpuLine(1, "prof=1001-1012"),
		"instance 7 gpu=1 nvml=1 profile=3g.40gb uuid=MIG-aaaa",
		"instance 8 gpu=1 nvml=2 profile=4g.40gb",
		"compute 7 instance=7 nvml=0",
		"value gpu:* 150 int 45",
		"value gpu:* 155 double 71.5",
		"value gpu:* 156 int 1000 10",
		"value instance:* 155 double 30.25",
		"value any:* 1001-1012 double 0.5",
	}, more)
}

var (
	onGPU    = gpu.KindsOf(gpu.KindGPU)
	onBoth   = gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance)
	interval = 50 * time.Millisecond
)

func field(id gpu.FieldID, levels gpu.Kinds) gpu.Field {
	return gpu.Field{ID: id, Name: fmt.Sprintf("FIELD_%d", id), Levels: levels}
}

func profiling(id gpu.FieldID) gpu.Field {
	f := field(id, onBoth)
	f.Profiling = true
	return f
}

func events(id gpu.FieldID) gpu.Field {
	f := field(id, onGPU)
	f.AllSamples = id != 230
	return f
}

func text(id gpu.FieldID) gpu.Field {
	f := field(id, onBoth)
	f.Text = true
	return f
}

func planOf(fields ...gpu.Field) *gpu.Plan {
	return &gpu.Plan{Fields: fields, Interval: interval, Devices: gpu.Selector{Flex: true}}
}

// xidPlan requests temperatures and XIDs.
func xidPlan() *gpu.Plan { return planOf(field(150, onGPU), events(230)) }

// A rig is an open session of an engine that runs a script.
type rig struct {
	*dcgm.Session
	e   *fakedcgm.Engine
	src *dcgm.Source
	t   testing.TB
}

// start opens a session of an engine that runs the script. At the end of the test, nothing may be left open at the
// engine.
func start(t testing.TB, plan *gpu.Plan, o dcgm.Options, script ...string) *rig {
	t.Helper()
	r := &rig{nil, fakedcgm.New(t, script...), dcgm.New(o), t}
	t.Cleanup(r.checkClosed)
	return r.again(plan)
}

// again opens another session, and closes it at the end of the test if it is still open.
func (r *rig) again(plan *gpu.Plan) *rig {
	r.t.Helper()
	next := *r
	var err error
	if next.Session, err = r.src.Open(r.t.Context(), plan); err != nil {
		r.t.Fatalf("Open: %v", err)
	}
	r.t.Cleanup(next.close)
	return &next
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Errorf("Close: %v", err)
	}
}

func (r *rig) checkClosed() {
	r.t.Helper()
	if open := r.e.Open(); len(open) > 0 {
		r.t.Errorf("handles left open at the engine = %v, want none", open)
	}
}

func (r *rig) try() (*gpu.Batch, error) {
	var b gpu.Batch
	err := r.Read(context.Background(), gpu.ReadRequest{}, &b)
	return &b, err
}

func (r *rig) read() *gpu.Batch {
	r.t.Helper()
	b, err := r.try()
	if err != nil {
		r.t.Fatalf("Read: %v", err)
	}
	return b
}

// shows reads once and compares the batch with lines of shown.
func (r *rig) shows(when string, want []string) {
	r.t.Helper()
	checkEqual(r.t, when, want, r.shown(r.read()))
}

// until reads until ok returns true for a batch, and returns it.
func (r *rig) until(what string, ok func(*gpu.Batch, error) bool) *gpu.Batch {
	r.t.Helper()
	for end := time.Now().Add(deadline); ; pause() {
		b, err := r.try()
		if ok(b, err) {
			return b
		}
		if time.Now().After(end) {
			r.t.Fatalf("timed out waiting for %s; last batch: %v, error %v", what, r.shown(b), err)
		}
	}
}

// awaits reads until a batch has exactly these lines of shown.
func (r *rig) awaits(want []string) *gpu.Batch {
	r.t.Helper()
	return r.until(strings.Join(want, ", "), func(b *gpu.Batch, err error) bool {
		return err == nil && slices.Equal(r.shown(b), want)
	})
}

// ends reads until the session ends, and checks the error.
func (r *rig) ends(want error) {
	r.t.Helper()
	r.until("the end of the session", func(*gpu.Batch, error) bool { return r.Err() != nil })
	if !errors.Is(r.Err(), want) {
		r.t.Errorf("Err = %v, want %v", r.Err(), want)
	}
}

// follow reads until the session ends because of the topology, and opens the next session, like the collector.
func (r *rig) follow(plan *gpu.Plan) *rig {
	r.t.Helper()
	r.ends(gpu.ErrTopology)
	r.close()
	return r.again(plan)
}

// lives checks that the session has not ended.
func (r *rig) lives() {
	r.t.Helper()
	if err := r.Err(); err != nil {
		r.t.Fatalf("session ended: %v", err)
	}
}

// pause waits until the engine has taken another sample. The engine samples by the system clock.
func pause() { <-time.After(interval / 2) }

// shown returns samples, XIDs and faults as text, such as "GPU 0 #1 71.5" and "GPU 0 entity lost".
func (r *rig) shown(b *gpu.Batch) (lines []string) {
	name := func(row int) string {
		if row == gpu.AllRows {
			return "all"
		}
		return r.Topology().Devices[row].Entity.String()
	}
	for _, x := range b.Samples {
		lines = append(lines, fmt.Sprintf("%s #%d %v", name(x.Row), x.Field, x.Value))
	}
	for _, x := range b.XIDs {
		lines = append(lines, fmt.Sprintf("%s XID %d", name(x.Row), x.Code))
	}
	for _, x := range b.Faults {
		part := map[gpu.Part]string{
			gpu.PartField: fmt.Sprint("#", x.Field), gpu.PartEntity: "entity", gpu.PartProcesses: "processes",
			gpu.PartHealthChecks: "health", gpu.PartPeerStates: "peers",
		}[x.Part]
		lines = append(lines, fmt.Sprintf("%s %s %s", name(x.Row), part, gpu.Reason(x.Err)))
	}
	slices.Sort(lines)
	return lines
}

// checkEqual checks that two values are equal.
func checkEqual[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// replaced returns lines with strings replaced, given as pairs of the old and the new one.
func replaced(lines []string, pairs ...string) []string {
	replacer := strings.NewReplacer(pairs...)
	lines = slices.Clone(lines)
	for i, line := range lines {
		lines[i] = replacer.Replace(line)
	}
	return lines
}

func mentions(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not mention %q", text, w)
		}
	}
}

// logTo returns options that log into a buffer.
func logTo(w *strings.Builder) dcgm.Options {
	return dcgm.Options{Log: slog.New(slog.NewTextHandler(w, nil))}
}

// TestMain runs the tests with the real go-dcgm and the test library.
func TestMain(m *testing.M) { os.Exit(fakedcgm.MainParallel(m, 4)) }

// contractOf returns a fixture of an engine that runs the script, of which GPU 0 may be lost. New sets *e.
func contractOf(
	e **fakedcgm.Engine, o dcgm.Options, plan *gpu.Plan, kinds gpu.Kinds, script ...string,
) contract.Fixture {
	return contract.Fixture{
		New: func(t *testing.T) collector.Source {
			*e = fakedcgm.New(t, script...)
			return collector.SourceOf(dcgm.New(o).Open)
		},
		Plan: plan, Kinds: kinds,
		Settle: func(*testing.T) { pause() },
		Lose:   func(*testing.T, int) { (*e).Replace("minor=2", "minor=2 status=lost") },
		Kill:   func(*testing.T) { (*e).Add("down") },
		OpenHandles: func(*testing.T) (total int) {
			for _, n := range (*e).Open() {
				total += int(n)
			}
			return total
		},
	}
}

func TestContract(t *testing.T) {
	for name, o := range map[string]dcgm.Options{"embedded": {}, "remote": remoteEngine} {
		t.Run(name, func(t *testing.T) {
			var e *fakedcgm.Engine
			happened := 0
			trail := field(156, onGPU)
			trail.AllSamples, trail.Interval = true, time.Microsecond // no two samples are that close
			plan := planOf(field(150, onGPU), field(155, onBoth), profiling(1001), profiling(1004),
				events(112), events(230), text(1), field(310, onGPU), trail)
			f := contractOf(&e, o, plan, onBoth, world("value gpu:* 112 int 4", "value gpu:* 156 nodata")...)
			f.Sampled = 8
			f.Sample = func(*testing.T) gpu.Value {
				happened++
				e.Add(fmt.Sprintf("event %d gpu:0 156 %d", happened, happened))
				return gpu.Int(int64(happened))
			}
			xids := 0
			f.XID = func(*testing.T) {
				if xids++; xids == 1 {
					e.Add("event 1 gpu:0 230 62")
				} else {
					e.Add("event 2 gpu:0 230 45", "event 3 gpu:0 230 45")
				}
			}
			f.Change = func(*testing.T) { e.Replace("instance 8 gpu=1 nvml=2", "instance 8 gpu=1 nvml=5") }
			contract.Run(t, f)
		})
	}
}

// TestContractOfEveryKind runs the contract suite on a node with every kind of entity and a plan with everything in
// addition to fields. GPU 0 and its links are lost, and a switch is added.
func TestContractOfEveryKind(t *testing.T) {
	var e *fakedcgm.Engine
	plan := fabricPlan()
	plan.Fields = append(plan.Fields, field(155, onBoth), events(230), text(1), profiling(1001), field(310, onGPU))
	plan.Health, plan.Peers, plan.Placement = onGPU|onSwitches|onCards|onMachine, true, true
	f := contractOf(&e, dcgm.Options{}, plan, onBoth|onLinks|onSwitches|onCPUs|onCores|onCards,
		fabric("path 0 1 node nvlinks=2", "peer 0 1 0")...)
	f.Change = func(*testing.T) { e.Add("switch 2 links=1") }
	contract.Run(t, f)
}
