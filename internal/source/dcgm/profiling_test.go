//go:build linux && cgo

package dcgm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// Batches of world for field 150 and profiling field 1001, with and without profiling.
var (
	profiled = []string{"GPU 0 #0 45", "GPU 0 #1 0.5", "GPU 1 #0 45", "GPU 1 #1 0.5",
		"GPU instance 7 of GPU 1 #1 0.5", "GPU instance 8 of GPU 1 #1 0.5"}
	unprofiled = []string{"GPU 0 #0 45", "GPU 0 #1 unavailable", "GPU 1 #0 45", "GPU 1 #1 unavailable",
		"GPU instance 7 of GPU 1 #1 unavailable", "GPU instance 8 of GPU 1 #1 unavailable"}
)

func profilingPlan() *gpu.Plan { return planOf(field(150, onGPU), profiling(1001)) }

// readUntilShown reads until a batch has exactly these lines.
func readUntilShown(t *testing.T, s *dcgm.Session, want []string) *gpu.Batch {
	t.Helper()
	return readUntil(t, s, strings.Join(want, ", "), func(b *gpu.Batch, err error) bool {
		return err == nil && slices.Equal(shown(s, b), want)
	})
}

// If the engine rejects profiling fields when the session opens, they have a fault. They are served as soon as the
// engine accepts them: another profiler stops, there is room for the watch, or the engine knows the GPU's fields.
func TestProfilingAcceptedLater(t *testing.T) {
	for line, code := range map[string]string{
		"profiler -34": "(-34)",
		"profiler -37": "(-37)",
		"profiler -54": "(-54)",
		// Only some fields have a fault, or only for a moment.
		"groups 1": "",
		"fail dcgmProfGetSupportedMetricGroups -11 3 1": "",
		"fail dcgmProfGetSupportedMetricGroups -57 3 1": "",
		"fail dcgmProfGetSupportedMetricGroups -1 3 1":  "",
	} {
		t.Run(line, func(t *testing.T) {
			e := fakedcgm.New(t, world(line)...)
			s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(interval))
			for range 5 {
				b := read(t, s)
				if slices.Contains(shown(s, b), "GPU 1 #1 0.5") {
					t.Errorf("batch before the engine accepts the fields = %v, want no value of them", shown(s, b))
				}
				if code == "" {
					break
				}
				checkEqual(t, "batch before the engine accepts the fields", unprofiled, shown(s, b))
				mentions(t, b.Faults[0].Err.Error(), code)
				pause()
			}
			e.Remove(strings.Fields(line)[0])
			readUntilShown(t, s, profiled)
			if s.Err() != nil {
				t.Errorf("session ended: %v", s.Err())
			}
		})
	}
}

// If profiling fields cannot be watched, the reason must say what is missing. The module does not load in a process
// without SYS_ADMIN. A process with it lacks the module's package.
func TestMissingForProfiling(t *testing.T) {
	for name, tt := range map[string]struct {
		code          string // of the query for profiling fields, or of watches
		mayNotProfile bool
		want          string
	}{
		"module missing, without the capability":     {"prof=error:-33", true, "needs_sys_admin"},
		"module missing, with the capability":        {"prof=error:-33", false, "needs_dcgm"},
		"query denied":                               {"prof=error:-29", false, "needs_sys_admin"},
		"watch denied":                               {"profiler -17", false, "needs_sys_admin"},
		"GPU without profiling fields":               {"prof=none", true, "not_supported"},
		"GPU for which the engine rejects profiling": {"prof=error:-36", true, "not_supported"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := world()
			if strings.HasPrefix(tt.code, "prof=") {
				for i, line := range lines {
					lines[i] = strings.Replace(line, "prof=1001-1012", tt.code, 1)
				}
			} else {
				lines = append(lines, tt.code)
			}
			s := open(t, fakedcgm.New(t, lines...), profilingPlan(), dcgm.Options{MayNotProfile: tt.mayNotProfile})
			var want []string
			for _, line := range unprofiled {
				want = append(want, strings.Replace(line, "unavailable", tt.want, 1))
			}
			checkEqual(t, "batch", want, shown(s, read(t, s)))
		})
	}
}

// Fields that are not watched are logged with one line for each reason, with their names and devices.
func TestUnwatchedFieldsAreLogged(t *testing.T) {
	lines := world()
	for i, line := range lines {
		lines[i] = strings.Replace(line, "prof=1001-1012", "prof=error:-36", 1)
	}
	lines = append(lines, gpuLine(2, "prof=1001"))
	var log strings.Builder
	e := fakedcgm.New(t, lines...)
	plan := planOf(field(150, onGPU), profiling(1001), profiling(1004), profiling(1005), profiling(1002))
	plan.Counters = []gpu.Counter{{Field: 0}, {Field: 1}, {Field: 2}}
	plan.Derived = []gpu.Derived{{HasField: true, Field: 3}} // the last field is only needed for accounting
	s := open(t, e, plan, logTo(&log))
	readUntil(t, s, "temperatures", func(b *gpu.Batch, err error) bool { return err == nil && len(b.Samples) > 0 })
	var got []string
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "not watched") {
			got = append(got, line)
		}
	}
	if len(got) != 4 {
		t.Fatalf("log lines = %d, want 4:\n%s", len(got), log.String())
	}
	mentions(t, got[0], "level=WARN", `fields="FIELD_1001, FIELD_1004, FIELD_1005"`, "-36",
		`devices="GPU 0, GPU 1, GPU instance 7 of GPU 1, GPU instance 8 of GPU 1"`)
	mentions(t, got[1], "level=INFO", "fields=FIELD_1002", "-36", "GPU 0")
	mentions(t, got[2], "level=WARN", `fields="FIELD_1004, FIELD_1005"`, "does not have this profiling field",
		`devices="GPU 2"`)
	mentions(t, got[3], "level=INFO", "fields=FIELD_1002", "does not have this profiling field", `devices="GPU 2"`)
}

// Fields of entities that do not exist are not a warning, because counters files for a fleet name them.
func TestMissingEntitiesAreNoWarning(t *testing.T) {
	var log strings.Builder
	plan := planOf(field(150, onGPU), field(862, gpu.KindsOf(gpu.KindNVSwitch)), field(1110, gpu.KindsOf(gpu.KindCPU)))
	plan.Counters = []gpu.Counter{{Field: 0}, {Field: 1}, {Field: 2}}
	open(t, fakedcgm.New(t, gpuLine(0, ""), "without cpu"), plan, logTo(&log))
	mentions(t, log.String(), `level=INFO msg="Fields are not watched"`, "exists or is selected",
		"the engine cannot list a CPU", "-33")
	if strings.Contains(log.String(), "WARN") {
		t.Errorf("log has warnings:\n%s", log.String())
	}
}

// If profiling fields have no new values while others have some, they are watched again at intervals, with a log line.
func TestStaleProfiling(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	var log strings.Builder
	s := open(t, e, profilingPlan(), logTo(&log))
	readUntilShown(t, s, profiled)
	e.Add("value any:* 1001 stuck 0.75")
	recovered := slices.Clone(profiled)
	for i := range recovered {
		recovered[i] = strings.Replace(recovered[i], "#1 0.5", "#1 0.75", 1)
	}
	readUntilShown(t, s, recovered)
	e.Add("value any:* 1001 stuck 0.25")
	for range 20 {
		read(t, s)
		pause()
	}
	if n := strings.Count(log.String(), "watched again"); n == 0 || n > 2 { // one for GPUs and one for instances
		t.Errorf("renewals within a minute = %d, want 1 or 2:\n%s", n, log.String())
	}
	if n := e.Open()["watches"]; n != 3 {
		t.Errorf("watches = %d, want 3", n)
	}
}

// Zeros of a busy GPU are not served. The fields are watched again immediately, and then at growing intervals.
func TestContradictedProfiling(t *testing.T) {
	e := fakedcgm.New(t, world("value gpu:* 203 int 99")...)
	plan := planOf(field(203, onGPU), profiling(1001))
	plan.Fields[1].Range = &gpu.Range{Max: 1}
	plan.Counters = []gpu.Counter{{Name: "UTIL", Field: 0, Scale: 1}, {Name: "ENGINE", Field: 1, Scale: 1}}
	judged := *plan
	judged.Interval = time.Second // shorter windows of profiling are not compared
	s := open(t, e, plan, dcgm.Options{}.RetryRefused(interval))
	builder := snapshot.NewBuilder(s.Topology(), &judged, nil)
	var b gpu.Batch
	var req gpu.ReadRequest
	served := func() string {
		b.Reset()
		if err := s.Read(t.Context(), req, &b); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		page := builder.Build(snapshot.Reading{Batch: &b, Begin: now, Now: now})
		req.Contradicted = builder.Contradicted
		row, _ := s.Topology().Row(gpu.Entity{Kind: gpu.KindGPU})
		for _, u := range page.Health.Unavailable {
			if u.Field == "ENGINE" && (u.Row == row || u.Row == gpu.AllRows) {
				return u.Reason
			}
		}
		return page.Columns[1].Values[row].String()
	}
	await := func(want string) {
		t.Helper()
		for end := time.Now().Add(deadline); ; pause() {
			got := served()
			if got == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("batch = %q, want %q", got, want)
			}
		}
	}
	await("0.5")
	e.Add("value any:* 1001 zero 0.75")
	await(snapshot.DroppedContradicted)
	await("0.75")
	before := e.Calls()["dcgmUnwatchFields"]
	e.Add("value any:* 1001 double 0")
	await(snapshot.DroppedContradicted)
	for range 40 {
		if got := served(); got != snapshot.DroppedContradicted {
			t.Errorf("batch of a busy GPU = %q, want no zeros", got)
		}
		pause()
	}
	if n := e.Calls()["dcgmUnwatchFields"] - before; n < 2 || n > 12 { // of GPUs and instances, in about five intervals
		t.Errorf("ended watches = %d, want 2 to 12", n)
	}
}

// If another profiler has taken the counters meanwhile, the new watch is rejected, and the fields wait until that
// profiler stops.
func TestStaleProfilingIsRejected(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(interval))
	readUntilShown(t, s, profiled)
	e.Add("value any:* 1001 stopped", "profiler -34")
	readUntilShown(t, s, unprofiled)
	e.Remove("profiler")
	e.Remove("value any:* 1001 stopped")
	readUntilShown(t, s, profiled)
}

// If all fields have stopped, or a fault explains the missing values, fields are not watched again.
func TestProfilingThatIsNotStale(t *testing.T) {
	for name, lines := range map[string][]string{
		"everything stopped": {"value any:* 1001 stopped", "value gpu:* 150 stopped"},
		"no permission":      {"value any:* 1001 nopermission d"},
	} {
		t.Run(name, func(t *testing.T) {
			e := fakedcgm.New(t, world()...)
			s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(time.Nanosecond))
			readUntilShown(t, s, profiled)
			before := e.Calls()["dcgmUnwatchFields"]
			e.Add(lines...)
			for range 12 {
				read(t, s)
				pause()
			}
			if n := e.Calls()["dcgmUnwatchFields"] - before; n != 0 {
				t.Errorf("ended watches = %d, want 0", n)
			}
		})
	}
}

// After a freeze of the engine, profiling fields have values later than others. They are not watched again.
func TestProfilingAfterFreeze(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	s := open(t, e, profilingPlan(), dcgm.Options{}.RetryRefused(time.Nanosecond))
	readUntilShown(t, s, profiled)
	before := e.Calls()["dcgmUnwatchFields"]
	e.Add("value any:* 1001 stopped", "value gpu:* 150 stopped")
	newest := func() (at int64) {
		for _, x := range read(t, s).Samples {
			at = max(at, x.Time)
		}
		return at
	}
	for range 12 {
		newest()
		pause()
	}
	frozen := newest()
	e.Remove("value gpu:* 150 stopped")
	for end := time.Now().Add(deadline); newest() == frozen; pause() {
		if time.Now().After(end) {
			t.Fatal("no new value until the deadline, want one after the freeze")
		}
	}
	if n := e.Calls()["dcgmUnwatchFields"] - before; n != 0 {
		t.Errorf("ended watches = %d, want 0", n)
	}
}

// When another profiler stops, the rejected watch is split if necessary, so that only the unknown field is missing.
func TestHeldFieldsAreIsolated(t *testing.T) {
	e := fakedcgm.New(t, world("unknown 1004", "profiler -34")...)
	s := open(t, e, planOf(field(150, onGPU), profiling(1001), profiling(1004), profiling(1005)),
		dcgm.Options{}.RetryRefused(interval))
	read(t, s)
	e.Remove("profiler")
	var want []string
	for _, line := range profiled {
		want = append(want, line)
		if entity, _, ok := strings.Cut(line, " #1 "); ok {
			want = append(want, entity+" #2 not_supported", entity+" #3 0.5")
		}
	}
	readUntilShown(t, s, want)
	before := e.Calls()["dcgmFieldGroupCreate"]
	for range 3 {
		read(t, s)
	}
	if n := e.Calls()["dcgmFieldGroupCreate"] - before; n != 0 {
		t.Errorf("rejected field was requested again %d times, want 0", n)
	}
}
