//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// slowDGX returns a source with go-nvml's DGX A100 mock. One of its GPUs takes half a second for each clock. All other
// functions of the mock would panic.
func slowDGX(slow int) *Source {
	d := dgxa100.New()
	d.LookupSymbolFunc = func(name string) error {
		if name != "nvmlDeviceGetClockInfo" {
			return errors.New("no " + name)
		}
		return nil
	}
	d.InitFunc = func() gonvml.Return { return gonvml.SUCCESS }
	d.ShutdownFunc = func() gonvml.Return { return gonvml.SUCCESS }
	for i := range d.Devices {
		d.Devices[i].(*server.Device).GetClockInfoFunc = func(gonvml.ClockType) (uint32, gonvml.Return) {
			if i == slow {
				time.Sleep(500 * time.Millisecond)
			}
			return 1410, gonvml.SUCCESS
		}
	}
	return &Source{api: d, probe: func() error { return nil }, resident: func() bool { return false }}
}

// If a GPU is slow, only that GPU exceeds its share of the time. The other GPUs are read. The last GPU may use all time
// that is left.
func TestOnlySlowGPUIsLate(t *testing.T) {
	plan := &gpu.Plan{Devices: gpu.Selector{Flex: true}}
	for _, id := range []gpu.FieldID{catalog.SMClock, catalog.MemClock} {
		entry, _ := catalog.ByID(id)
		plan.Fields = append(plan.Fields, entry.Field())
	}
	for slow, isLate := range map[int]bool{0: true, 1: true, 7: false} {
		synctest.Test(t, func(t *testing.T) {
			s, err := slowDGX(slow).Open(t.Context(), plan)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var b gpu.Batch
			if err := s.Read(ctx, gpu.ReadRequest{}, &b); err != nil {
				t.Fatal(err)
			}
			isLateOf := func(f gpu.Fault) bool { return f.Part == gpu.PartEntity && errors.Is(f.Err, gpu.ErrTimeout) }
			for row := range 8 {
				late := slices.ContainsFunc(b.Faults, func(f gpu.Fault) bool { return f.Row == row && isLateOf(f) })
				sampled := slices.ContainsFunc(b.Samples, func(x gpu.Sample) bool { return x.Row == row })
				if late != (row == slow && isLate) || sampled == late {
					t.Errorf("slow GPU %d: GPU %d is late = %v, has samples = %v; want only a slow GPU late", slow, row,
						late, sampled)
				}
			}
		})
	}
}
