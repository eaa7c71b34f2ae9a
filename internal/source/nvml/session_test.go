//go:build linux && cgo

package nvml_test

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// allFields returns the IDs of all exportable fields.
func allFields() (ids []gpu.FieldID) {
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
	linked := slices.Concat(cut, []string{
		"gpu 0 set nvlinks 2", "gpu 0 set nvlink.1 down", "gpu 1 set nvlinks 1", "gpu 2 set nvlinks 0",
		"process 0 pid 70 memory 1000 busy 40 at 100000000", "process 1/9/0 pid 71 memory 5",
	})
	with := func(t *testing.T, lines ...string) { world.Play(t, slices.Concat(linked, lines)...) }
	plan := planOf(allFields()...)
	plan.Placement, plan.Peers, plan.Links, plan.Health = true, true, true, onGPU
	contract.Run(t, contract.Fixture{
		New: func(t *testing.T) collector.Source {
			var src *nvml.Source
			src, world = source(t, linked...)
			happened = 0
			return collector.SourceOf(src.Open)
		},
		Plan:  plan,
		Kinds: onGPU | onInstances,
		// Profiling compares samples that are 100 ms apart.
		Settle: func(*testing.T) { <-time.After(110 * time.Millisecond) },
		XID: func(t *testing.T) {
			if happened++; happened == 1 {
				with(t, "xid 0 62")
			} else {
				with(t, "xid 0 45", "xid 0 45")
			}
		},
		Lose: func(t *testing.T, row int) {
			if row != 0 {
				t.Fatalf("cannot lose row %d, want the row of GPU 0", row)
			}
			with(t, "gpu 0 lost")
		},
		Change:      func(t *testing.T) { world.Play(t, cut[0], cut[1], "gpu 1 instance 3 0 2g.20gb 20096") },
		Kill:        func(t *testing.T) { with(t, "driver 9") },
		OpenHandles: func(t *testing.T) int { return world.OpenHandles(t) },
	})
}

// TestShippedFields checks the values and faults of all fields in the shipped counters files, on a machine with an H100
// without MIG and one with instances.
func TestShippedFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, planOf(shippedFields(t)...), cut...)
		time.Sleep(time.Second)
		r.read()
		time.Sleep(time.Second)
		found := r.read()
		var got strings.Builder
		for _, entity := range []string{"GPU 0", "GPU 1", "GPU instance 102 of GPU 1"} {
			fmt.Fprintf(&got, "[%s]\n", entity)
			for _, key := range slices.Sorted(maps.Keys(found)) {
				if field, ok := strings.CutPrefix(key, entity+" DCGM"); ok {
					fmt.Fprintf(&got, "DCGM%s %s\n", field, found[key])
				}
			}
		}
		golden := filepath.Join("testdata", "h100.golden")
		if *update {
			if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("values (-want +got):\n%s", diff)
		}
	})
}

// TestDCGMSemantics checks values that DCGM publishes differently from what NVML returns.
func TestDCGMSemantics(t *testing.T) {
	file, err := os.Open(filepath.Join("testdata", "semantics.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader := csv.NewReader(file)
	reader.Comment, reader.FieldsPerRecord = '#', -1
	rows, err := reader.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			id, err := strconv.ParseUint(row[1], 10, 16)
			if err != nil {
				t.Fatal(err)
			}
			r := start(t, planOf(gpu.FieldID(id)), append([]string{"gpus 1"}, row[3:]...)...)
			name := r.plan.Fields[0].Name
			if got := r.read()["GPU 0 "+name]; got != row[2] {
				t.Errorf("%s = %q, want %q", name, got, row[2])
			}
		})
	}
}

// A field that no GPU has, or that has another unit, has a fault and no row. NVML has no health watches.
func TestDeclinedParts(t *testing.T) {
	plan := planOf(1508, 780, 858, 100)
	plan.Fields[3].Unit, plan.Health = "hertz", onGPU
	r := start(t, plan, "gpus 2", "gpu 0 set nvlinks 2")
	want := []string{
		"all health fault:not_supported", "GPU 0 SM_CLOCK fault:not_supported", "GPU 1 SM_CLOCK fault:not_supported",
	}
	for _, f := range plan.Fields[:3] {
		want = append(want, "all "+f.Name[len("DCGM_FI_DEV_"):]+" fault:not_supported")
	}
	r.want("fields without a GPU", want...)
	if n := len(r.Topology().Devices); n != 2 {
		t.Errorf("rows = %d, want 2", n)
	}
}

func TestTopology(t *testing.T) {
	device := func(index uint32, bus string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: index}, GPU: index, NVMLIndex: index, Minor: index,
			UUID: fmt.Sprintf("GPU-00000000-0000-4000-8000-%012d", index), PCIBusID: bus,
			Model: "NVIDIA H100 80GB HBM3",
		}
	}
	instance := func(id, gi uint32, profile, uuid string) gpu.Device {
		d := device(1, "00000000:1C:00.0")
		d.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: id}
		d.InstanceID, d.Profile, d.MIGUUID = gi, profile, uuid
		return d
	}
	want := []gpu.Device{
		device(0, "00000000:1B:00.0"), device(1, "00000000:1C:00.0"),
		instance(102, 2, "3g.40gb", ""), // two compute instances: the UUIDs belong to them, not to the instance
		instance(109, 9, "1g.10gb", "MIG-00000000-0000-5000-8000-000100090000"),
		device(2, "00000000:1D:00.0"),
	}
	begin := uint32(6)
	want[3].Start = &begin // only root can read it
	top := start(t, planOf(100), slices.Concat(cut, []string{"gpu 1 set start-9 6"})...).Topology()
	if diff := cmp.Diff(want, top.Devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	versions := [...]string{"nvml", "570.124.06", "12.570.124.06"}
	if got := [...]string{top.Source, top.Driver, top.Library}; got != versions {
		t.Errorf("source, driver and library = %q, want %q", got, versions)
	}
}

func TestSelectors(t *testing.T) {
	const all = "GPU 0, GPU 1, GPU instance 102 of GPU 1, GPU instance 109 of GPU 1, GPU 2"
	for flag, tt := range map[string]struct {
		selector gpu.Selector
		want     string
	}{
		"f":   {gpu.Selector{Flex: true}, all},
		"g+i": {gpu.Selector{Major: true, Minor: true}, all},
		"g":   {gpu.Selector{Major: true}, "GPU 0, GPU 1, GPU 2"},
		"g:2": {gpu.Selector{Major: true, MajorIDs: []uint32{2}}, "GPU 2"},
		"i":   {gpu.Selector{Minor: true}, "GPU instance 102 of GPU 1, GPU instance 109 of GPU 1"},
		"g:0+i:109": {gpu.Selector{Major: true, Minor: true, MajorIDs: []uint32{0}, MinorIDs: []uint32{109}},
			"GPU 0, GPU instance 109 of GPU 1"},
	} {
		t.Run(flag, func(t *testing.T) {
			plan := planOf(250)
			plan.Devices = tt.selector
			r := start(t, plan, cut...)
			var got []string
			for _, d := range r.Topology().Devices {
				got = append(got, d.Entity.String())
			}
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("entities = %q, want %q", got, tt.want)
			}
			if found := r.read(); len(found) != len(got) {
				t.Errorf("values = %v, want one for each of %v", found, got)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	all, none := gpu.Selector{Flex: true}, gpu.Selector{Major: true, MajorIDs: []uint32{7}}
	errAny := errors.New("any error")
	for name, tt := range map[string]struct {
		selector gpu.Selector
		want     error
		says     string
		script   []string
	}{
		"driver not loaded":           {all, gpu.ErrUnavailable, "not loaded", []string{"driver 9"}},
		"driver with another version": {all, gpu.ErrVersion, "version", []string{"driver 18"}},
		"driver that does not start":  {all, errAny, "nvmlInit_v2", []string{"fail nvmlInit_v2 999"}},
		"no GPU":                      {all, gpu.ErrUnavailable, "no GPU", []string{"gpus 0"}},
		"nothing selected":            {none, gpu.ErrUnavailable, "--devices", nil},
		"every GPU lost":              {all, gpu.ErrLost, "GPU 0", []string{"gpu 0 lost", "gpu 1 lost"}},
		"no GPU permitted":            {all, gpu.ErrPermission, "GPU 0", []string{"gpu 0 denied", "gpu 1 denied"}},
		"driver unloaded meanwhile":   {all, gpu.ErrLost, "nvmlDeviceGetUUID", []string{"fail nvmlDeviceGetUUID 1"}},
		"MIG device without a name": {all, errAny, "nvmlDeviceGetName",
			[]string{"gpus 1", "gpu 0 instance 1 0 1g.10gb 9984", "fail nvmlDeviceGetName 999 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			src, world := source(t, tt.script...)
			plan := planOf(100, 230, 1001)
			plan.Devices = tt.selector
			s, err := src.Open(t.Context(), plan)
			if err == nil {
				s.Close()
				t.Fatal("Open succeeded")
			}
			if tt.want != errAny && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Open: error %v, want %v with %q in its text", err, tt.want, tt.says)
			}
			if n := world.OpenHandles(t); n != 0 {
				t.Errorf("handles left open = %d, want 0", n)
			}
		})
	}
	_, err := nvml.New(filepath.Join(t.TempDir(), "libnvidia-ml.so.1")).Open(t.Context(), planOf(100))
	if !errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), "driver") {
		t.Errorf("Open without a library: %v, want gpu.ErrUnavailable and a hint about the driver", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src, _ := source(t)
	if _, err := src.Open(ctx, planOf(100)); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a canceled context: %v, want context.Canceled", err)
	}
}

func TestLostGPUServesOnlyXIDs(t *testing.T) {
	r := start(t, planOf(230, 53, 250), cut...)
	r.read()
	r.with("gpu 1 lost", "xid 1 79")
	r.want("lost GPU", "GPU 0 SERIAL 1650923012345", "GPU 0 FB_TOTAL 81559", "GPU 1 XID 79", "GPU 1 fault:lost",
		"GPU instance 102 of GPU 1 fault:lost", "GPU instance 109 of GPU 1 fault:lost",
		"GPU 2 SERIAL 1650923012345", "GPU 2 FB_TOTAL 81559")
	if r.Err() != nil {
		t.Errorf("session ended: %v", r.Err())
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
			synctest.Test(t, func(t *testing.T) {
				r := start(t, planOf(150, 155, 156, 1001), "gpus 2", "gpu 1 set gpm 0")
				time.Sleep(time.Second)
				r.with("fail " + fail)
				r.want("values", "GPU 0 fault:lost", "GPU 1 GPU_TEMP 31", "GPU 1 POWER_USAGE 100.5",
					"GPU 1 TOTAL_ENERGY_CONSUMPTION 361800000", "GPU 1 GR_ENGINE_ACTIVE fault:not_supported")
			})
		})
	}
}

// The loss of the last GPU or of the driver ends the session. A lost GPU is noticed even if the plan has only constant
// strings of it, which are read once.
func TestEverythingLost(t *testing.T) {
	for _, lost := range []string{"gpu 0 lost", "driver 18"} {
		t.Run(lost, func(t *testing.T) {
			r := start(t, planOf(53), "gpus 1")
			r.read()
			r.with(lost)
			var b gpu.Batch
			for range 2 {
				err := r.Read(t.Context(), gpu.ReadRequest{}, &b)
				if !errors.Is(err, gpu.ErrLost) || len(b.Samples) != 0 {
					t.Errorf("Read: error %v and %d samples, want gpu.ErrLost and no samples", err, len(b.Samples))
				}
			}
			if !errors.Is(r.Err(), gpu.ErrLost) {
				t.Errorf("Err() = %v, want gpu.ErrLost", r.Err())
			}
		})
	}
}

func TestUnsupportedIsQueriedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, planOf(191, 390, 100), "gpus 1") // no fan, no retired pages
		for range 5 {
			time.Sleep(time.Minute)
			r.want("values", "GPU 0 FAN_SPEED fault:not_supported", "GPU 0 RETIRED_SBE fault:not_supported",
				"GPU 0 SM_CLOCK 1980")
		}
		calls := r.world.Ledger(t)
		if calls["nvmlDeviceGetFanSpeed"] != 1 || calls["field-values"] != 1 || calls["nvmlDeviceGetClockInfo"] != 5 {
			t.Errorf("queries of fan = %d, field values = %d, clocks = %d; want 1, 1, 5",
				calls["nvmlDeviceGetFanSpeed"], calls["field-values"], calls["nvmlDeviceGetClockInfo"])
		}
		r.with("gpu 0 set fan 42", "gpu 0 set field.29 7")
		time.Sleep(2 * time.Hour)
		r.want("values after two hours", "GPU 0 FAN_SPEED 42", "GPU 0 RETIRED_SBE 7", "GPU 0 SM_CLOCK 1980")
	})
}

func TestTopologyChanges(t *testing.T) {
	with := func(line string) []string { return append(slices.Clone(cut), line) }
	for name, tt := range map[string]struct{ from, to []string }{
		"one more GPU":                     {cut, append(slices.Clone(cut[1:]), "gpus 4")},
		"one instance less":                {cut, []string{"gpus 3", cut[1]}},
		"an instance with another ID":      {cut, []string{"gpus 3", cut[2], cut[3], "gpu 1 instance 10 0 1g.10gb 9984"}},
		"the same IDs with another device": {cut, with("gpu 1 set mig-uuid MIG-other")},
		"MIG off":                          {cut, []string{"gpus 3"}},
		"MIG on for another GPU":           {cut, with("gpu 0 mig")},
		"a lost GPU is back":               {[]string{"gpus 3", "gpu 1 lost"}, []string{"gpus 3"}},
		"MIG mode could not be read":       {with("fail nvmlDeviceGetMigMode 999"), cut},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, planOf(250), tt.from...)
			before := r.read()
			if lost := before["GPU 1"] == "fault:lost"; lost != slices.Contains(tt.from, "gpu 1 lost") {
				t.Errorf("results before the change = %v, want a fault of GPU 1 only if it is lost", before)
			}
			if r.Err() != nil {
				t.Fatalf("Err() = %v before the change, want nil", r.Err())
			}
			r.play(tt.to...)
			got := r.read()
			if !errors.Is(r.Err(), gpu.ErrTopology) {
				t.Errorf("Err() = %v, want gpu.ErrTopology", r.Err())
			}
			if got["GPU 2 DCGM_FI_DEV_FB_TOTAL"] != "81559" {
				t.Errorf("values = %v, want 81559 for the memory of the unchanged GPU 2", got)
			}
		})
	}
}

// If nothing changes, the topology stays the same, and known MIG devices are not identified again.
func TestUnchangedTopology(t *testing.T) {
	r := start(t, planOf(250), cut...)
	before := r.world.Ledger(t)["nvmlDeviceGetGpuInstanceId"]
	for range 3 {
		r.read()
	}
	if r.Err() != nil {
		t.Errorf("Err() = %v, want nil", r.Err())
	}
	if n := r.world.Ledger(t)["nvmlDeviceGetGpuInstanceId"]; before == 0 || n != before {
		t.Errorf("identity queries of MIG devices = %d at Open and %d later, want 0 later", before, n-before)
	}
}

func TestXIDs(t *testing.T) {
	for name, tt := range map[string]struct{ events, want []string }{
		"two XIDs within one interval": {[]string{"xid 0 62", "xid 0 45"}, []string{"GPU 0 XID 62,45"}},
		"the same XID twice":           {[]string{"xid 0 13", "xid 0 13"}, []string{"GPU 0 XID 13,13"}},
		"one XID on each of two GPUs":  {[]string{"xid 2 48", "xid 0 31"}, []string{"GPU 0 XID 31", "GPU 2 XID 48"}},
		"an XID of an instance, reported for it and its GPU, and one of the GPU": {
			[]string{"xid 1 43 9", "xid 1 94"},
			[]string{"GPU 1 XID 43 of instance 9,94", "GPU instance 109 of GPU 1 XID 43 of instance 9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(230)
			plan.Fields[0].Levels |= onInstances
			r := start(t, plan, cut...)
			r.want("before the first XID")
			r.with(tt.events...)
			// The library reads a new script at the next call. Events are available to the Read that starts after that.
			r.want("XIDs", tt.want...)
			r.want("second Read: XIDs must not be repeated")
		})
	}
}

// Two sessions that are open at the same time report the same XIDs with the same numbers. The time of an XID lies
// between two Reads of any session.
func TestXIDsOfTwoSessions(t *testing.T) {
	src, world := source(t, "gpus 1")
	plan := planOf(230)
	expect := func(s *nvml.Session, want ...string) {
		t.Helper()
		var b gpu.Batch
		if err := s.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range b.XIDs {
			if x.Since == 0 || x.Since > x.Time {
				t.Errorf("%+v: want 0 < Since <= Time", x)
			}
			got = append(got, fmt.Sprint(x.ID, ":", x.Code))
		}
		if !slices.Equal(got, want) {
			t.Errorf("XIDs = %v, want %v", got, want)
		}
	}
	end := func(s *nvml.Session) {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	first := open(t, src, plan)
	world.Play(t, "gpus 1", "xid 0 13", "xid 0 13")
	expect(first, "1:13", "2:13")
	second := open(t, src, plan)
	expect(second)
	world.Play(t, "gpus 1", "xid 0 13", "xid 0 31")
	expect(second, "3:13", "4:31")
	expect(first, "3:13", "4:31")
	expect(first)
	end(first)
	world.Play(t, "gpus 1", "xid 0 48")
	expect(second, "5:48")
	end(second)
	world.Play(t, "gpus 1", "xid 0 62") // happens while no session is open
	third := open(t, src, plan)
	world.Play(t, "gpus 1", "xid 0 79")
	expect(third, "6:79")
}

func TestXIDsRefused(t *testing.T) {
	r := start(t, planOf(230, 100), "gpus 1", "fail nvmlDeviceRegisterEvents 3")
	r.want("XIDs are refused", "GPU 0 XID_ERRORS fault:not_supported", "GPU 0 SM_CLOCK 1980")
	if n := r.world.Ledger(t)["open-event-sets"]; n != 0 {
		t.Errorf("event sets open without a registration = %d, want 0", n)
	}
}

// If reading events fails, the XID field has a fault. The driver queues events meanwhile, and they are reported after
// recovery.
func TestXIDsWhileReadingFails(t *testing.T) {
	r := start(t, planOf(230), "gpus 2")
	r.with("xid 0 31", "fail nvmlEventSetWait_v2 999")
	for range 2 {
		r.want("while reading fails", "GPU 0 XID_ERRORS fault:error", "GPU 1 XID_ERRORS fault:error")
	}
	r.with()
	r.want("after reading works again", "GPU 0 XID 31")
	r.with("gpu 1 lost", "fail nvmlEventSetWait_v2 15")
	r.want("lost GPU", "GPU 1 fault:lost")
}

// A transient error may hide a value, also when the session opens. Once the error is gone, the same session serves the
// value.
func TestTransientErrorAtStart(t *testing.T) {
	for name, tt := range map[string]struct {
		fail    string
		field   gpu.FieldID
		without string // result meanwhile
		want    string
	}{
		"number":        {"fail nvmlDeviceGetPowerUsage 999", 155, "fault:error", "100.5"},
		"event set":     {"fail nvmlEventSetCreate 999", 230, "fault:error", "31"},
		"registration":  {"fail nvmlDeviceRegisterEvents 10", 230, "fault:timeout", "31"},
		"GPM support":   {"fail nvmlGpmQueryDeviceSupport 10", 1001, "fault:timeout", "0.01"},
		"GPM memory":    {"fail nvmlGpmSampleAlloc 20", 1001, "fault:error", "0.01"},
		"GPM: a sample": {"fail nvmlGpmSampleGet 999", 1001, "fault:error", "0.01"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, planOf(tt.field), "gpus 1", tt.fail)
			key := "GPU 0 " + r.plan.Fields[0].Name
			for range 2 {
				if got := r.read(); len(got) != 1 || got[key] != tt.without {
					t.Errorf("while the call fails: results = %v, want only %q", got, tt.without)
				}
			}
			r.play("gpus 1")
			r.read()
			r.play("gpus 1", "xid 0 31")
			var found map[string]string
			for end := time.Now().Add(20 * time.Second); found[key] != tt.want && found["GPU 0 XID"] != tt.want; {
				if time.Now().After(end) {
					t.Fatalf("value was not served within 20s; latest results: %v", found)
				}
				found = r.read()
			}
			if r.Err() != nil {
				t.Errorf("session ended: %v", r.Err())
			}
		})
	}
}

// A field for which Reads returns false never has a value. Of the other fields, the H100 of the test library has most.
func TestReads(t *testing.T) {
	plan := planOf(allFields()...)
	r := start(t, plan, "gpus 1", "gpu 0 set nvlinks 2", "gpu 0 set ports 1")
	r.read() // rates have values from the second read on
	var b gpu.Batch
	if err := r.Read(t.Context(), gpu.ReadRequest{}, &b); err != nil {
		t.Fatal(err)
	}
	shown, said := 0, 0
	for i, f := range plan.Fields {
		reads := nvml.Reads(&gpu.Plan{Fields: plan.Fields[i : i+1]})
		if reads {
			said++
		}
		if slices.ContainsFunc(b.Samples, func(x gpu.Sample) bool { return x.Field == i }) {
			if shown++; !reads {
				t.Errorf("%s has a value, but Reads = false, want true", f.Name)
			}
		}
	}
	if shown < 110 || said < shown || said > 500 {
		t.Errorf("fields with values = %d, want at least 110; fields with Reads = true: %d of %d, want %[1]d to 500",
			shown, said, len(plan.Fields))
	}
	if !nvml.Reads(&gpu.Plan{Peers: true, Placement: true}) || nvml.Reads(&gpu.Plan{Health: onGPU}) {
		t.Error("Reads: want true for peers and placement, and false for health watches")
	}
	if nvml.Reads(planOf(150, 858)) {
		t.Error("Reads = true for a plan with a field of switches, want false")
	}
}
