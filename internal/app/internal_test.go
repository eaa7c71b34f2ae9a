package app

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/events"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
	"github.com/gpu-telemetry/dcgm-exporter/internal/process"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/hardware"
)

// still is a source and a session whose reads return nothing.
type still struct{}

func (still) Open(context.Context, *gpu.Plan) (collector.Session, error) { return still{}, nil }
func (still) Topology() *gpu.Topology                                    { return &gpu.Topology{} }
func (still) Read(context.Context, gpu.ReadRequest, *gpu.Batch) error    { return nil }
func (still) Done() <-chan struct{}                                      { return nil }
func (still) Err() error                                                 { return nil }
func (still) Close() error                                               { return nil }

// When the collection is stuck and the page expires, only the exporter's own metrics are served, and the exporter is
// not healthy. It recovers when the collection continues.
func TestStalledCollection(t *testing.T) {
	for _, own := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const interval, limit = time.Second, 5 * time.Second
			reg := prometheus.NewRegistry()
			self := &selfMetrics{own: reg, runtime: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}
			e := &exporter{config: &config.Config{}, pipeline: &pipeline{self: self}}
			e.config.Web.ExporterMetrics = own
			encoder := exposition.NewEncoder(exposition.Options{Trailer: self.append})
			stuck := make(chan struct{})
			var block atomic.Bool
			e.loop = collector.New(collector.Options{
				Settings:   collector.Settings{Source: still{}, Plan: &gpu.Plan{Interval: interval}},
				Registerer: reg,
				Publish: func(s *gpu.Snapshot) {
					if block.Load() {
						<-stuck
					}
					e.pages.Publish(encoder.Encode(s), s.ValidFor)
				},
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- e.loop.Run(ctx) }()
			has := func(want ...string) {
				t.Helper()
				p := e.currentPage()
				if p == nil {
					t.Fatal("page = nil, want a published page")
				}
				for _, w := range want {
					if !strings.Contains(string(p.Bytes()), w) {
						t.Errorf("page does not contain %q:\n%s", w, p.Bytes())
					}
				}
			}
			time.Sleep(10*interval + interval/2)
			has("dcgm_exporter_collect_success 1", "dcgm_exporter_source_info")
			block.Store(true)
			time.Sleep(limit - interval)
			has("dcgm_exporter_collect_success 1")
			if err := e.healthy(); err != nil {
				t.Errorf("health before the page expires = %v, want nil", err)
			}
			time.Sleep(interval/2 + 1) // the page is half an interval old
			if own {
				has("\ndcgm_exporter_collect_success 0", `dcgm_exporter_collect_unavailable{reason="stalled"} 1`)
				has("dcgm_exporter_source_info")
			} else {
				has("# the collection is stalled")
			}
			if err := e.healthy(); gpu.Reason(err) != "stalled" {
				t.Errorf("health after the page expired = %v, want stalled", err)
			}
			block.Store(false)
			close(stuck)
			time.Sleep(2 * interval)
			has("dcgm_exporter_collect_success 1")
			has(`dcgm_exporter_collect_failures_total{reason="stalled",stage="publish"} 1`)
			if err := e.healthy(); err != nil {
				t.Errorf("health after the collection continues = %v, want nil", err)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			synctest.Wait()
		})
	}
}

func TestBuildUsesToolchainRecords(t *testing.T) {
	recorded := &debug.BuildInfo{Main: debug.Module{Version: "v0.9.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"},
		{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		{Key: "vcs.modified", Value: "true"},
	}}
	linked, none := build{"v1.0.0", "def", "2026-02-03T00:00:00Z"}, build{"unknown", "unknown", "unknown"}
	unversioned := &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}
	for _, tt := range []struct {
		name  string
		given build
		info  *debug.BuildInfo
		want  build
	}{
		{"no build information", build{}, nil, none},
		{"values set by the linker take precedence", linked, recorded, linked},
		{"go install", build{}, recorded, build{"v0.9.0", "abc-dirty", "2026-01-02T03:04:05Z"}},
		{"a module without a version", build{}, unversioned, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, completed(tt.given, tt.info)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The output of --version and the metric have all parts of the build.
func TestBuildIsShown(t *testing.T) {
	b := build{Version: "v0.1.0", Revision: "abc", Date: "2026-01-02T03:04:05Z"}
	want := "dcgm-exporter v0.1.0\n  revision: abc\n  date:     2026-01-02T03:04:05Z\n" +
		"  go:       " + runtime.Version() + "\n  platform: " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	metric := `# HELP dcgm_exporter_build_info Version and build of the exporter; the value is 1.
# TYPE dcgm_exporter_build_info gauge
dcgm_exporter_build_info{date="2026-01-02T03:04:05Z",goarch="` + runtime.GOARCH + `",goos="` + runtime.GOOS +
		`",goversion="` + runtime.Version() + `",revision="abc",version="v0.1.0"} 1
`
	if err := testutil.GatherAndCompare(newRegistry(b), strings.NewReader(metric)); err != nil {
		t.Error(err)
	}
}

// TestAccountsAreKeptForAFamily checks that accounts are only kept, and their fields only read, if some family needs
// them.
func TestAccountsAreKeptForAFamily(t *testing.T) {
	for _, tt := range []struct{ accounts, virtual, kept bool }{
		{true, false, true}, {false, true, true}, {true, true, true}, {false, false, false},
	} {
		d := newDerivers(events.Options{}, tt.accounts, tt.virtual, prometheus.NewRegistry())
		c := d.settings(&gpu.Plan{}, Backend{Attributors: []collector.Attributor{nil}})
		if kept := len(c.Derivers) == 4; kept != tt.kept || len(c.Plan.Fields) > 0 != tt.kept {
			t.Errorf("accounts %t, virtual GPUs %t: derivers = %d, fields = %d, want the accountant and its fields: %t",
				tt.accounts, tt.virtual, len(c.Derivers), len(c.Plan.Fields), tt.kept)
		}
	}
}

// tests/process tests which driver is read with which flags.
func TestHardwareOptions(t *testing.T) {
	cfg := &config.Config{
		Source:     config.Source{Kind: config.SourceDCGM, DCGMLog: true, DCGMLogLevel: "WARN"},
		Kubernetes: config.Kubernetes{Enabled: true, DRA: true},
	}
	want := hardware.Options{Required: true, EngineLog: "WARN", Positions: true}
	if diff := cmp.Diff(want, hardwareOptions(cfg)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An XID may end its process before the kernel log is read. Then the pod is the one that earlier reads found, with
// the API server's UID. Later reads keep finding it.
func TestPodOfProcessEndedByXID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hash = "a3f5c1d2e4b6978899aabbccddeeff00"
		stat := func(name, flags string) *fstest.MapFile {
			const more = " 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0"
			return &fstest.MapFile{Data: []byte("1 (" + name + ") S 0 0 0 0 -1 " + flags + more)}
		}
		proc := fstest.MapFS{
			"2/stat": stat("kthreadd", "2129984"), "4711/stat": stat("python3", "4194304"),
			"4711/cgroup": {Data: []byte("0::/kubepods.slice/kubepods-pod" + hash + ".slice/cri-containerd-0.scope\n")},
		}
		s := newSources(time.Now(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		s.pods = process.NewResolver(proc)
		s.kubernetes.uidOf = func(uid string) string { return map[string]string{hash: "mirror"}[uid] }
		log := s.kernelLogOptions("/dev/kmsg")
		if uid, err := one(s.pods.PodOf(4711)); uid != hash || err != nil {
			t.Fatalf("pod UID for a Read = %q, error = %v; want %q and no error", uid, err, hash)
		}
		delete(proc, "4711/stat")
		delete(proc, "4711/cgroup")
		time.Sleep(10 * time.Second)
		if uid, err := one(log.PodOf(4711)); uid != "mirror" || err != nil {
			t.Errorf("pod UID for the kernel log = %q, error = %v; want mirror and no error", uid, err)
		}
		time.Sleep(20 * time.Second)
		if uid, err := one(s.pods.PodOf(4711)); uid != hash || err != nil {
			t.Errorf("pod UID for the last Read = %q, error = %v; want %q and no error", uid, err, hash)
		}
		time.Sleep(time.Second)
		if uid, err := one(log.PodOf(4711)); uid != "" || err != nil {
			t.Errorf("pod UID for the kernel log after the last Read = %q, error = %v; want neither", uid, err)
		}
	})
}

// one returns the only UID, or "" if there is not exactly one.
func one(uids []string, err error) (string, error) {
	if len(uids) != 1 {
		return "", err
	}
	return uids[0], err
}

// The reads of a source recognize static pods too, if Kubernetes is enabled.
func TestSourceRecognizesStaticPods(t *testing.T) {
	s := newSources(time.Now(), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	const cgroup = "0::/kubepods.slice/kubepods-poda3f5c1d2e4b6978899aabbccddeeff00.slice/cri-containerd-0.scope\n"
	s.pods = process.NewResolver(fstest.MapFS{
		"2/stat":   {Data: []byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0")},
		"7/stat":   {Data: []byte("7 (x) S 0 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 78 0 0")},
		"7/cgroup": {Data: []byte(cgroup)},
	})
	s.kubernetes.mapper = podmapper.New(podmapper.Options{})
	s.kubernetes.uidOf = func(uid string) string { return "mirror of " + uid }
	cfg := &config.Config{Source: config.Source{Kind: config.SourceNVML}, Kubernetes: config.Kubernetes{Enabled: true}}
	chosen, err := s.backend(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if uid, err := one(chosen.PodOf(7)); uid != "mirror of a3f5c1d2e4b6978899aabbccddeeff00" || err != nil {
		t.Errorf("pod UID = %q, error = %v; want that of the mirror pod and no error", uid, err)
	}
}

// Resources that the API server forbids are reported as series, including claims. Nodes are optional and not reported.
func TestForbiddenResourcesAreReported(t *testing.T) {
	w := newAPIWatches(prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	w.report("nodes", errors.New("forbidden"))
	w.report("pods", nil)
	w.report("resourceclaims", errors.New("forbidden"))
	if n := testutil.CollectAndCount(w.gauge); n != 2 {
		t.Errorf("series = %d, want 2: pods and resourceclaims", n)
	}
	for resource, want := range map[string]float64{"pods": 1, "resourceclaims": 0} {
		if got := testutil.ToFloat64(w.gauge.WithLabelValues(resource)); got != want {
			t.Errorf("%s: value = %v, want %v", resource, got, want)
		}
	}
}

// profiled is a session of a GPU whose profiling field has no value in the first Reads, because an engine computes it
// from two samples.
type profiled struct {
	plan     *gpu.Plan
	topology *gpu.Topology
	from     int // number of the first Read with a value
	reads    int
}

func (p *profiled) Topology() *gpu.Topology { return p.topology }
func (p *profiled) Done() <-chan struct{}   { return nil }
func (p *profiled) Err() error              { return nil }
func (p *profiled) Close() error            { return nil }
func (p *profiled) Read(_ context.Context, _ gpu.ReadRequest, b *gpu.Batch) error {
	p.reads++
	for i := range p.plan.Fields {
		for row := range p.topology.Devices { // the value of each link comes a Read later
			if !p.plan.Fields[i].Profiling || p.reads >= p.from+max(row-1, 0) {
				b.Add(row, i, gpu.Int(1), time.Now())
			}
		}
	}
	return nil
}

// The subcommand "once" prints the page that a scrape would get. It waits for profiling fields, which have no value at
// first. Without any data, the page still has the health series.
func TestPageOfOnce(t *testing.T) {
	const temp, prof = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
	counter := func(name string, field int) gpu.Counter {
		return gpu.Counter{Name: name, Type: gpu.MetricGauge, Field: field, Scale: 1}
	}
	field := func(id gpu.FieldID, profiling bool) gpu.Field {
		return gpu.Field{ID: id, Levels: gpu.KindsOf(gpu.KindGPU), Range: &gpu.Range{Max: 100}, Profiling: profiling}
	}
	planOf := func(fields ...gpu.Field) *gpu.Plan {
		return &gpu.Plan{
			Interval: 30 * time.Second, Devices: gpu.Selector{Flex: true}, Fields: fields,
			Counters: []gpu.Counter{counter(temp, 0), counter(prof, 1)}[:min(len(fields), 2)],
		}
	}
	links := gpu.KindsOf(gpu.KindNVLink)
	with, without := planOf(field(150, false), field(1001, true)), planOf(field(150, false))
	ofLinks := planOf(
		field(150, false), gpu.Field{ID: 1040, Levels: links, Profiling: true}, gpu.Field{ID: 1200, Levels: links},
	)
	const second = time.Second
	const success = "dcgm_exporter_collect_success "
	noData := `dcgm_exporter_field_unavailable{field="` + prof + `",reason="no_data"} 1`
	unavailable := `dcgm_exporter_collect_unavailable{reason="unavailable"} 1`
	for _, tt := range []struct {
		name string
		plan *gpu.Plan
		from int   // first Read with profiling
		err  error // error of Open
		took time.Duration
		want []string
	}{
		{"without profiling", without, 1, nil, 0, []string{temp + "{", success + "1"}},
		{"values in the first Read", with, 1, nil, 0, []string{temp + "{", prof + "{"}},
		{"values from the third Read on", with, 3, nil, 2 * second, []string{temp + "{", prof + "{", success + "1"}},
		{"two links, one per Read", ofLinks, 2, nil, 2 * second, []string{prof + `{nvlink="0"`, prof + `{nvlink="1"`}},
		{"no values", with, 100, nil, 4 * second, []string{temp + "{", noData}},
		{"engine unavailable", with, 1, gpu.ErrUnavailable, 0, []string{success + "0", unavailable}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := collector.SourceOf(func(_ context.Context, plan *gpu.Plan) (*profiled, error) {
					devices := []gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"}}
					for link := range uint32(2) {
						e := gpu.Entity{Kind: gpu.KindNVLink, ID: link, ParentKind: gpu.KindGPU}
						devices = append(devices, gpu.Device{Entity: e, Link: link, UUID: "GPU-0"})
					}
					return &profiled{plan: plan, topology: gpu.NewTopology(devices), from: tt.from}, tt.err
				})
				cfg, err := config.Parse(nil, func(string) (string, bool) { return "", false }, nil)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				body, err := collectPage(t.Context(), cfg, prometheus.NewRegistry(), Backend{Source: source}, tt.plan)
				if (err == nil) != (tt.err == nil) {
					t.Errorf("error = %v, want %v", err, tt.err)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				for _, want := range tt.want {
					if !strings.Contains(string(body), "\n"+want) {
						t.Errorf("page does not contain %s:\n%s", want, body)
					}
				}
			})
		})
	}
}
