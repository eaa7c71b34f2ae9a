package accounting_test

import (
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/accounting"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/snapshot"
)

// stepped returns t as time.Now says it after the wall clock was set by a step: package time sets
// none, so that this writes the monotonic reading, its second word.
func stepped(t time.Time, step time.Duration) time.Time {
	t = t.Add(step)
	(*[2]int64)(unsafe.Pointer(&t))[1] -= int64(step)
	return t
}

// A wall clock that is set is no GPU time, and takes none.
func TestClockThatIsSet(t *testing.T) {
	plan := accounting.Extend(&gpu.Plan{Interval: interval})
	top := gpu.NewTopology(boards(1))
	for name, step := range map[string]time.Duration{"not": 0, "forward": 15 * time.Second, "far forward": time.Hour, "back": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			accountant := accounting.New(accounting.Options{Registerer: prometheus.NewRegistry()})
			builder := snapshot.NewBuilder(top, plan, []snapshot.Deriver{accountant.Deriver(nil)})
			owners := &gpu.Owners{Generation: 1, Uses: pods(gpu.SharingNone, 0, 1)}
			begin := time.Now()
			var got reported
			for i := range 3 {
				now := begin.Add(time.Duration(i) * interval)
				if i == 2 {
					now = stepped(now, step)
				}
				var batch gpu.Batch
				for field, v := range map[gpu.FieldID]gpu.Value{203: gpu.Int(60), 156: gpu.Int(int64(1e6 * i))} {
					for j := range plan.Fields {
						if plan.Fields[j].ID == field {
							batch.Add(0, j, v, now)
						}
					}
				}
				got = shares(builder.Build(snapshot.Reading{Kind: snapshot.Served, Batch: &batch, Owners: owners, Begin: now, Now: now}))
			}
			const a = "GPU-0/ ns/b"
			want := of{podAllocated: 20, podActive: 12, podEnergy: 2000}
			for family, v := range want {
				if diff := cmp.Diff(v, got[family][a]); diff != "" {
					t.Errorf("%s (-want +got):\n%s", family, diff)
				}
			}
		})
	}
}
