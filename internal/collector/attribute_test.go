package collector_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Owners belong to one topology. After a topology change, the exporter uses neither earlier nor pending answers.
func TestOwnersBelongToOneTopology(t *testing.T) {
	setUp := func(t *testing.T) (*rig, *owners) {
		o := saying(pod("a"), 0)
		r := start(t, &fake{gpus: 1}, attributing(o))
		r.Has("UTIL{0} 50 pod=a")
		return r, o
	}
	t.Run("owners known before the topology changed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, o := setUp(t)
			o.answers(func(context.Context, *gpu.Topology) (*gpu.Owners, error) { return nil, gpu.ErrUnavailable })
			r.Wait(interval)
			r.Has("UTIL{0} 50 pod=a") // an error keeps the last known owners of the same topology
			r.fake.session.End(gpu.ErrTopology)
			synctest.Wait()
			r.Has("UTIL{0} 50")
			r.Stop()
		})
	})
	t.Run("request pending when the topology changed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
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
			r.Stop()
		})
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
					t.Errorf("page has %s: %t, want the contrary", why, len(tt.unknown) == 0)
				}
				r.Stop()
			})
		})
	}
}
