package collector_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/loop"
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
		r.Stop()
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
			r.Stop()
		})
	}
}
