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
)

// Batches of world for field 150 and profiling field 1001, with and without profiling.
var (
	profiled = []string{"GPU 0 #0 45", "GPU 0 #1 0.5", "GPU 1 #0 45", "GPU 1 #1 0.5",
		"GPU instance 7 of GPU 1 #1 0.5", "GPU instance 8 of GPU 1 #1 0.5"}
	unprofiled = []string{"GPU 0 #0 45", "GPU 0 #1 unavailable", "GPU 1 #0 45", "GPU 1 #1 unavailable",
		"GPU instance 7 of GPU 1 #1 unavailable", "GPU instance 8 of GPU 1 #1 unavailable"}
)

func profilingPlan() *gpu.Plan { return planOf(field(150, onGPU), profiling(1001)) }

// If the engine rejects profiling fields when the session opens, they have a fault. They are served as soon as the
// engine accepts them: another profiler stops, there is room for the watch, or the engine has found the GPU's fields.
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
			r := start(t, profilingPlan(), dcgm.Options{}.RetryRefused(interval), world(line)...)
			for range 5 {
				b := r.read()
				if slices.Contains(r.shown(b), "GPU 1 #1 0.5") {
					t.Errorf("batch before the engine accepts the fields = %v, want no value of them", r.shown(b))
				}
				if code == "" {
					break
				}
				checkEqual(t, "batch before the engine accepts the fields", unprofiled, r.shown(b))
				mentions(t, b.Faults[0].Err.Error(), code)
				pause()
			}
			r.e.Remove(strings.Fields(line)[0])
			r.awaits(profiled)
			r.lives()
		})
	}
}

// If profiling fields cannot be watched, the reason must say what is missing. The module does not load in a process
// without SYS_ADMIN. A process with it lacks the module's package.
func TestMissingForProfiling(t *testing.T) {
	of := func(query string) []string { return replaced(world(), "prof=1001-1012", "prof="+query) }
	for name, tt := range map[string]struct {
		script        []string
		mayNotProfile bool
		want          string
	}{
		"module missing, without the capability":     {of("error:-33"), true, "needs_sys_admin"},
		"module missing, with the capability":        {of("error:-33"), false, "needs_dcgm"},
		"query denied":                               {of("error:-29"), false, "needs_sys_admin"},
		"watch denied":                               {world("profiler -17"), false, "needs_sys_admin"},
		"GPU without profiling fields":               {of("none"), true, "not_supported"},
		"GPU for which the engine rejects profiling": {of("error:-36"), true, "not_supported"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, profilingPlan(), dcgm.Options{MayNotProfile: tt.mayNotProfile}, tt.script...)
			r.shows("batch", replaced(unprofiled, "unavailable", tt.want))
		})
	}
}

// Fields that are not watched are logged with one line for each reason, with their names and devices. Fields of
// entities that do not exist are not a warning, because counters files for a fleet name them.
func TestUnwatchedFieldsAreLogged(t *testing.T) {
	plan := planOf(field(150, onGPU), profiling(1001), profiling(1004), profiling(1005), field(862, onSwitches),
		field(1110, onCPUs), profiling(1002))
	plan.Counters = []gpu.Counter{{Field: 0}, {Field: 1}, {Field: 2}, {Field: 4}, {Field: 5}}
	plan.Derived = []gpu.Derived{{HasField: true, Field: 3}} // the last field is only needed for accounting
	var log strings.Builder
	start(t, plan, logTo(&log),
		append(replaced(world(), "prof=1001-1012", "prof=error:-36"), gpuLine(2, "prof=1001"), "without cpu")...)
	var got []string
	for line := range strings.Lines(log.String()) {
		if _, line, _ = strings.Cut(line, " level="); strings.Contains(line, "not watched") {
			got = append(got, line)
		}
	}
	if len(got) != 6 {
		t.Fatalf("log lines = %d, want 6:\n%s", len(got), log.String())
	}
	slices.Sort(got)
	mentions(t, got[0], "INFO", "fields=FIELD_1002", "-36", "GPU 0")
	mentions(t, got[1], "INFO", "fields=FIELD_1002", "does not have this profiling field", `devices="GPU 2"`)
	mentions(t, got[2], "INFO", "fields=FIELD_1110", "the engine cannot list a CPU", "-33")
	mentions(t, got[3], "INFO", "fields=FIELD_862", "exists or is selected")
	mentions(t, got[4], "WARN", `fields="FIELD_1001, FIELD_1004, FIELD_1005"`, "-36",
		`devices="GPU 0, GPU 1, GPU instance 7 of GPU 1, GPU instance 8 of GPU 1"`)
	mentions(t, got[5], "WARN", `fields="FIELD_1004, FIELD_1005"`, "does not have this profiling field",
		`devices="GPU 2"`)
}

// linger reads for n pauses.
func (r *rig) linger(n int) {
	r.t.Helper()
	for range n {
		r.read()
		pause()
	}
}

// ended returns the number of watches that do ends.
func (r *rig) ended(do func()) int64 { return r.callsOf(do)["dcgmUnwatchFields"] }

// If profiling fields have no new values while others have some, they are watched again at intervals, with a log line.
func TestStaleProfiling(t *testing.T) {
	var log strings.Builder
	r := start(t, profilingPlan(), logTo(&log), world()...)
	r.awaits(profiled)
	r.e.Add("value any:* 1001 stuck 0.75")
	r.awaits(replaced(profiled, "#1 0.5", "#1 0.75"))
	r.e.Add("value any:* 1001 stuck 0.25")
	r.linger(20)
	if n := strings.Count(log.String(), "watched again"); n == 0 || n > 2 { // one for GPUs and one for instances
		t.Errorf("renewals within a minute = %d, want 1 or 2:\n%s", n, log.String())
	}
	if n := r.e.Open()["watches"]; n != 3 {
		t.Errorf("watches = %d, want 3", n)
	}
}

// Zeros of a busy GPU are not served. The fields are watched again immediately, and then at growing intervals.
func TestContradictedProfiling(t *testing.T) {
	plan := planOf(field(203, onGPU), profiling(1001))
	plan.Fields[1].Range = &gpu.Range{Max: 1}
	plan.Counters = []gpu.Counter{{Name: "UTIL", Field: 0, Scale: 1}, {Name: "ENGINE", Field: 1, Scale: 1}}
	judged := *plan
	judged.Interval = time.Second // shorter windows of profiling are not compared
	r := start(t, plan, dcgm.Options{}.RetryRefused(interval), world("value gpu:* 203 int 99")...)
	builder := snapshot.NewBuilder(r.Topology(), &judged, nil)
	var b gpu.Batch
	var req gpu.ReadRequest
	served := func() string {
		b.Reset()
		if err := r.Read(t.Context(), req, &b); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		page := builder.Build(snapshot.Reading{Batch: &b, Begin: now, Now: now})
		req.Contradicted = builder.Contradicted
		row, _ := r.Topology().Row(gpu.Entity{Kind: gpu.KindGPU})
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
	r.e.Add("value any:* 1001 zero 0.75")
	await(snapshot.DroppedContradicted)
	await("0.75")
	n := r.ended(func() {
		r.e.Add("value any:* 1001 double 0")
		await(snapshot.DroppedContradicted)
		for range 40 {
			if got := served(); got != snapshot.DroppedContradicted {
				t.Errorf("batch of a busy GPU = %q, want no zeros", got)
			}
			pause()
		}
	})
	if n < 2 || n > 12 { // of GPUs and instances, in about five intervals
		t.Errorf("ended watches = %d, want 2 to 12", n)
	}
}

// If another profiler has taken the counters meanwhile, the new watch is rejected, and the fields wait until that
// profiler stops.
func TestStaleProfilingIsRejected(t *testing.T) {
	r := start(t, profilingPlan(), dcgm.Options{}.RetryRefused(interval), world()...)
	r.awaits(profiled)
	r.e.Add("value any:* 1001 stopped", "profiler -34")
	r.awaits(unprofiled)
	r.e.Remove("profiler")
	r.e.Remove("value any:* 1001 stopped")
	r.awaits(profiled)
}

// If all fields have stopped, or a fault explains the missing values, fields are not watched again. After a freeze of
// the engine, profiling fields have values later than others.
func TestProfilingThatIsNotStale(t *testing.T) {
	for name, tt := range map[string]struct {
		lines []string
		thaws bool
	}{
		"everything stopped": {[]string{"value any:* 1001 stopped", "value gpu:* 150 stopped"}, false},
		"no permission":      {[]string{"value any:* 1001 nopermission d"}, false},
		"after a freeze":     {[]string{"value any:* 1001 stopped", "value gpu:* 150 stopped"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, profilingPlan(), dcgm.Options{}.RetryRefused(time.Nanosecond), world()...)
			r.awaits(profiled)
			newest := func(b *gpu.Batch) (at int64) {
				for _, x := range b.Samples {
					at = max(at, x.Time)
				}
				return at
			}
			n := r.ended(func() {
				r.e.Add(tt.lines...)
				r.linger(12)
				if tt.thaws {
					frozen := newest(r.read())
					r.e.Remove("value gpu:* 150 stopped")
					isNew := func(b *gpu.Batch, err error) bool { return err == nil && newest(b) != frozen }
					r.until("a new value", isNew)
				}
			})
			if n != 0 {
				t.Errorf("ended watches = %d, want 0", n)
			}
		})
	}
}

// When another profiler stops, the rejected watch is split if necessary, so that only the unknown field is missing.
func TestHeldFieldsAreIsolated(t *testing.T) {
	r := start(t, planOf(field(150, onGPU), profiling(1001), profiling(1004), profiling(1005)),
		dcgm.Options{}.RetryRefused(interval), world("unknown 1004", "profiler -34")...)
	r.read()
	r.e.Remove("profiler")
	var want []string
	for _, line := range profiled {
		want = append(want, line)
		if entity, _, ok := strings.Cut(line, " #1 "); ok {
			want = append(want, entity+" #2 not_supported", entity+" #3 0.5")
		}
	}
	r.awaits(want)
	if n := r.callsOf(func() { r.linger(3) })["dcgmFieldGroupCreate"]; n != 0 {
		t.Errorf("rejected field was requested again %d times, want 0", n)
	}
}
