package collector_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
)

// Owners belong to one topology. After a topology change, the exporter uses neither earlier nor pending answers.
func TestOwnersBelongToOneTopology(t *testing.T) {
	good := &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: "a"}}}}
	says := func(context.Context, *gpu.Topology) (*gpu.Owners, error) { return good, nil }
	setUp := func(t *testing.T) (*rig, *owners, func(answer func(context.Context, *gpu.Topology) (*gpu.Owners, error))) {
		o := &owners{answer: says}
		r := start(t, &fake{gpus: 1}, func(opt *loop.Options) { opt.Attributors = []collector.Attributor{o} })
		r.Has("UTIL{0} 50 pod=a")
		return r, o, func(answer func(context.Context, *gpu.Topology) (*gpu.Owners, error)) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.answer = answer
		}
	}
	t.Run("owners known before the topology changed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, _, answers := setUp(t)
			answers(func(context.Context, *gpu.Topology) (*gpu.Owners, error) { return nil, gpu.ErrUnavailable })
			r.Wait(interval)
			r.Has("UTIL{0} 50 pod=a") // an error keeps the last known owners of the same topology
			r.fake.session.end(gpu.ErrTopology)
			synctest.Wait()
			r.Has("UTIL{0} 50")
			r.Stop()
		})
	})
	t.Run("request pending when the topology changed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, o, answers := setUp(t)
			late, about := make(chan struct{}), []*gpu.Topology{}
			answers(func(_ context.Context, topology *gpu.Topology) (*gpu.Owners, error) {
				about = append(about, topology)
				if len(about) > 1 {
					return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: "b"}}}}, nil
				}
				<-late
				return good, nil
			})
			r.Wait(interval + interval/2) // the request hangs while cycles continue
			before := o.calls
			r.fake.session.end(gpu.ErrTopology)
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
			r.Stop()
		})
	})
}

// If one of two attributors fails, the owners of devices that neither reports are unknown. A device owned by a pod
// stays known, because a job cannot change its owner.
func TestOneAttributorFails(t *testing.T) {
	pod := gpu.Owner{Namespace: "ml", Pod: "a", PodUID: "1", Container: "c"}
	job := gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: "7"}}}
	uses := func(first, second *gpu.Owner) []gpu.Use {
		list := make([]gpu.Use, 2)
		for i, o := range []*gpu.Owner{first, second} {
			if o != nil {
				list[i].Owners = []gpu.Owner{*o}
			}
		}
		return list
	}
	for name, tt := range map[string]struct {
		uses    []gpu.Use // reported by the attributor that succeeds
		away    bool
		known   []string // GPUs whose unattributed utilization is known
		unknown []string
	}{
		"both attributors answer":          {uses: uses(&pod, nil), known: []string{"0", "1"}},
		"only the pods are known":          {uses: uses(&pod, nil), away: true, known: []string{"0"}, unknown: []string{"1"}},
		"only the jobs are known":          {uses: uses(&job, nil), away: true, unknown: []string{"0", "1"}},
		"one list of owners is incomplete": {uses: []gpu.Use{{Incomplete: true}}, known: []string{"1"}, unknown: []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := &owners{answer: func(context.Context, *gpu.Topology) (*gpu.Owners, error) {
					return &gpu.Owners{Uses: tt.uses}, nil
				}}
				other := &owners{answer: func(context.Context, *gpu.Topology) (*gpu.Owners, error) {
					if tt.away {
						return nil, gpu.ErrUnavailable
					}
					return &gpu.Owners{}, nil
				}}
				r := start(t, &fake{gpus: 2}, func(opt *loop.Options) { opt.Attributors = []collector.Attributor{answers, other} })
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
				if why := "dcgm_exporter_attribution_unavailable{-1}[{what owners} {reason no_data}] 1"; strings.Contains(r.Last(), why) != (len(tt.unknown) > 0) {
					t.Errorf("page has %s: %t, want %t", why, strings.Contains(r.Last(), why), len(tt.unknown) > 0)
				}
				r.Stop()
			})
		})
	}
}
