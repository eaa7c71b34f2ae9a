//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
)

// dgx is go-nvml's DGX A100, made to answer what the sessions of these tests ask. What it cannot
// answer it does not have: its functions would panic.
type dgx struct {
	*server.Server
	lost   map[int]bool
	gone   bool
	inits  int
	places map[int][]*mock.Device // MIG devices by GPU
}

func newDGX() *dgx {
	d := &dgx{Server: dgxa100.New(), lost: map[int]bool{}, places: map[int][]*mock.Device{}}
	has := map[string]bool{
		"nvmlDeviceGetPciInfo_v3": true, "nvmlDeviceGetMinorNumber": true, "nvmlDeviceGetClockInfo": true,
		"nvmlDeviceGetMemoryInfo": true, "nvmlDeviceGetMigMode": true, "nvmlDeviceGetMaxMigDeviceCount": true,
		"nvmlDeviceGetMigDeviceHandleByIndex": true, "nvmlDeviceGetGpuInstanceId": true,
		"nvmlDeviceGetComputeInstanceId": true, "nvmlSystemGetDriverVersion": true, "nvmlSystemGetNVMLVersion": true,
	}
	d.LookupSymbolFunc = func(name string) error {
		if !has[name] {
			return fmt.Errorf("no %s", name)
		}
		return nil
	}
	d.InitFunc = func() gonvml.Return { d.inits++; return gonvml.SUCCESS }
	d.ShutdownFunc = func() gonvml.Return { d.inits--; return gonvml.SUCCESS }
	d.DeviceGetCountFunc = func() (int, gonvml.Return) {
		if d.gone {
			return 0, gonvml.ERROR_UNINITIALIZED
		}
		return len(d.Devices), gonvml.SUCCESS
	}
	for i := range d.Devices {
		device := d.Devices[i].(*server.Device)
		device.GetClockInfoFunc = func(gonvml.ClockType) (uint32, gonvml.Return) {
			if d.lost[i] {
				return 0, gonvml.ERROR_GPU_IS_LOST
			}
			return 1410, gonvml.SUCCESS
		}
		device.GetMaxMigDeviceCountFunc = func() (int, gonvml.Return) { return 7, gonvml.SUCCESS }
		device.GetMigDeviceHandleByIndexFunc = func(place int) (gonvml.Device, gonvml.Return) {
			if place >= len(d.places[i]) {
				return nil, gonvml.ERROR_NOT_FOUND
			}
			return d.places[i][place], gonvml.SUCCESS
		}
	}
	return d
}

// cut makes a GPU instance with one compute instance, in the server's own books, and the MIG device
// that NVML would hand out for it.
func (d *dgx) cut(t *testing.T, index, profile int) {
	t.Helper()
	device := d.Devices[index].(*server.Device)
	device.SetMigMode(gonvml.DEVICE_MIG_ENABLE)
	info, ret := device.GetGpuInstanceProfileInfo(profile)
	if ret != gonvml.SUCCESS {
		t.Fatalf("profile %d: %v", profile, ret)
	}
	gi, ret := device.CreateGpuInstance(&info)
	if ret != gonvml.SUCCESS {
		t.Fatalf("instance of profile %d: %v", profile, ret)
	}
	created, _ := gi.GetInfo()
	name := fmt.Sprintf("%s MIG %dg.%dgb", device.Config.Name, info.SliceCount, (info.MemorySizeMB+1023)/1024)
	d.places[index] = append(d.places[index], &mock.Device{
		GetGpuInstanceIdFunc:     func() (int, gonvml.Return) { return int(created.Id), gonvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, gonvml.Return) { return 0, gonvml.SUCCESS },
		GetUUIDFunc:              func() (string, gonvml.Return) { return fmt.Sprintf("MIG-%d-%d", index, created.Id), gonvml.SUCCESS },
		GetNameFunc:              func() (string, gonvml.Return) { return name, gonvml.SUCCESS },
		GetMemoryInfoFunc: func() (gonvml.Memory, gonvml.Return) {
			return gonvml.Memory{Total: info.MemorySizeMB << 20, Free: info.MemorySizeMB << 20}, gonvml.SUCCESS
		},
	})
}

func (d *dgx) source() *Source {
	return &Source{opt: Options{}.withDefaults(), api: d, probe: func() error { return nil }, resident: func() bool { return false }}
}

func mockPlan(t *testing.T) *gpu.Plan {
	plan := &gpu.Plan{Devices: gpu.Selector{Flex: true}}
	for _, id := range []gpu.FieldID{100, 230, 250, 252, 1001} {
		entry, ok := catalog.ByID(id)
		if !ok {
			t.Fatalf("no field %d", id)
		}
		plan.Fields = append(plan.Fields, entry.Field())
	}
	return plan
}

func TestContractOverMockServer(t *testing.T) {
	var d *dgx
	contract.Run(t, contract.Fixture{
		New: func(t *testing.T) collector.Source {
			d = newDGX()
			d.cut(t, 3, gonvml.GPU_INSTANCE_PROFILE_1_SLICE)
			d.cut(t, 3, gonvml.GPU_INSTANCE_PROFILE_3_SLICE)
			return collector.SourceOf(d.source().Open)
		},
		Plan:        mockPlan(t),
		Lose:        func(_ *testing.T, row int) { d.lost[row] = true },
		Change:      func(t *testing.T) { d.cut(t, 3, gonvml.GPU_INSTANCE_PROFILE_1_SLICE) },
		Kill:        func(*testing.T) { d.gone = true },
		OpenHandles: func(*testing.T) int { return d.inits },
	})
}

func TestInstancesOfMockServer(t *testing.T) {
	d := newDGX()
	for _, profile := range []int{gonvml.GPU_INSTANCE_PROFILE_3_SLICE, gonvml.GPU_INSTANCE_PROFILE_2_SLICE, gonvml.GPU_INSTANCE_PROFILE_1_SLICE} {
		d.cut(t, 7, profile)
	}
	s, err := d.source().Open(t.Context(), mockPlan(t))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var got []string
	for _, dev := range s.Topology().Devices[8:] {
		got = append(got, fmt.Sprintf("%v %s %d", dev.Entity, dev.Profile, dev.InstanceID))
	}
	want := []string{
		"GPU instance 700 of GPU 7 3g.20gb 0", "GPU instance 701 of GPU 7 2g.10gb 1", "GPU instance 702 of GPU 7 1g.5gb 2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A GPU that answers slowly is late alone, past its share of the time that is left: the others are
// read in theirs. The last one has all that the others left.
func TestASlowGPUIsLateAlone(t *testing.T) {
	for slow, isLate := range map[int]bool{0: true, 1: true, 7: false} {
		synctest.Test(t, func(t *testing.T) {
			d := newDGX()
			s, err := d.source().Open(t.Context(), mockPlan(t))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			device := d.Devices[slow].(*server.Device)
			device.GetClockInfoFunc = func(gonvml.ClockType) (uint32, gonvml.Return) {
				time.Sleep(500 * time.Millisecond)
				return 1410, gonvml.SUCCESS
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			var b gpu.Batch
			if err := s.Read(ctx, &b); err != nil {
				t.Fatal(err)
			}
			late, sampled := map[int]bool{}, map[int]bool{}
			for _, f := range b.Faults {
				if f.Field == gpu.AllFields && errors.Is(f.Err, gpu.ErrTimeout) {
					late[f.Row] = true
				}
			}
			for _, x := range b.Samples {
				sampled[x.Row] = true
			}
			if late[slow] != isLate || sampled[slow] == isLate || len(late)+len(sampled) != 8 {
				t.Errorf("GPU %d is slow: late %v, sampled %v", slow, late, sampled)
			}
		})
	}
}
