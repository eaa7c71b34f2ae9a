//go:build linux && cgo

package nvml_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// cut is a script of three GPUs. The second one has MIG instances.
var cut = []string{
	"gpus 3",
	"gpu 1 instance 9 0 1g.10gb 9984",
	"gpu 1 instance 2 0 1c.3g.40gb 40448",
	"gpu 1 instance 2 1 1c.3g.40gb 40448",
}

// allFields returns the IDs of all exportable fields.
func allFields() []gpu.FieldID {
	var ids []gpu.FieldID
	for e := range catalog.All() {
		if e.Exportable() && e.BaseOf == 0 {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// TestContract runs the contract suite with every field of the catalog and everything else that a plan can request. The
// machine has GPUs without MIG, a GPU with instances, and links.
func TestContract(t *testing.T) {
	var world *fakenvml.World
	happened := 0
	path := library(t)
	linked := slices.Concat(cut, []string{
		"gpu 0 set nvlinks 2", "gpu 0 set nvlink.1 down", "gpu 1 set nvlinks 1", "gpu 2 set nvlinks 0",
		"process 0 pid 70 memory 1000 busy 40 at 100000000", "process 1/9/0 pid 71 memory 5",
	})
	plan := planOf(t, allFields()...)
	plan.Placement, plan.Peers, plan.Links, plan.Health = true, true, true, gpu.KindsOf(gpu.KindGPU)
	contract.Run(t, contract.Fixture{
		New: func(t *testing.T) collector.Source {
			world, happened = fakenvml.NewWorld(t, linked...), 0
			return asSource(nvml.New(path))
		},
		Plan:  plan,
		Kinds: gpu.KindsOf(gpu.KindGPU, gpu.KindGPUInstance),
		// Profiling compares samples that are 100 ms apart.
		Settle: func(*testing.T) { <-time.After(110 * time.Millisecond) },
		XID: func(t *testing.T) {
			if happened++; happened == 1 {
				world.Play(t, append(slices.Clone(linked), "xid 0 62")...)
			} else {
				world.Play(t, append(slices.Clone(linked), "xid 0 45", "xid 0 45")...)
			}
		},
		Lose: func(t *testing.T, row int) {
			if row != 0 {
				t.Fatalf("cannot lose row %d, want the row of GPU 0", row)
			}
			world.Play(t, append(slices.Clone(linked), "gpu 0 lost")...)
		},
		Change: func(t *testing.T) {
			world.Play(t, append(slices.Clone(cut[:2]), "gpu 1 instance 3 0 2g.20gb 20096")...)
		},
		Kill:        func(t *testing.T) { world.Play(t, append(slices.Clone(linked), "driver 9")...) },
		OpenHandles: func(t *testing.T) int { return world.OpenHandles(t) },
	})
}

// TestShippedFields checks the values and faults of all fields in the shipped counters files, on a machine with an H100
// without MIG and one with instances.
func TestShippedFields(t *testing.T) {
	ids := shippedFields(t)
	src, _ := source(t, cut...)
	synctest.Test(t, func(t *testing.T) {
		plan := planOf(t, ids...)
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		time.Sleep(time.Second)
		read(t, s, plan)
		time.Sleep(time.Second)
		got := render(read(t, s, plan), []string{"GPU 0", "GPU 1", "GPU instance 102 of GPU 1"})
		golden := filepath.Join("testdata", "h100.golden")
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	})
}

// TestDCGMSemantics checks values that DCGM publishes differently from what NVML returns.
func TestDCGMSemantics(t *testing.T) {
	tests := []struct {
		name  string
		id    gpu.FieldID
		world string
		want  string
	}{
		{"power is fractional watts", 155, "gpu 0 set power 100500", "100.5"},
		{"power limits are whole watts, rounded down", 160, "gpu 0 set power-limit 650999", "650"},
		{"energy stays in mJ", 156, "gpu 0 set field.83 361800000123", "361800000123"},
		{"used memory excludes reserved memory", 252, "gpu 0 set fb-used 4096", "4096"},
		{
			"total memory of a GPU that uses the machine's memory", 250, "fail nvmlDeviceGetMemoryInfo_v2 3",
			"fault:not_supported",
		},
		{
			"used memory of a GPU that uses the machine's memory", 252, "fail nvmlDeviceGetMemoryInfo_v2 3",
			"fault:not_supported",
		},
		{"reserved memory", 253, "gpu 0 set fb-reserved 700", "700"},
		{"used fraction of the memory that is not reserved", 254, "gpu 0 set fb-used 20000", "0.24677039248830926"},
		{"memory temperature, read as a field value", 140, "gpu 0 set field.82 47", "47"},
		{"a GPU that needs no license", 526, "gpu 0 set license-supported 0", "0"},
		{"a licensed vGPU", 526, "gpu 0 set license-supported 1\ngpu 0 set license-state 2", "1"},
		{"an unlicensed vGPU", 526, "gpu 0 set license-supported 1", "0"},
		{"a brand as named by DCGM", 51, "gpu 0 set brand 15", "GeForce RTX"},
		{"an unknown brand", 51, "gpu 0 set brand 4711", "Unknown"},
		{"an empty serial number", 53, "gpu 0 set serial -", "fault:not_supported"},
		{"PCIe throughput, which DCGM does not serve", 200, "", "fault:not_supported"},
		{"a value of more than 63 bits", 156, "gpu 0 set field.83 18446744073709551615", ""},
		{"a field that is not permitted", 140, "gpu 0 set field.82 denied", "fault:permission"},
		{"uncorrectable rows", 393, "gpu 0 set field.143 3", "3"},
		{"correctable rows", 394, "gpu 0 set field.142 8", "8"},
		{"failed remapping", 395, "gpu 0 set field.145 1", "1"},
		{"aggregate double-bit errors", 313, "gpu 0 set field.6 12", "12"},
		{"retired pages", 391, "gpu 0 set field.30 5", "5"},
		{"time with clocks reduced by power", 240, "gpu 0 set field.74 1234567890123", "1234567890123"},
		{"time below base clocks", 247, "gpu 0 set field.81 99", "99"},
		{"memory clock, not the SM's", 101, "gpu 0 set clock-mem 1593", "1593"},
		{"highest video clock", 115, "", "1545"},
		{"requested SM clock", 110, "", "1755"},
		{"requested memory clock", 111, "", "2619"},
		{"reasons are a mask", 112, "gpu 0 set clock-reasons 72", "72"},
		{"slowdown temperature of the memory", 151, "", "95"},
		{"maximum operating temperature of the GPU", 152, "", "87"},
		{"slowdown temperature of the GPU", 158, "", "89"},
		{"shutdown temperature of the GPU", 159, "", "92"},
		{"default power limit", 163, "gpu 0 set power-limit-default 699999", "699"},
		{"why the fabric failed", 171, "gpu 0 set fabric-status 999", "999"},
		{
			"no fabric error before the registration ends", 171,
			"gpu 0 set fabric-state 1\ngpu 0 set fabric-status 999", "fault:not_supported",
		},
		{"fabric health from an older driver", 174, "gpu 0 set fabric-v2 1", "2"},
		{"no fabric summary from an older driver", 175, "gpu 0 set fabric-v2 1", "fault:not_supported"},
		{"C2C links", 285, "gpu 0 set field.170 10", "10"},
		{"no C2C", 286, "", "fault:not_supported"},
		{"C2C bandwidth", 287, "gpu 0 set field.172 44712", "44712"},
		{"bytes over all links", 1203, "gpu 0 set field.204 123456789", "123456789"},
		{"a packed error rate", 1217, "gpu 0 set field.220 3855", "3855"},
		{"an unpacked error rate", 1218, "gpu 0 set field.220 524", "2e-12"},
		{"no symbol errors", 1216, "gpu 0 set field.222 255", "0"},
		{"time at the power cap", 1420, "gpu 0 set field.74 77", "77"},
		{"recovery action", 1523, "gpu 0 set field.230 2", "2"},
		{"nothing to recover", 1523, "", "0"},
		{"slices of a GPU in MIG mode", 69, "gpu 0 mig", "7"},
		{"no slices without MIG mode", 69, "", "fault:not_supported"},
		{"memory of a GPU in MIG mode without instances", 250, "gpu 0 mig", "81559"},
		{"utilization of a GPU in MIG mode", 203, "gpu 0 mig", "fault:not_supported"},
		{"memory temperature with the wrong type double", 140, "gpu 0 set field-type 0\ngpu 0 set field.82 47", "47"},
		{"example error rate from DCGM, only the mantissa", 1216, "gpu 0 set field.222 3072", "12"},
		{"example error rate from DCGM, with exponent", 1218, "gpu 0 set field.220 1025", "0.4"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src, _ := source(t, "gpus 1", test.world)
			plan := planOf(t, test.id)
			got := read(t, open(t, src, plan), plan)["GPU 0 "+plan.Fields[0].Name]
			if got != test.want {
				t.Errorf("%s = %q, want %q", plan.Fields[0].Name, got, test.want)
			}
		})
	}
}

func TestUnitMismatchIsDeclined(t *testing.T) {
	src, _ := source(t, "gpus 1")
	plan := planOf(t, 100)
	plan.Fields[0].Unit = "hertz"
	got := read(t, open(t, src, plan), plan)
	if diff := cmp.Diff(map[string]string{"GPU 0 DCGM_FI_DEV_SM_CLOCK": "fault:not_supported"}, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestTopology(t *testing.T) {
	src, _ := source(t, append(slices.Clone(cut), "gpu 1 set start-9 6")...)
	s := open(t, src, planOf(t, 100))
	instance := func(id, gi uint32, profile, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: id},
			GPU:    1, NVMLIndex: 1, Minor: 1, InstanceID: gi, Profile: profile, MIGUUID: uuid,
			UUID: "GPU-00000000-0000-4000-8000-000000000001", PCIBusID: "00000000:1C:00.0",
			Model: "NVIDIA H100 80GB HBM3",
		}
	}
	whole := func(index uint32, bus string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: index}, GPU: index, NVMLIndex: index, Minor: index,
			UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", index), PCIBusID: bus,
			Model: "NVIDIA H100 80GB HBM3",
		}
	}
	want := []gpu.Device{
		whole(0, "00000000:1B:00.0"),
		whole(1, "00000000:1C:00.0"),
		instance(102, 2, "3g.40gb", ""), // two compute instances: the UUIDs belong to them, not to the instance
		instance(109, 9, "1g.10gb", "MIG-00000000-0000-5000-8000-000100090000"),
		whole(2, "00000000:1D:00.0"),
	}
	start := uint32(6)
	want[3].Start = &start // only root can read it
	top := s.Topology()
	if diff := cmp.Diff(want, top.Devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	versions := [...]string{"nvml", "570.124.06", "12.570.124.06"}
	if got := [...]string{top.Source, top.Driver, top.Library}; got != versions {
		t.Errorf("source, driver and library = %q, want %q", got, versions)
	}
}

func TestSelectors(t *testing.T) {
	all := []string{"GPU 0", "GPU 1", "GPU instance 102 of GPU 1", "GPU instance 109 of GPU 1", "GPU 2"}
	tests := []struct {
		flag     string
		selector gpu.Selector
		want     []string
	}{
		{"f", gpu.Selector{Flex: true}, all},
		{"g+i", gpu.Selector{Major: true, Minor: true}, all},
		{"g", gpu.Selector{Major: true}, []string{"GPU 0", "GPU 1", "GPU 2"}},
		{"g:2", gpu.Selector{Major: true, MajorIDs: []uint32{2}}, []string{"GPU 2"}},
		{"i", gpu.Selector{Minor: true}, []string{"GPU instance 102 of GPU 1", "GPU instance 109 of GPU 1"}},
		{
			"g:0+i:109", gpu.Selector{Major: true, Minor: true, MajorIDs: []uint32{0}, MinorIDs: []uint32{109}},
			[]string{"GPU 0", "GPU instance 109 of GPU 1"},
		},
	}
	for _, test := range tests {
		t.Run(test.flag, func(t *testing.T) {
			src, _ := source(t, cut...)
			plan := planOf(t, 250)
			plan.Devices = test.selector
			s := open(t, src, plan)
			var got []string
			for _, d := range s.Topology().Devices {
				got = append(got, d.Entity.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("entities (-want +got):\n%s", diff)
			}
			if found := read(t, s, plan); len(found) != len(test.want) {
				t.Errorf("values = %v, want one for each of %v", found, test.want)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	tests := []struct {
		name  string
		world []string
		plan  func(*gpu.Plan)
		want  error
		says  string
	}{
		{"driver not loaded", []string{"driver 9"}, nil, gpu.ErrUnavailable, "not loaded"},
		{"driver with another version", []string{"driver 18"}, nil, gpu.ErrVersion, "version"},
		{"driver that does not start", []string{"fail nvmlInit_v2 999"}, nil, nil, "nvmlInit_v2"},
		{"no GPU", []string{"gpus 0"}, nil, gpu.ErrUnavailable, "no GPU"},
		{
			"nothing selected", nil, func(p *gpu.Plan) { p.Devices = gpu.Selector{Major: true, MajorIDs: []uint32{7}} },
			gpu.ErrUnavailable, "--devices",
		},
		{"every GPU lost", []string{"gpu 0 lost", "gpu 1 lost"}, nil, gpu.ErrLost, "GPU 0"},
		{"no GPU permitted", []string{"gpu 0 denied", "gpu 1 denied"}, nil, gpu.ErrPermission, "GPU 0"},
		{
			"driver unloaded during discovery", []string{"fail nvmlDeviceGetUUID 1"}, nil, gpu.ErrLost,
			"nvmlDeviceGetUUID",
		},
		{
			"MIG device without a name",
			[]string{"gpu 0 instance 1 0 1g.10gb 9984", "fail nvmlDeviceGetName 999 0", "gpus 1"}, nil, nil,
			"nvmlDeviceGetName",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src, world := source(t, test.world...)
			plan := planOf(t, 100, 230, 1001)
			if test.plan != nil {
				test.plan(plan)
			}
			s, err := src.Open(context.Background(), plan)
			if err == nil {
				s.Close()
				t.Fatal("Open succeeded")
			}
			if test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Open: error %v, want %v with %q in its text", err, test.want, test.says)
			}
			if n := world.OpenHandles(t); n != 0 {
				t.Errorf("handles left open = %d, want 0", n)
			}
		})
	}
	t.Run("no library", func(t *testing.T) {
		_, err := nvml.New(filepath.Join(t.TempDir(), "libnvidia-ml.so.1")).Open(context.Background(), planOf(t, 100))
		if !errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), "driver") {
			t.Errorf("Open: %v, want gpu.ErrUnavailable and a hint about the driver", err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		src, _ := source(t)
		if _, err := src.Open(ctx, planOf(t, 100)); !errors.Is(err, context.Canceled) {
			t.Errorf("Open: %v, want context.Canceled", err)
		}
	})
}

func TestLostAndBack(t *testing.T) {
	src, world := source(t, "gpus 2", "gpu 1 lost")
	plan := planOf(t, 100)
	s := open(t, src, plan)
	want := map[string]string{"GPU 0 DCGM_FI_DEV_SM_CLOCK": "1980", "GPU 1": "fault:lost"}
	if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
		t.Errorf("GPU lost from the start (-want +got):\n%s", diff)
	}
	world.Play(t, "gpus 2")
	read(t, s, plan)
	if !errors.Is(s.Err(), gpu.ErrTopology) {
		t.Errorf("Err() = %v after the GPU returned, want gpu.ErrTopology", s.Err())
	}
}

func TestLostGPUServesOnlyXIDs(t *testing.T) {
	src, world := source(t, cut...)
	plan := planOf(t, 230, 53, 250)
	s := open(t, src, plan)
	read(t, s, plan)
	world.Play(t, append(slices.Clone(cut), "gpu 1 lost", "xid 1 79")...)
	got := read(t, s, plan)
	want := map[string]string{
		"GPU 0 DCGM_FI_DEV_SERIAL": "1650923012345", "GPU 0 DCGM_FI_DEV_FB_TOTAL": "81559",
		"GPU 1 XID": "79", "GPU 1": "fault:lost",
		"GPU instance 102 of GPU 1": "fault:lost", "GPU instance 109 of GPU 1": "fault:lost",
		"GPU 2 DCGM_FI_DEV_SERIAL": "1650923012345", "GPU 2 DCGM_FI_DEV_FB_TOTAL": "81559",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lost GPU (-want +got):\n%s", diff)
	}
	if s.Err() != nil {
		t.Errorf("session ended: %v", s.Err())
	}
}

// If a GPU falls off the bus or needs a reset during a Read, it counts as lost. None of its values is served, whichever
// call fails.
func TestGPULostDuringRead(t *testing.T) {
	for _, fail := range []string{
		"nvmlDeviceGetTemperature 16 0", "nvmlDeviceGetPowerUsage 15 0", "nvmlDeviceGetFieldValues 15 0",
		"nvmlGpmSampleGet 16 0",
	} {
		t.Run(fail, func(t *testing.T) {
			world := []string{"gpus 2", "gpu 1 set gpm 0"}
			src, play := source(t, world...)
			plan := planOf(t, 150, 155, 156, 1001)
			synctest.Test(t, func(t *testing.T) {
				s, err := src.Open(t.Context(), plan)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				time.Sleep(time.Second)
				play.Play(t, append(world, "fail "+fail)...)
				want := map[string]string{
					"GPU 0":                      "fault:lost",
					"GPU 1 DCGM_FI_DEV_GPU_TEMP": "31", "GPU 1 DCGM_FI_DEV_POWER_USAGE": "100.5",
					"GPU 1 DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "361800000",
					"GPU 1 DCGM_FI_PROF_GR_ENGINE_ACTIVE":        "fault:not_supported",
				}
				if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
					t.Errorf("values (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// The loss of the last GPU or of the driver ends the session. A lost GPU is noticed even if the plan has only constant
// strings of it, which are read once.
func TestEverythingLost(t *testing.T) {
	for _, lost := range []string{"gpu 0 lost", "driver 18"} {
		t.Run(lost, func(t *testing.T) {
			src, world := source(t, "gpus 1")
			plan := planOf(t, 53)
			s := open(t, src, plan)
			read(t, s, plan)
			world.Play(t, "gpus 1", lost)
			var b gpu.Batch
			for range 2 {
				err := s.Read(context.Background(), gpu.ReadRequest{}, &b)
				if !errors.Is(err, gpu.ErrLost) || len(b.Samples) != 0 {
					t.Errorf("Read: error %v and %d samples, want gpu.ErrLost and no samples", err, len(b.Samples))
				}
			}
			if !errors.Is(s.Err(), gpu.ErrLost) {
				t.Errorf("Err() = %v, want gpu.ErrLost", s.Err())
			}
		})
	}
}

func TestUnsupportedIsQueriedRarely(t *testing.T) {
	src, world := source(t, "gpus 1") // no fan, no retired pages
	plan := planOf(t, 191, 390, 100)
	synctest.Test(t, func(t *testing.T) {
		s, err := src.Open(t.Context(), plan)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		want := map[string]string{
			"GPU 0 DCGM_FI_DEV_FAN_SPEED":   "fault:not_supported",
			"GPU 0 DCGM_FI_DEV_RETIRED_SBE": "fault:not_supported",
			"GPU 0 DCGM_FI_DEV_SM_CLOCK":    "1980",
		}
		for range 5 {
			time.Sleep(time.Minute)
			if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
				t.Fatalf("values (-want +got):\n%s", diff)
			}
		}
		calls := world.Ledger(t)
		if calls["nvmlDeviceGetFanSpeed"] != 1 || calls["field-values"] != 1 || calls["nvmlDeviceGetClockInfo"] != 5 {
			t.Errorf("queries of fan = %d, field values = %d, clocks = %d; want 1, 1, 5",
				calls["nvmlDeviceGetFanSpeed"], calls["field-values"], calls["nvmlDeviceGetClockInfo"])
		}
		world.Play(t, "gpus 1", "gpu 0 set fan 42", "gpu 0 set field.29 7")
		time.Sleep(2 * time.Hour)
		want["GPU 0 DCGM_FI_DEV_FAN_SPEED"], want["GPU 0 DCGM_FI_DEV_RETIRED_SBE"] = "42", "7"
		if diff := cmp.Diff(want, read(t, s, plan)); diff != "" {
			t.Errorf("values after two hours (-want +got):\n%s", diff)
		}
	})
}

func TestTopologyChanges(t *testing.T) {
	change := func(lines ...string) []string { return lines }
	tests := []struct {
		name string
		next []string
	}{
		{"one more GPU", append(slices.Clone(cut[1:]), "gpus 4")},
		{"one instance less", change("gpus 3", cut[1])},
		{"an instance with another ID", change("gpus 3", cut[2], cut[3], "gpu 1 instance 10 0 1g.10gb 9984")},
		{"the same IDs with another device", change("gpus 3", cut[1], cut[2], cut[3], "gpu 1 set mig-uuid MIG-other")},
		{"MIG off", change("gpus 3")},
		{"MIG on for another GPU", append(slices.Clone(cut), "gpu 0 mig")},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			src, world := source(t, cut...)
			plan := planOf(t, 250)
			s := open(t, src, plan)
			read(t, s, plan)
			if s.Err() != nil {
				t.Fatalf("Err() = %v before the change, want nil", s.Err())
			}
			world.Play(t, test.next...)
			got := read(t, s, plan)
			if !errors.Is(s.Err(), gpu.ErrTopology) {
				t.Errorf("Err() = %v, want gpu.ErrTopology", s.Err())
			}
			if got["GPU 2 DCGM_FI_DEV_FB_TOTAL"] != "81559" {
				t.Errorf("values = %v, want 81559 for the memory of the unchanged GPU 2", got)
			}
		})
	}
}

// If nothing changes, the topology stays the same, and known MIG devices are not identified again.
func TestUnchangedTopology(t *testing.T) {
	src, world := source(t, cut...)
	plan := planOf(t, 250)
	s := open(t, src, plan)
	before := world.Ledger(t)["nvmlDeviceGetGpuInstanceId"]
	for range 3 {
		read(t, s, plan)
	}
	if s.Err() != nil {
		t.Errorf("Err() = %v, want nil", s.Err())
	}
	if n := world.Ledger(t)["nvmlDeviceGetGpuInstanceId"]; before == 0 || n != before {
		t.Errorf("identity queries of MIG devices = %d at Open and %d later, want 0 later", before, n-before)
	}
}
