//go:build gpu

package hardware

import (
	"context"
	"encoding/csv"
	"errors"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocarina/gocsv"
	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	"github.com/gpu-telemetry/dcgm-exporter/tests/contract"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/folder"
)

// refresh is longer than the interval between the profiling samples of the hardware.
const refresh = 300 * time.Millisecond

// settle waits for new samples of the hardware, which samples on its own clock.
func settle(*testing.T) { <-time.After(refresh) }

// planOf returns a plan with the given fields. Fields of a node are planned for GPUs instead.
func planOf(t *testing.T, ids ...gpu.FieldID) *gpu.Plan {
	t.Helper()
	plan := &gpu.Plan{Interval: refresh, Devices: gpu.Selector{Flex: true}}
	for _, id := range ids {
		entry, ok := catalog.ByID(id)
		if !ok {
			t.Fatalf("field %d is not in the catalog", id)
		}
		f := entry.Field()
		if f.Levels.Has(gpu.KindNode) {
			f.Levels = gpu.KindsOf(gpu.KindGPU)
		}
		plan.Fields = append(plan.Fields, f)
	}
	return plan
}

// everything returns the IDs of all exportable fields that a GPU or a link can have. It leaves out fields that repeat
// an older one in another unit.
func everything() []gpu.FieldID {
	var ids []gpu.FieldID
	for entry := range catalog.All() {
		if entry.Exportable() && entry.BaseOf == 0 &&
			(entry.Levels.Has(gpu.KindGPU) || entry.Levels.Has(gpu.KindNVLink)) {
			ids = append(ids, entry.ID)
		}
	}
	return ids
}

// absent ends a test because something that it needs is missing. If the environment variable requires it, the test
// fails; otherwise it is skipped.
func absent(t *testing.T, variable, reason string, err error) {
	t.Helper()
	if os.Getenv(variable) == "1" {
		t.Fatalf("%s=1 requires it: %v", variable, err)
	}
	t.Skipf("SKIP %s: %v", reason, err)
}

// openNVML opens NVML, or ends the test if there is no GPU.
func openNVML(t *testing.T, plan *gpu.Plan) *nvml.Session {
	t.Helper()
	s, err := nvml.New("").Open(context.Background(), plan)
	if errors.Is(err, gpu.ErrUnavailable) {
		absent(t, "REQUIRE_GPU", "gpu-absent", err)
	}
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestNVMLContract(t *testing.T) {
	plan := planOf(t, everything()...)
	plan.Placement, plan.Peers, plan.Health = true, true, gpu.KindsOf(gpu.KindGPU)
	if err := openNVML(t, plan).Close(); err != nil {
		t.Fatal(err)
	}
	contract.Run(t, contract.Fixture{
		New:    func(*testing.T) collector.Source { return collector.SourceOf(nvml.New("").Open) },
		Plan:   plan,
		Kinds:  gpu.KindsOf(gpu.KindGPU),
		Settle: settle,
		// device files of the driver that are still open
		OpenHandles: func(*testing.T) int { return len(held()) },
	})
}

// smi returns the given properties of all GPUs according to nvidia-smi, by UUID.
func smi(t *testing.T, properties []string) map[string][]string {
	t.Helper()
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		absent(t, "REQUIRE_GPU", "nvidia-smi-absent", err)
	}
	query := "--query-gpu=uuid," + strings.Join(properties, ",")
	out, err := exec.Command(path, query, "--format=csv,noheader,nounits").CombinedOutput()
	if err != nil {
		t.Fatalf("nvidia-smi %s: %v\n%s", query, err, out)
	}
	r := csv.NewReader(strings.NewReader(string(out)))
	r.TrimLeadingSpace = true
	lines, err := r.ReadAll()
	if err != nil {
		t.Fatalf("cannot parse the output of nvidia-smi: %v\n%s", err, out)
	}
	gpus := map[string][]string{}
	for _, line := range lines {
		gpus[line[0]] = line[1:]
	}
	return gpus
}

// A comparison names a field and the nvidia-smi property with the same value. A number may differ by Slack from the
// range of nvidia-smi's values before and after it.
type comparison struct {
	Field    gpu.FieldID
	Property string
	Slack    float64
}

// nothing reports whether value means that nvidia-smi has no value, such as "[N/A]".
func nothing(value string) bool {
	return value == "" || strings.Contains(value, "N/A") || strings.Contains(value, "Not Supported") ||
		strings.Contains(value, "Unknown Error")
}

func TestNVMLAgreesWithSMI(t *testing.T) {
	var comparisons []comparison
	if err := gocsv.UnmarshalString(folder.Read(t, "testdata/smi.csv"), &comparisons); err != nil {
		t.Fatal(err)
	}
	var ids []gpu.FieldID
	var properties []string
	for _, c := range comparisons {
		ids = append(ids, c.Field)
		properties = append(properties, c.Property)
	}
	plan := planOf(t, ids...)
	s := openNVML(t, plan)
	before := smi(t, properties)
	ours := read(t, s, plan)
	after := smi(t, properties)

	compared := 0
	for _, d := range s.Topology().Devices {
		if d.Entity.Kind != gpu.KindGPU {
			continue
		}
		first, second := before[d.UUID], after[d.UUID]
		if len(first) != len(comparisons) || len(second) != len(comparisons) {
			t.Errorf("values of nvidia-smi for %s = %q before and %q after, want %d each time", d.UUID, first, second,
				len(comparisons))
			continue
		}
		for i, c := range comparisons {
			got, ok := ours[key{d.UUID, 0, d.Entity.Kind, c.Field}]
			if !ok {
				if !nothing(first[i]) && !nothing(second[i]) {
					t.Logf("%s: %s is not served, nvidia-smi reports %q", d.Entity, plan.Fields[i].Name, first[i])
				}
				continue
			}
			if nothing(first[i]) || nothing(second[i]) {
				continue // nvidia-smi does not print all values that can be read
			}
			compared++
			if !between(got, first[i], second[i], c.Slack) {
				t.Errorf("%s: %s = %v, nvidia-smi reports %s = %q, then %q", d.Entity, plan.Fields[i].Name, got,
					c.Property, first[i], second[i])
			}
		}
	}
	if compared < 10 {
		t.Errorf("compared %d values, want at least 10", compared)
	}
}

// between reports whether v lies between a and b, which nvidia-smi printed, or outside by at most slack. If any of the
// three is not a number, v must equal a, ignoring case.
func between(v gpu.Value, a, b string, slack float64) bool {
	n, ok := v.Number()
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	if !ok || errX != nil || errY != nil {
		return strings.EqualFold(v.String(), a)
	}
	return n >= math.Min(x, y)-slack && n <= math.Max(x, y)+slack
}

// key identifies a value by properties that are equal in both sources. It has no entity ID, because each source
// assigns its own.
type key struct {
	uuid     string
	instance uint32
	kind     gpu.Kind
	field    gpu.FieldID
}

func read(t *testing.T, s collector.Session, plan *gpu.Plan) map[key]gpu.Value {
	t.Helper()
	values := map[key]gpu.Value{}
	var b gpu.Batch
	for range 3 { // profiling has values from the second sample on
		b.Reset()
		if err := s.Read(context.Background(), gpu.ReadRequest{}, &b); err != nil {
			t.Fatalf("Read: %v", err)
		}
		settle(t)
	}
	for _, x := range b.Samples {
		d := &s.Topology().Devices[x.Row]
		values[key{d.UUID, d.InstanceID, d.Entity.Kind, plan.Fields[x.Field].ID}] = x.Value
	}
	return values
}

// TestNVMLAgreesWithDCGM checks that both sources report the same identities, types and units. They are read at
// different times, so values may differ, but not by as much as a wrong unit would cause.
func TestNVMLAgreesWithDCGM(t *testing.T) {
	plan := planOf(t, everything()...)
	ours := openNVML(t, plan)
	theirs, err := dcgm.New(dcgm.Options{}).Open(context.Background(), plan)
	if errors.Is(err, gpu.ErrUnavailable) {
		absent(t, "REQUIRE_DCGM", "dcgm-absent", err)
	}
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer theirs.Close()

	identities := func(top *gpu.Topology) map[string]gpu.Device {
		found := map[string]gpu.Device{}
		for _, d := range top.Devices {
			if d.Entity.Kind != gpu.KindGPU && d.Entity.Kind != gpu.KindGPUInstance {
				continue
			}
			id := d.UUID + "/" + strconv.Itoa(int(d.InstanceID)) + "/" + d.Entity.Kind.String()
			d.Entity, d.GPU = gpu.Entity{}, 0 // each source numbers its entities itself
			found[id] = d
		}
		return found
	}
	if diff := cmp.Diff(identities(theirs.Topology()), identities(ours.Topology())); diff != "" {
		t.Errorf("devices (-DCGM +NVML):\n%s", diff)
	}

	dcgmValues, nvmlValues := read(t, theirs, plan), read(t, ours, plan)
	compared := 0
	for k, got := range nvmlValues {
		want, ok := dcgmValues[k]
		if !ok {
			t.Logf("field %d of %s/%d is served only by NVML: %v", k.field, k.uuid, k.instance, got)
			continue
		}
		compared++
		entry, _ := catalog.ByID(k.field)
		g, okG := got.Number()
		w, okW := want.Number()
		_, intG := got.Int64()
		_, intW := want.Int64()
		switch {
		case okG != okW || intG != intW:
			t.Errorf("%s of %s/%d: %v from NVML, %v from DCGM: different types", entry.Classic, k.uuid, k.instance, got,
				want)
		case !okG && got != want:
			t.Errorf("%s of %s/%d: %q from NVML, %q from DCGM", entry.Classic, k.uuid, k.instance, got, want)
		case okG && !alike(g, w, entry.Unit):
			t.Errorf("%s of %s/%d: %v from NVML, %v from DCGM", entry.Classic, k.uuid, k.instance, g, w)
		}
	}
	if compared < 30 {
		t.Errorf("compared %d values, want at least 30", compared)
	}
}

// alike reports whether two readings can be of the same quantity in the same unit. They must differ by less than a
// factor of three, or by less than the value can change between two readings.
func alike(a, b float64, unit gpu.Unit) bool {
	room := map[gpu.Unit]float64{
		catalog.Percent: 100, catalog.Ratio: 1, catalog.Watts: 100, catalog.Megahertz: 500, catalog.Celsius: 5,
		catalog.Mebibytes: 512, catalog.MegabytesPerSecond: 1e5, catalog.BytesPerSecond: 1e10,
		catalog.Nanoseconds: 1e9, catalog.Millijoules: 1e6,
	}[unit]
	if math.Abs(a-b) <= room {
		return true
	}
	low, high := math.Min(a, b), math.Max(a, b)
	return low > 0 && high/low < 3
}
