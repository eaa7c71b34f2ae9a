package collector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// seconds rounds the time since the start of a test to whole seconds.
func seconds(d time.Duration) int { return int(d.Round(time.Second) / time.Second) }

// The pauses between attempts double up to a limit, whether the source fails to open or fails its first read. After a
// success, they start over.
func TestPausesBetweenAttemptsDouble(t *testing.T) {
	for name, atOpen := range map[string]bool{"open": true, "first read": false} {
		bubble(t, name, func(t *testing.T) {
			begin, fails := time.Now(), true
			var at []int
			f := &fake{gpus: 1}
			f.open = func(context.Context) error {
				if at = append(at, seconds(time.Since(begin))); fails && atOpen {
					return gpu.ErrUnavailable
				}
				return nil
			}
			f.read = func(ctx context.Context, b *gpu.Batch) error {
				if fails && !atOpen {
					return gpu.ErrLost
				}
				return takes(0, 50)(ctx, b)
			}
			r := start(t, f, nil)
			r.Wait(2 * time.Minute)
			if diff := cmp.Diff([]int{0, 1, 3, 7, 15, 31, 61, 91}, at); diff != "" {
				t.Errorf("attempts, in seconds from the start (-want +got):\n%s", diff)
			}
			f.set(func() { fails = false })
			r.Wait(30 * time.Second)
			r.Has("UTIL{0} 50")

			f.set(func() { begin, at, fails = time.Now(), nil, true })
			f.session.End(gpu.ErrLost)
			r.Wait(16 * time.Second)
			if diff := cmp.Diff([]int{0, 1, 3, 7, 15}, at); diff != "" {
				t.Errorf("attempts after a success (-want +got):\n%s", diff)
			}
		})
	}
}

// Retry ends a pause at once, and the next pauses start from the minimum. A reload also ends a pause.
func TestRetryEndsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []int
		f := &fake{gpus: 1, open: func(context.Context) error {
			at = append(at, seconds(time.Since(begin)))
			return gpu.ErrUnavailable
		}}
		r := start(t, f, nil)
		r.Wait(20 * time.Second) // during the pause from 15 s to 31 s
		r.Loop.Retry()
		r.Wait(8 * time.Second)
		if diff := cmp.Diff([]int{0, 1, 3, 7, 15, 20, 21, 23, 27}, at); diff != "" {
			t.Errorf("attempts, in seconds from the start (-want +got):\n%s", diff)
		}
		if err := r.reload(t.Context(), &fake{gpus: 1}, testPlan()); err != nil {
			t.Fatalf("Reload: %v", err)
		}
		synctest.Wait()
		r.Has("UTIL{0} 50")
	})
}

// Opening a session may take as long as the hang limit. Meanwhile the page says that a session is being opened, and
// no failure is counted.
func TestSlowOpenIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 95 * time.Second
		opens := 0
		f := &fake{gpus: 1, open: func(ctx context.Context) error { // an engine that is slow to start
			opens++
			select {
			case <-time.After(takes):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
		r := start(t, f, nil)
		r.Wait(interval + time.Second)
		r.Has("error opening")
		r.Metric("dcgm_exporter_collect_unavailable{reason=opening} 1")
		if r.Loop.Ready() {
			t.Error("Ready = true before the first cycle ended, want false")
		}
		r.Wait(takes - interval)
		r.Has("UTIL{0} 50")
		if opens != 1 {
			t.Errorf("calls of Open = %d, want 1", opens)
		}
		r.MetricNot("dcgm_exporter_collect_failures_total{")
		r.MetricNot("dcgm_exporter_collect_unavailable{")
	})
}

// A source that fails to open after a long time is counted as one failure of stage open.
func TestFailedOpenCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{open: func(context.Context) error {
			time.Sleep(25 * time.Second) // a connect that times out, on the bubble's clock
			return fmt.Errorf("connect: %w", gpu.ErrUnavailable)
		}}
		var log strings.Builder
		r := start(t, f, logTo(&log))
		r.Wait(25*time.Second + 100*time.Millisecond)
		r.Has("error unavailable")
		if !r.Loop.Ready() {
			t.Error("Ready = false on a node without a driver, want true: it serves its health")
		}
		r.Metric("dcgm_exporter_collect_failures_total{reason=unavailable,stage=open} 1")
		r.MetricNot("dcgm_exporter_collect_failures_total{reason=timeout")
		r.MetricNot("dcgm_exporter_collect_failures_total{reason=opening")
		r.Wait(27 * time.Second) // between two attempts
		r.Metric("dcgm_exporter_collect_failures_total{reason=unavailable,stage=open} 2")
		r.Wait(27 * time.Second)                    // after the third attempt
		logs(t, &log, "Session is slow to open", 1) // in three attempts
		logs(t, &log, "No data", 1)
	})
}

// The page of the old session is served during a slow reload, but only while it is fresh.
func TestSlowReloadKeepsFreshPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, &fake{gpus: 1}, nil)
		slow := &fake{gpus: 2, open: func(context.Context) error { time.Sleep(45 * time.Second); return nil }}
		done := make(chan error, 1)
		go func() { done <- r.reload(t.Context(), slow, testPlan()) }()
		r.Wait(3*interval - time.Second)
		r.Has("UTIL{0} 50")
		r.Wait(2 * interval / 3 * 2)
		r.Has("error opening")
		r.Wait(interval)
		r.Has("UTIL{1} 50")
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A panic anywhere in a cycle fails only that cycle. The page shows it, and the log has it once, with its stack. While
// an attributor panics, data is served.
func TestPanicFailsOneCycle(t *testing.T) {
	for place, stage := range map[string]string{
		"read": "read", "build": "publish", "publish": "publish", "attributor": "attribute", "open": "open", "close": "",
	} {
		bubble(t, place, func(t *testing.T) {
			var broken atomic.Bool
			fails := func(at string) bool { return at == place && broken.Load() }
			passes := func(at string) {
				if fails(at) {
					panic("a mistake")
				}
			}
			f := &fake{gpus: 1, close: func() { passes("close") }}
			f.open = func(context.Context) error {
				if passes("open"); fails("close") {
					return gpu.ErrUnavailable
				}
				return nil
			}
			f.read = func(ctx context.Context, b *gpu.Batch) error {
				if passes("read"); fails("build") {
					b.Add(99, 0, gpu.Int(1), time.Now()) // a row that does not exist
				}
				return takes(0, 50)(ctx, b)
			}
			var log strings.Builder
			o := &owners{answer: func(context.Context, *gpu.Topology) (*gpu.Owners, error) {
				passes("attributor")
				return nil, nil
			}}
			r := start(t, f, func(opt *loop.Options) {
				logTo(&log)(opt)
				attributing(o)(opt)
				publish := opt.Publish
				opt.Publish = func(s *gpu.Snapshot) {
					if s.Topology != nil {
						passes("publish")
					}
					publish(s)
				}
			})
			r.Has("UTIL{0} 50")
			broken.Store(true)
			if place == "open" || place == "close" {
				f.session.End(gpu.ErrLost)
			}
			r.Wait(4 * interval)
			if served := !strings.HasPrefix(r.Last(), "error "); served != (place == "attributor") {
				t.Errorf("page after a panic = %q, want data: %t", r.Last(), !served)
			}
			if stage != "" {
				r.Metric("dcgm_exporter_collect_failures_total{reason=panic,stage=" + stage + "} ")
				lines := log.String()
				n := strings.Count(lines, " stack=")
				if n != 1 || !strings.Contains(lines, "life_test.go") && !strings.Contains(lines, "snapshot") {
					t.Errorf("log lines with a stack = %d, want 1 with the place of the panic:\n%s", n, lines)
				}
			}
			broken.Store(false)
			r.Wait(time.Minute)
			r.Has("UTIL{0} 50")
			r.Metric("dcgm_exporter_collect_success{} 1")
		})
	}
}

// Each page is replaced before it expires, in every lasting state.
func TestPagesAreReplacedBeforeTheyExpire(t *testing.T) {
	opens := func(after time.Duration) func(context.Context) error {
		return func(context.Context) error { time.Sleep(after); return gpu.ErrUnavailable }
	}
	fails := func(err error) func(context.Context, *gpu.Batch) error {
		return func(context.Context, *gpu.Batch) error { return err }
	}
	for name, f := range map[string]*fake{
		"a source that works":          {gpus: 1},
		"a source that does not open":  {open: opens(0)},
		"a source that cannot be read": {gpus: 1, read: fails(gpu.ErrLost)},
		"a source that opens slowly":   {gpus: 1, open: opens(70 * time.Second)},
		"a source that is read slowly": {gpus: 1, read: takes(70*time.Second, 50)},
		"changing":                     {gpus: 1, read: fails(gpu.ErrTopology)},
	} {
		for _, every := range []time.Duration{100 * time.Millisecond, time.Second, 30 * time.Second, 2 * time.Minute} {
			bubble(t, fmt.Sprint(name, " ", every), func(t *testing.T) {
				valid := time.Time{}
				r := start(t, f, func(o *loop.Options) {
					o.Plan.Interval = every
					o.Publish = func(s *gpu.Snapshot) {
						if !valid.IsZero() && time.Now().After(valid) {
							t.Errorf("page was replaced %v after it expired, want before", time.Since(valid))
						}
						if limit := max(5*time.Second, 5*every); s.ValidFor <= 0 || s.ValidFor > limit {
							t.Errorf("page is valid for %v, want at most %v", s.ValidFor, limit)
						}
						valid = time.Now().Add(s.ValidFor)
					}
				})
				r.Wait(10 * time.Minute)
				if late := time.Since(valid); late > 0 {
					t.Errorf("latest page expired %v ago, want it to be valid", late)
				}
				_ = r.End()                 // wedged
				time.Sleep(2 * time.Minute) // let the pending call end
			})
		}
	}
}

// A slow or hanging attributor does not delay a cycle. Its last result is used until it expires.
func TestAttributionNeverDelaysACycle(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		label bool // whether the page has owners after a minute
	}{
		"slow":  {takes: 1500 * time.Millisecond, label: true},
		"hangs": {takes: time.Hour},
	} {
		bubble(t, name, func(t *testing.T) {
			o := saying(pod("a"), 0)
			r := start(t, &fake{gpus: 1}, func(opt *loop.Options) {
				opt.Plan.Interval = 500 * time.Millisecond
				opt.Attributors = []collector.Attributor{o}
			})
			r.Has("UTIL{0} 50 pod=a")
			o.says(pod("a"), c.takes)
			r.Wait(time.Second)
			pages := len(r.Pages())
			r.Wait(20 * time.Second)
			if n := len(r.Pages()) - pages; n != 40 {
				t.Errorf("pages in 20 s at an interval of 0.5 s = %d, want 40", n)
			}
			r.Has("UTIL{0} 50 pod=a")
			r.Wait(40 * time.Second)
			want := "UTIL{0} 50"
			if c.label {
				want += " pod=a"
			}
			r.Has(want)
			_ = r.End()               // wedged
			time.Sleep(2 * time.Hour) // let the attributor's goroutine end
		})
	}
}

// The first page waits up to two seconds for the owners, but has the time of its read. If an attributor takes longer,
// later pages do not wait for it.
func TestFirstCycleWaitsForOwners(t *testing.T) {
	for _, c := range []struct {
		takes, waits time.Duration
		label        bool
	}{{1900 * time.Millisecond, 1900 * time.Millisecond, true}, {time.Minute, 2 * time.Second, false}} {
		bubble(t, c.takes.String(), func(t *testing.T) {
			begin := time.Now()
			var first time.Duration
			r := start(t, &fake{gpus: 1}, func(opt *loop.Options) {
				opt.Attributors = []collector.Attributor{saying(pod("a"), c.takes)}
				publish := opt.Publish
				opt.Publish = func(s *gpu.Snapshot) {
					if first == 0 && s.Topology != nil {
						first = time.Since(begin)
						if !s.Time.Equal(begin) {
							t.Errorf("the first page is of %v, want the time of its read, %v", s.Time, begin)
						}
					}
					publish(s)
				}
			})
			r.Wait(c.waits)
			if first != c.waits {
				t.Errorf("first page published after %v, want %v", first, c.waits)
			}
			want := "UTIL{0} 50"
			if c.label {
				want += " pod=a"
			}
			r.Has(want)
			_ = r.End() // wedged
			time.Sleep(time.Hour)
		})
	}
}

// withXIDs requests events, so that the session is read once more before it is closed.
func withXIDs(o *loop.Options) {
	o.Plan = testPlan()
	xids := gpu.Derived{Name: "DCGM_EXP_XID_ERRORS_TOTAL", Type: gpu.MetricCounter, HasField: true, Field: 1}
	o.Plan.Derived = append(o.Plan.Derived, xids)
}

// Whatever driver call hangs, Run waits for it only until the close timeout. A supervisor would kill the process
// later. A slow last read that heeds its context does not turn a clean end into a wedged one.
func TestStopDuringDriverCall(t *testing.T) {
	hangRead := func(f *fake, free chan struct{}) {
		f.read = func(context.Context, *gpu.Batch) error { <-free; return nil }
	}
	slowRead := func(f *fake, _ chan struct{}) {
		f.read = func(ctx context.Context, _ *gpu.Batch) error { <-ctx.Done(); return ctx.Err() }
	}
	for name, c := range map[string]struct {
		hang func(*fake, chan struct{})
		wait time.Duration
		want error
	}{
		"read":      {hangRead, interval, gpu.ErrWedged},
		"last read": {hangRead, 0, gpu.ErrWedged}, // the read of events before the close
		"close":     {func(f *fake, free chan struct{}) { f.close = func() { <-free } }, interval, gpu.ErrWedged},

		"slow last read that began before the end":     {slowRead, interval, nil},
		"slow last read that began because of the end": {slowRead, 0, nil},
	} {
		bubble(t, name, func(t *testing.T) {
			f, free := &fake{gpus: 1}, make(chan struct{})
			r := start(t, f, withXIDs)
			f.set(func() { c.hang(f, free) })
			r.Wait(c.wait)
			begin := time.Now()
			if err := r.End(); !errors.Is(err, c.want) {
				t.Errorf("Run: %v, want %v", err, c.want)
			}
			if took := time.Since(begin); took > 4*time.Second {
				t.Errorf("Run returned after %v, want at most 4 s", took)
			}
			if c.want == nil {
				r.allClosed(t)
			}
			close(free)
		})
	}
}

// Reloads requested during a driver call are applied once it returns, unless their caller stopped waiting.
func TestReloadsDuringDriverCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, freed := &fake{gpus: 1}, make(chan struct{})
		r := start(t, f, nil)
		f.reads(func(ctx context.Context, b *gpu.Batch) error {
			<-freed
			return takes(0, 50)(ctx, b)
		})
		r.Wait(interval + interval/4)
		reload := func(ctx context.Context, to *fake) <-chan error {
			done := make(chan error, 1)
			go func() { done <- r.reload(ctx, to, testPlan()) }()
			synctest.Wait()
			return done
		}
		first, abandoned, second := &fake{gpus: 1}, &fake{gpus: 1}, &fake{gpus: 1}
		a := reload(t.Context(), first)
		ctx, cancel := context.WithCancel(t.Context())
		b := reload(ctx, abandoned)
		c := reload(t.Context(), second)
		cancel()
		if err := <-b; !errors.Is(err, context.Canceled) {
			t.Errorf("abandoned reload = %v, want the error of its context", err)
		}
		close(freed)
		for _, done := range []<-chan error{a, c} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if got, want := abandoned.counts(), [2]int{}; got != want {
			t.Errorf("sessions opened and closed by the abandoned reload = %v, want %v", got, want)
		}
		if n := [][2]int{first.counts(), second.counts()}; n[0][0]+n[1][0] != 2 || n[0][1]+n[1][1] != 1 {
			t.Errorf("sessions opened and closed by the two reloads = %v, want 2 opened and 1 closed in total", n)
		}
		if err := r.End(); err != nil {
			t.Error(err)
		}
	})
}

// If the engine samples as often as the loop reads, the reads shift until each closely follows a sample, whatever the
// initial phase. They soon do so again after one read, number 10, that finds an older sample.
func TestReadsFollowSamples(t *testing.T) {
	for _, at := range []time.Duration{interval / 100, interval / 3, interval / 2, interval - time.Millisecond} {
		bubble(t, at.String(), func(t *testing.T) {
			begin := time.Now()
			var ages []time.Duration
			var reads []time.Time
			f := &fake{gpus: 2, read: func(_ context.Context, b *gpu.Batch) error {
				now := time.Now()
				sampled := begin.Add(-interval + at + now.Sub(begin).Truncate(interval))
				if next := sampled.Add(interval); !next.After(now) {
					sampled = next
				}
				if len(reads) == 10 {
					sampled = sampled.Add(-interval / 8)
				}
				ages, reads = append(ages, now.Sub(sampled)), append(reads, now)
				b.Add(0, 0, gpu.Int(1), sampled)
				b.Add(1, 0, gpu.Int(1), sampled)
				return nil
			}}
			r := start(t, f, nil)
			r.Wait(30 * interval)
			if len(reads) < 29 || len(reads) > 33 {
				t.Errorf("reads in 30 intervals = %d, want 29 to 33", len(reads))
			}
			for i, age := range ages {
				if age > interval/10 && i >= 2 && (i < 10 || i >= 20) {
					t.Errorf("read %d: sample is %v old, want less than a tenth of %v", i, age, interval)
				}
			}
		})
	}
}

// If no read can closely follow the samples, the shifts become less and less frequent.
func TestReadsOfEngineWithoutPhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		f := &fake{gpus: 2, read: func(_ context.Context, b *gpu.Batch) error {
			reads++
			b.Add(0, 0, gpu.Int(1), time.Now())
			b.Add(1, 0, gpu.Int(1), time.Now().Add(-interval/2))
			return nil
		}}
		r := start(t, f, nil)
		r.Wait(200 * interval)
		if reads > 206 {
			t.Errorf("reads in 200 intervals = %d, want at most 206", reads)
		}
	})
}

// Owners belong to one topology. After a topology change, the exporter uses neither earlier nor pending answers.
func TestOwnersBelongToOneTopology(t *testing.T) {
	setUp := func(t *testing.T) (*rig, *owners) {
		o := saying(pod("a"), 0)
		r := start(t, &fake{gpus: 1}, attributing(o))
		r.Has("UTIL{0} 50 pod=a")
		return r, o
	}
	bubble(t, "owners known before the topology changed", func(t *testing.T) {
		r, o := setUp(t)
		o.answers(func(context.Context, *gpu.Topology) (*gpu.Owners, error) { return nil, gpu.ErrUnavailable })
		r.Wait(interval)
		r.Has("UTIL{0} 50 pod=a") // an error keeps the last known owners of the same topology
		r.fake.session.End(gpu.ErrTopology)
		synctest.Wait()
		r.Has("UTIL{0} 50")
	})
	bubble(t, "request pending when the topology changed", func(t *testing.T) {
		r, o := setUp(t)
		late, about := make(chan struct{}), []*gpu.Topology{}
		o.answers(func(_ context.Context, topology *gpu.Topology) (*gpu.Owners, error) {
			about = append(about, topology)
			if len(about) > 1 {
				return pod("b"), nil
			}
			<-late
			return pod("a"), nil
		})
		r.Wait(interval + interval/2) // the request hangs while cycles continue
		before := o.calls
		r.fake.session.End(gpu.ErrTopology)
		synctest.Wait()
		if o.calls != before {
			t.Errorf("new requests while one was pending = %d, want 0", o.calls-before)
		}
		close(late)
		synctest.Wait()
		r.Has("UTIL{0} 50 pod=b") // the owners of the new topology are requested at once
		if len(about) != 2 || about[0] == about[1] {
			t.Errorf("requests = %d about topologies %v, want 2 about different ones", len(about), about)
		}
	})
}

// If one of two attributors fails, the owners of devices that neither reports are unknown. A device owned by a pod
// stays known, because a job cannot change its owner.
func TestOneAttributorFails(t *testing.T) {
	pod := gpu.Owner{Namespace: "ml", Pod: "a", PodUID: "1", Container: "c"}
	job := gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: "7"}}}
	by := func(o gpu.Owner) []gpu.Use { return []gpu.Use{{Owners: []gpu.Owner{o}}, {}} }
	for name, tt := range map[string]struct {
		uses    []gpu.Use // reported by the attributor that succeeds
		away    bool
		known   []string // GPUs whose unattributed utilization is known
		unknown []string
	}{
		"both attributors answer": {uses: by(pod), known: []string{"0", "1"}},
		"only the pods are known": {uses: by(pod), away: true, known: []string{"0"}, unknown: []string{"1"}},
		"only the jobs are known": {uses: by(job), away: true, unknown: []string{"0", "1"}},
		"one list of owners is incomplete": {
			uses: []gpu.Use{{Incomplete: true}}, known: []string{"1"}, unknown: []string{"0"},
		},
	} {
		bubble(t, name, func(t *testing.T) {
			other := saying(&gpu.Owners{}, 0)
			if tt.away {
				other.answers(func(context.Context, *gpu.Topology) (*gpu.Owners, error) {
					return nil, gpu.ErrUnavailable
				})
			}
			r := start(t, &fake{gpus: 2}, attributing(saying(&gpu.Owners{Uses: tt.uses}, 0), other))
			r.Wait(interval)
			line := func(gpu string) string {
				return "dcgm_gpu_unattributed_utilization_ratio{-1}[{gpu " + gpu + "} {UUID GPU-" + gpu + "}] "
			}
			for _, gpu := range tt.known {
				if !strings.Contains(r.Last(), line(gpu)+"0") {
					t.Errorf("missing %s in page:\n%s", line(gpu), r.Last())
				}
			}
			for _, gpu := range tt.unknown {
				r.Has(line(gpu))
			}
			const why = "dcgm_exporter_attribution_unavailable{-1}[{what owners} {reason no_data}] 1"
			if strings.Contains(r.Last(), why) != (len(tt.unknown) > 0) {
				t.Errorf("page has %s: %t, want %t", why, len(tt.unknown) == 0, len(tt.unknown) > 0)
			}
		})
	}
}

// factsPlan requests the families that report facts: health, peers and placement.
func factsPlan(o *loop.Options) {
	o.Plan = testPlan()
	o.Plan.Health, o.Plan.Peers, o.Plan.Placement = gpu.KindsOf(gpu.KindGPU), true, true
	o.Plan.Derived = []gpu.Derived{
		{Name: "DCGM_EXP_GPU_PAIR_INFO"}, {Name: "DCGM_EXP_GPU_AFFINITY_INFO"},
		{Name: "DCGM_EXP_GPU_HEALTH_STATUS"}, {Name: "DCGM_EXP_P2P_STATUS"},
	}
}

// threeGPUs returns GPUs with different placements and links. Their GPU numbers differ from their rows.
func threeGPUs() *gpu.Topology {
	device := func(id uint32, uuid string, place *gpu.Place) gpu.Device {
		return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, UUID: uuid, Place: place}
	}
	t := gpu.NewTopology([]gpu.Device{
		device(1, "GPU-b", &gpu.Place{NUMANode: 0, CPUs: "0-31,64-95"}),
		device(2, "GPU-c", &gpu.Place{NUMANode: -1, CPUs: "32-63"}),
		device(5, "GPU-f", nil),
	})
	t.Pairs = []gpu.Pair{
		{A: 0, B: 1, Path: gpu.PathNode, NVLinks: 12},
		{A: 0, B: 2, Path: gpu.PathSystem},
		{A: 1, B: 2, NVLinks: 4},
	}
	return t
}

func TestReportedFacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{topology: threeGPUs()}
		f.read = func(_ context.Context, b *gpu.Batch) error {
			for row := range 2 {
				b.Add(row, 0, gpu.Int(50), time.Now())
			}
			b.FailPart(2, gpu.PartEntity, gpu.ErrLost)
			b.Health = append(b.Health,
				gpu.HealthCheck{Row: 0, Watch: "PCIE"},
				gpu.HealthCheck{Row: 0, Watch: "MEM", Code: "DCGM_FR_VOLATILE_DBE_DETECTED", Result: 20},
				gpu.HealthCheck{Row: 0, Watch: "NVLINK", Code: "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD", Result: 10},
				gpu.HealthCheck{Row: 0, Watch: "ALL"})
			b.FailPart(1, gpu.PartHealthChecks, gpu.ErrPermission)
			b.Peers = append(b.Peers,
				gpu.PeerState{Row: 0, Peer: 1, Status: "OK"},
				gpu.PeerState{Row: 1, Peer: 0, Status: "DisabledByRegKey"},
				gpu.PeerState{Row: 1, Peer: 2, Status: "Melted"})
			return nil
		}
		r := start(t, f, factsPlan)
		const health = "DCGM_EXP_GPU_HEALTH_STATUS{0}[{health_watch "
		const memory = "} {health_error_code DCGM_FR_VOLATILE_DBE_DETECTED} {health_error_severity ISOLATE} " +
			"{health_error_category HARDWARE_MEMORY}] 20"
		for range 2 { // the second cycle reuses the families of the first
			r.Has(
				"DCGM_EXP_GPU_PAIR_INFO{0}[{peer_gpu 2} {peer_uuid GPU-c} {path NODE} {nvlinks 12}] 1",
				"DCGM_EXP_GPU_PAIR_INFO{0}[{peer_gpu 5} {peer_uuid GPU-f} {path SYS} {nvlinks 0}] 1",
				"DCGM_EXP_GPU_PAIR_INFO{1}[{peer_gpu 5} {peer_uuid GPU-f} {nvlinks 4}] 1",
				"DCGM_EXP_GPU_AFFINITY_INFO{0}[{numa_node 0} {cpu_affinity 0-31,64-95}] 1",
				"DCGM_EXP_GPU_AFFINITY_INFO{1}[{cpu_affinity 32-63}] 1",
				health+"PCIE} {health_error_code DCGM_FR_OK} "+
					"{health_error_severity NONE} {health_error_category NONE}] 0",
				health+"MEM"+memory,
				health+"ALL"+memory, // DCGM reports only this check. That does not mean that the other checks passed.
				"unavailable{DCGM_EXP_GPU_HEALTH_STATUS 1} permission",
				"DCGM_EXP_P2P_STATUS{0}[{peer_gpu 2} {link_status OK}] 0",
				"DCGM_EXP_P2P_STATUS{1}[{peer_gpu 1} {link_status DisabledByRegKey}] 4",
				"DCGM_EXP_P2P_STATUS{1}[{peer_gpu 5} {link_status Melted}] 6",
			)
			r.HasNot("DCGM_EXP_GPU_AFFINITY_INFO{2}")
			r.HasNot("unavailable{DCGM_EXP_P2P")
			r.HasNot("unavailable{DCGM_EXP_GPU_PAIR")
			r.HasNot("unavailable{DCGM_EXP_GPU_AFFINITY") // entity_up of the lost GPU says enough
			r.Wait(interval)
		}
		f.reads(func(_ context.Context, b *gpu.Batch) error {
			b.Add(0, 0, gpu.Int(50), time.Now())
			b.FailPart(gpu.AllRows, gpu.PartHealthChecks, gpu.ErrVersion)
			b.FailPart(gpu.AllRows, gpu.PartPeerStates, gpu.ErrNotSupported)
			return nil
		})
		r.Wait(interval)
		r.Has("UTIL{0} 50", "unavailable{DCGM_EXP_GPU_HEALTH_STATUS -1} version")
		r.Has("unavailable{DCGM_EXP_P2P_STATUS -1} not_supported")
		r.HasNot("DCGM_EXP_GPU_HEALTH_STATUS")
		r.HasNot("DCGM_EXP_P2P_STATUS")
	})
}

// A fact that the source does not report is not supported. Facts about pairs need two GPUs.
func TestUnavailableFacts(t *testing.T) {
	for gpus, pairs := range map[int]string{1: "no_entity", 2: "not_supported"} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, &fake{gpus: gpus}, factsPlan)
			r.Has("unavailable{DCGM_EXP_GPU_PAIR_INFO -1} "+pairs, "unavailable{DCGM_EXP_P2P_STATUS -1} "+pairs)
			r.Has("unavailable{DCGM_EXP_GPU_AFFINITY_INFO -1} not_supported")
			r.Has("unavailable{DCGM_EXP_GPU_HEALTH_STATUS -1} not_supported")
			r.HasNot("DCGM_EXP")
		})
	}
}
