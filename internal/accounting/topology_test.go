package accounting_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// shuffled is a topology of some of eight GPUs, in any order, some of them partitioned.
func shuffled(r *rand.Rand) *gpu.Topology {
	all := boards(8)
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var list []gpu.Device
	for _, d := range all[:1+r.IntN(8)] {
		list = append(list, d)
		for i := range uint32(r.IntN(3)) {
			if d.GPU%2 == 0 {
				break
			}
			list = append(list, gpu.Device{
				Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 10*d.GPU + i, ParentKind: gpu.KindGPU, Parent: d.Entity.ID},
				GPU:    d.GPU, UUID: d.UUID, InstanceID: i + 1, Profile: "1g.10gb",
			})
		}
	}
	return gpu.NewTopology(list)
}

// owned gives every entity pods that are named after it.
func owned(r *rand.Rand, t *gpu.Topology) *gpu.Owners {
	o := &gpu.Owners{Uses: make([]gpu.Use, len(t.Devices)), Labels: make([][]gpu.Label, len(t.Devices))}
	for row := range t.Devices {
		for i := range r.IntN(4) {
			pod := fmt.Sprintf("of-%s-%d", t.Devices[row].UUID, i)
			o.Uses[row].Owners = append(o.Uses[row].Owners, gpu.Owner{Namespace: "ns", Pod: pod, PodUID: pod, Container: "c", Replica: fmt.Sprint(i)})
		}
		o.Uses[row].Replicas = 4
	}
	return o
}

// Whatever becomes of the topology while the kubelet is away or late, a page never names a pod of
// another GPU, and nothing panics.
func TestTopologyChangesWhileOwnersAreAbsent(t *testing.T) {
	plan := &gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}, Fields: []gpu.Field{
		{ID: 203, Name: "UTIL", Levels: gpuOnly, Min: 1}, {ID: 252, Name: "FB", Levels: gpuOnly | gpu.KindsOf(gpu.KindGPUInstance), Min: 1},
	}, Counters: []gpu.Counter{{Name: "UTIL", Field: 0, Scale: 1}, {Name: "FB", Field: 1, Scale: 1}}}
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		accountant := accounting.New(accounting.Options{VirtualGPUs: seed%2 == 0, Registerer: prometheus.NewRegistry()})
		encoder := exposition.NewEncoder(exposition.Options{})
		deriver := accountant.Deriver(func(pid uint32) ([]string, error) { return []string{fmt.Sprintf("of-GPU-%d-%d", pid/10, pid%10)}, nil })
		var (
			b       *snapshot.Builder
			top     *gpu.Topology
			owners  *gpu.Owners
			batch   gpu.Batch
			full    = accounting.Extend(plan)
			now     = time.Unix(1e9, 0)
			cycles  = 15
			entered = func() {
				top, owners = shuffled(r), nil
				b = snapshot.NewBuilder(top, full, []snapshot.Deriver{deriver})
			}
		)
		entered()
		for range cycles {
			switch r.IntN(4) {
			case 0:
				entered()
			case 1:
				owners = owned(r, top)
			case 2:
				if r.IntN(3) == 0 {
					owners = nil
				}
			}
			now = now.Add(interval)
			batch.Reset()
			batch.RequestProcesses = top.ProcessRows()
			for row := range top.Devices {
				for i := range full.Fields {
					batch.Add(row, i, gpu.Int(r.Int64N(100)), now)
				}
				for range r.IntN(3) {
					batch.Processes = append(batch.Processes, gpu.Process{Row: row, PID: uint32(r.IntN(80)), Busy: gpu.Float(r.Float64()), Memory: gpu.Int(1), Time: now.UnixNano()})
				}
			}
			s := b.Build(snapshot.Reading{Kind: snapshot.Served, Batch: &batch, Owners: owners, Begin: now, Now: now})
			page := encoder.Encode(s)
			for line := range strings.Lines(string(page.Bytes())) {
				if at := strings.Index(line, `pod="of-`); at >= 0 {
					uuid, _, _ := strings.Cut(line[at+len(`pod="of-`):], `"`)
					uuid = uuid[:strings.LastIndexByte(uuid, '-')]
					if owners == nil || !strings.Contains(line, `UUID="`+uuid+`"`) {
						t.Fatalf("seed %d: a pod of another GPU, or of none: %s", seed, line)
					}
				}
			}
		}
	}
}
