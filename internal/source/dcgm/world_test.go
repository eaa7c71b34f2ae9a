//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
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

// open opens a session and closes it at the end of the test, if it is still open. Nothing may be left open at the
// engine.
func open(t testing.TB, e *fakedcgm.Engine, plan *gpu.Plan, o dcgm.Options) *dcgm.Session {
	t.Helper()
	s := openAt(t, dcgm.New(o), plan)
	t.Cleanup(func() {
		closeSession(t, s)
		checkClosed(t, e)
	})
	return s
}

// openAt opens a session that the test must close.
func openAt(t testing.TB, source *dcgm.Source, plan *gpu.Plan) *dcgm.Session {
	t.Helper()
	s, err := source.Open(t.Context(), plan)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

func checkClosed(t testing.TB, e *fakedcgm.Engine) {
	t.Helper()
	if open := e.Open(); len(open) > 0 {
		t.Errorf("handles left open at the engine = %v, want none", open)
	}
}

// xidPlan requests temperatures and XIDs.
func xidPlan() *gpu.Plan { return planOf(field(150, onGPU), events(230)) }

func read(t testing.TB, s *dcgm.Session) *gpu.Batch {
	t.Helper()
	b, err := tryRead(s)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	return b
}

func tryRead(s *dcgm.Session) (*gpu.Batch, error) {
	var b gpu.Batch
	err := s.Read(context.Background(), gpu.ReadRequest{}, &b)
	return &b, err
}

// ends reads until the session ends, and checks the error.
func ends(t testing.TB, s *dcgm.Session, want error) {
	t.Helper()
	readUntil(t, s, "the end of the session", func(*gpu.Batch, error) bool { return s.Err() != nil })
	if !errors.Is(s.Err(), want) {
		t.Errorf("Err = %v, want %v", s.Err(), want)
	}
}

// readUntil reads until ok returns true for a batch, and returns it.
func readUntil(t testing.TB, s *dcgm.Session, what string, ok func(*gpu.Batch, error) bool) *gpu.Batch {
	t.Helper()
	end := time.Now().Add(deadline)
	for {
		b, err := tryRead(s)
		if ok(b, err) {
			return b
		}
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s; last batch: %v, error %v", what, shown(s, b), err)
		}
		pause()
	}
}

// pause waits until the engine has taken another sample.
func pause() { pass(interval / 2) }

// pass waits in real time, because the engine samples by the system clock.
func pass(d time.Duration) { <-time.After(d) }

// shown returns samples and faults as text, such as "GPU 0 #1 71.5".
func shown(s *dcgm.Session, b *gpu.Batch) []string {
	var lines []string
	name := func(row int) string {
		if row == gpu.AllRows {
			return "all"
		}
		return s.Topology().Devices[row].Entity.String()
	}
	for _, x := range b.Samples {
		lines = append(lines, fmt.Sprintf("%s #%d %v", name(x.Row), x.Field, x.Value))
	}
	for _, x := range b.XIDs {
		lines = append(lines, fmt.Sprintf("%s XID %d", name(x.Row), x.Code))
	}
	for _, x := range b.Faults {
		lines = append(lines, fmt.Sprintf("%s #%d %s", name(x.Row), x.Field, gpu.Reason(x.Err)))
	}
	slices.Sort(lines)
	return lines
}

// failsToOpen checks that Open fails with want and leaves nothing open. It returns the error text.
func failsToOpen(t *testing.T, e *fakedcgm.Engine, plan *gpu.Plan, o dcgm.Options, want error) string {
	t.Helper()
	s, err := dcgm.New(o).Open(context.Background(), plan)
	if err == nil {
		s.Close()
		t.Fatal("Open succeeded")
	}
	if !errors.Is(err, want) {
		t.Errorf("Open: %v, want %v", err, want)
	}
	checkClosed(t, e)
	return err.Error()
}

// checkEqual checks that two values are equal.
func checkEqual[T any](t testing.TB, what string, want, got T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func closeSession(t testing.TB, s *dcgm.Session) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func mentions(t *testing.T, text string, words ...string) {
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
