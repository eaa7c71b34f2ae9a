package accounting_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

const maxAccounts = 4096

// crowd returns the uses by n pods that own replicas of the given number of GPUs.
func crowd(gpus, n int, name string) []gpu.Use {
	uses := make([]gpu.Use, gpus)
	for i := range n {
		use := &uses[i%gpus]
		pod := fmt.Sprint(name, i)
		use.Owners = append(use.Owners, gpu.Owner{
			Namespace: "ns", Pod: pod, PodUID: pod, Container: "c", Replica: fmt.Sprint(i / gpus),
		})
		use.Replicas = n/gpus + 1
		use.Sharing = gpu.SharingTimeSlicing
	}
	return uses
}

func idle(gpus int, uses []gpu.Use) moment {
	m := silence(uses, gpus)
	for i := range gpus {
		m.util[i], m.memory[i], m.energy[i] = gpu.Int(50), gpu.Int(1), gpu.Int(0)
	}
	return m
}

// Each owner above the limit is counted once. Owners that have an account keep it.
func TestLiveAccountsAreKept(t *testing.T) {
	const gpus, live = 64, 75
	old, gone := crowd(gpus, live, "a"), crowd(gpus, maxAccounts-live, "b")
	join := func(a, b []gpu.Use) []gpu.Use {
		uses := make([]gpu.Use, gpus)
		for i := range uses { // new owners come first, to show that the order does not matter
			uses[i] = gpu.Use{Replicas: 128, Owners: slices.Concat(b[i].Owners, a[i].Owners)}
		}
		return uses
	}
	fresh, late := join(old, crowd(gpus, maxAccounts-live+100, "c")), join(old, crowd(gpus, 10, "d"))
	p := &play{top: gpu.NewTopology(boards(gpus)), moments: []moment{
		idle(gpus, join(old, gone)),
		idle(gpus, old),   // the other accounts become dormant
		idle(gpus, fresh), // dormant accounts make room for all but 100 of the owners
		idle(gpus, fresh),
		idle(gpus, slices.Clone(fresh)), // the same owners again
		idle(gpus, slices.Clone(fresh)), // and once more
		idle(gpus, late),
	}}
	lived := []int{}
	reg := p.run(t, func(i int, s *gpu.Snapshot) {
		count, all := 0, shares(s)[podAllocated]
		if len(all) > maxAccounts {
			t.Errorf("cycle %d: accounts = %d, want at most %d", i, len(all), maxAccounts)
		}
		for key, v := range all {
			if strings.Contains(key, "/a") && (v > 0 || len(lived) == 0) {
				count++
			}
		}
		lived = append(lived, count)
	})
	const help = "Owners without an account because the maximum number of accounts was reached."
	const name = "dcgm_exporter_attribution_owners_dropped_total"
	page := "# HELP " + name + " " + help + "\n# TYPE " + name + " counter\n" + name + " 100\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(page), name); err != nil {
		t.Error(err)
	}
	for i, count := range lived {
		if count != live {
			t.Errorf("cycle %d: accounts that continue = %d, want %d", i, count, live)
		}
	}
}

// If only one owner of a device has an account, it is not charged for the use of the others.
func TestDroppedOwnersAreNotChargedToTheRest(t *testing.T) {
	const gpus, most = 17, 256 // the other GPUs take all 16 × 256 accounts
	uses := make([]gpu.Use, gpus)
	for i := range uses {
		uses[i] = crowd(1, most, fmt.Sprint("g", i, "-"))[0]
	}
	uses[0] = gpu.Use{Replicas: 2, Owners: crowd(1, 1, "first")[0].Owners}
	both := slices.Clone(uses)
	both[0].Owners = slices.Concat(uses[0].Owners, crowd(1, 1, "second")[0].Owners)
	p := &play{top: gpu.NewTopology(boards(gpus))}
	p.moments = []moment{idle(gpus, uses), idle(gpus, both), idle(gpus, both)}
	p.moments[2].procs = []gpu.Process{process(1000, 0.5, 1)} // the second pod's process
	p.run(t, func(i int, s *gpu.Snapshot) {
		want := 0.0
		if i == 0 {
			want = 0.5
		}
		if v, there := shares(s)[podUtil]["GPU-0/ ns/first0"]; !there || v != want {
			t.Errorf("cycle %d: utilization of the first pod = %v (present: %t), want %v", i, v, there, want)
		}
	})
}

// BenchmarkShares runs cycles of a node with 110 pods. Each pod owns three replicas on eight GPUs, and has one process
// that uses all three.
func BenchmarkShares(b *testing.B) {
	const gpus, pods = 8, 110
	owners, uids := &gpu.Owners{Uses: crowd(gpus, 3*pods, "job-")}, map[uint32][]string{}
	m := idle(gpus, nil)
	for i := range 3 * pods {
		name, p := fmt.Sprint("job-", i/3), process(uint32(1+i/3), 0.02, 1)
		owner := &owners.Uses[i%gpus].Owners[i/gpus]
		owner.Pod, owner.PodUID = name, name
		uids[p.PID], p.Row = []string{name}, i%gpus
		m.procs = append(m.procs, p)
	}
	for row := range gpus {
		m.means = append(m.means, gpu.Utilization{Row: row, Busy: gpu.Float(0.9)})
	}
	deriver := accounting.New(prometheus.NewRegistry(), false).Deriver(
		func(pid uint32) ([]string, error) { return uids[pid], nil })
	plan := accounting.Extend(&gpu.Plan{Interval: interval, Devices: gpu.Selector{Flex: true}})
	top := gpu.NewTopology(boards(gpus))
	builder, history := snapshot.NewBuilder(top, plan, []snapshot.Deriver{deriver}), &play{top: top}
	var batch gpu.Batch
	now, joules := time.Unix(1e9, 0), int64(0)
	cycle := func() *gpu.Snapshot {
		now, joules = now.Add(interval), joules+7e6
		for row := range gpus {
			m.energy[row] = gpu.Int(joules)
		}
		batch.Reset()
		history.fill(&batch, &m, plan, top, now)
		return builder.Build(snapshot.Reading{Batch: &batch, Owners: owners, Begin: now, Now: now})
	}
	cycle()
	if known := len(shares(cycle())[podUtil]); known < pods {
		b.Fatalf("known shares = %d, want at least one for each of %d pods", known, pods)
	}
	b.ReportAllocs()
	for b.Loop() {
		cycle()
	}
}
