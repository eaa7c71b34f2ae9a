package compat_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Rows of the topology of world.
const (
	rowGPU0 = iota
	rowGPU1 // partitioned by MIG
	rowInstance
	rowCount
)

// Labels of the rows.
const (
	labels0 = `gpu="0",UUID="GPU-0",device="nvidia0",modelName="H100"`
	labels1 = `gpu="1",UUID="GPU-1",device="nvidia1",modelName="H100"`
	labelsI = labels1 + `,GPU_I_PROFILE="2g.20gb",GPU_I_ID="2"`
)

// Ways of selecting GPUs and instances.
var (
	flex      = gpu.Selector{Flex: true}
	both      = gpu.Selector{Major: true, Minor: true}
	instances = gpu.Selector{Minor: true}
)

// column returns a column with the given values, by row.
func column(name string, typ gpu.MetricType, ofGPUs bool, values map[int]gpu.Value) gpu.Column {
	c := gpu.Column{Counter: &gpu.Counter{Name: name, Type: typ, OfGPUs: ofGPUs}, Values: make([]gpu.Value, rowCount)}
	for row, v := range values {
		c.Values[row] = v
	}
	return c
}

// labels returns labels from alternating names and values.
func labels(pairs ...string) []gpu.Label {
	var list []gpu.Label
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, gpu.Label{Name: pair[0], Value: pair[1]})
	}
	return list
}

// errorLabels returns the labels of an XID.
func errorLabels(code, message string) []gpu.Label {
	return labels("err_code", code, "err_msg", message)
}

// world returns a snapshot of a GPU, a GPU with an instance, and the instance, which a pod owns.
func world() *gpu.Snapshot {
	board := func(id uint32) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, NVMLIndex: id,
			UUID: fmt.Sprint("GPU-", id), Model: "H100",
		}
	}
	instance := board(1)
	instance.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7}
	instance.InstanceID, instance.Profile = 2, "2g.20gb"
	type values = map[int]gpu.Value
	power := values{rowGPU0: gpu.Float(1e9 / 3), rowGPU1: gpu.Float(100.5)}
	memory := values{rowGPU1: gpu.Int(8000), rowInstance: gpu.Int(500)}
	driver := values{rowGPU0: gpu.Text("570"), rowGPU1: gpu.Text("570")}
	return &gpu.Snapshot{
		Topology: gpu.NewTopology([]gpu.Device{board(0), board(1), instance}),
		Owners:   &gpu.Owners{Labels: [][]gpu.Label{rowInstance: {{Name: "pod", Value: "p"}}}},
		Columns: []gpu.Column{
			column("DCGM_FI_DEV_GPU_TEMP", gpu.MetricGauge, true, values{rowGPU0: gpu.Int(30), rowGPU1: gpu.Int(41)}),
			column("DCGM_FI_DEV_POWER_USAGE", gpu.MetricGauge, true, power),
			column("DCGM_FI_DEV_FB_USED", gpu.MetricGauge, false, memory),
			column("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu.MetricGauge, false, values{rowGPU1: gpu.Float(0.5)}),
			column("DCGM_FI_DRIVER_VERSION", gpu.MetricLabel, true, driver),
		},
		Families: []gpu.Family{
			{Name: "DCGM_FI_DEV_XID_ERRORS", Type: gpu.MetricGauge, LikeField: true, Series: []gpu.Series{
				{Row: rowGPU1, Labels: errorLabels("79", "GPU has fallen off the bus"), Value: gpu.Int(79)},
			}},
			{Name: "DCGM_EXP_XID_ERRORS_COUNT", Type: gpu.MetricGauge, OfGPUs: true, Series: []gpu.Series{
				{Row: rowGPU0, Value: gpu.Int(0)},
				{Row: rowGPU1, Labels: labels("xid", "79"), Value: gpu.Int(2)},
				{Row: rowGPU1, Labels: labels("GPU_I_ID", "2", "xid", "43"), Value: gpu.Int(1)},
				{Row: rowGPU1, Labels: labels("GPU_I_ID", "9", "xid", "13"), Value: gpu.Int(1)},
			}},
			{Name: "DCGM_EXP_GPU_HEALTH_STATUS", Type: gpu.MetricGauge, Series: []gpu.Series{
				{Row: rowGPU1, Value: gpu.Int(20)},
			}},
			{Name: "own", Type: gpu.MetricGauge, Series: []gpu.Series{{Row: gpu.AllRows, Value: gpu.Int(1)}}},
		},
		Health: gpu.Health{Entities: make([]gpu.EntityHealth, rowCount)},
	}
}

// values compares values, which have no exported fields.
var values = cmp.Comparer(func(a, b gpu.Value) bool { return a == b })

// page returns the page of a snapshot, without health series.
func page(opts compat.Options, s *gpu.Snapshot) string {
	format := exposition.Options{NoHealth: true, EmptyHelp: opts.Strict}
	if opts.Strict {
		format.AppendFloat = compat.AppendFloat
	}
	return string(exposition.NewEncoder(format).Encode(compat.New(opts).Rewrite(s)).Bytes())
}

// samples returns the sample lines of a page.
func samples(page string) []string {
	lines := []string{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// Strict mode has the quirks of NVIDIA's exporter, with each way of selecting GPUs.
func TestStrict(t *testing.T) {
	const driver, pod = `,DCGM_FI_DRIVER_VERSION="570"`, `,pod="p"`
	whole := []string{
		`DCGM_FI_DEV_GPU_TEMP{` + labels0 + driver + `} 30`,
		`DCGM_FI_DEV_POWER_USAGE{` + labels0 + driver + `} 333333333.333333`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + driver + `} 0`,
	}
	partitioned := []string{
		`DCGM_FI_DEV_GPU_TEMP{` + labels1 + driver + `} 41`,
		`DCGM_FI_DEV_POWER_USAGE{` + labels1 + driver + `} 100.500000`,
		`DCGM_FI_DEV_FB_USED{` + labels1 + driver + `} 8000`,
		`DCGM_FI_PROF_GR_ENGINE_ACTIVE{` + labels1 + driver + `} 0.500000`,
		`DCGM_FI_DEV_XID_ERRORS{` + labels1 + driver + `,err_code="79",err_msg="GPU has fallen off the bus"} 79`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels1 + driver + `,xid="79"} 2`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels1 + driver + `,GPU_I_ID="2",xid="43"} 1`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels1 + driver + `,GPU_I_ID="9",xid="13"} 1`,
	}
	instance := []string{
		`DCGM_FI_DEV_GPU_TEMP{` + labelsI + driver + pod + `} 41`,
		`DCGM_FI_DEV_POWER_USAGE{` + labelsI + driver + pod + `} 100.500000`,
		`DCGM_FI_DEV_FB_USED{` + labelsI + driver + pod + `} 500`,
		`DCGM_FI_DEV_XID_ERRORS{` + labelsI + driver + pod + `,err_code="43",err_msg="GPU stopped processing"} 43`,
	}
	events := []string{
		`DCGM_EXP_XID_ERRORS_COUNT{` + labelsI + driver + pod + `,xid="79"} 2`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labelsI + driver + pod + `,xid="43"} 1`,
	}
	always := []string{`DCGM_EXP_GPU_HEALTH_STATUS{` + labels1 + driver + `} 20`, `own 1`}
	tests := []struct {
		name    string
		devices gpu.Selector
		want    []string
	}{
		{"f", flex, slices.Concat(whole, instance, events, always)},
		{"g+i", both, slices.Concat(whole, partitioned, instance, events, always)},
		{"i", instances, slices.Concat(instance, events, always)},
	}
	w := world()
	w.Families[0].Series = append(w.Families[0].Series, gpu.Series{
		Row: rowInstance, Labels: errorLabels("43", "GPU stopped processing"), Value: gpu.Int(43),
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page := page(compat.Options{Strict: true, Devices: tt.devices}, w)
			got := samples(page)
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
			if !strings.Contains(page, "# HELP DCGM_EXP_XID_ERRORS_COUNT \n") {
				t.Error("page has no HELP line for DCGM_EXP_XID_ERRORS_COUNT, want one with an empty text")
			}
		})
	}
}

// An instance with a value of its own keeps it.
func TestOwnValueOfInstance(t *testing.T) {
	s := world()
	s.Columns = s.Columns[:1]
	s.Columns[0].Values[rowInstance] = gpu.Int(35)
	want := `DCGM_FI_DEV_GPU_TEMP{` + labelsI + `,pod="p"} 35`
	if got := samples(page(compat.Options{Strict: true, Devices: instances}, s)); got[0] != want {
		t.Errorf("sample = %s, want %s", got[0], want)
	}
}

// By default, pages have none of these quirks.
func TestWithoutStrict(t *testing.T) {
	page := page(compat.Options{Devices: flex}, world())
	got := strings.Join(samples(page), "\n")
	for _, s := range []string{
		`DCGM_FI_DEV_GPU_TEMP{` + labels1 + `,DCGM_FI_DRIVER_VERSION="570"} 41`,
		`DCGM_FI_DEV_POWER_USAGE{` + labels1 + `,DCGM_FI_DRIVER_VERSION="570"} 100.5`,
		`own 1`,
	} {
		if !strings.Contains(got+"\n", s+"\n") {
			t.Errorf("page does not contain %s", s)
		}
	}
	if strings.Contains(got, `DCGM_FI_DEV_GPU_TEMP{`+labelsI) || strings.Contains(page, "# HELP") {
		t.Errorf("page has quirks of strict mode, want none:\n%s", page)
	}
}

// In strict mode, the series of a shared device have the labels of one of several pods, or of one of several
// containers. By default they do not.
func TestOneOfSeveralOwners(t *testing.T) {
	for name, tt := range map[string]struct {
		all           []gpu.Label // labels of all owners
		use           gpu.Use
		plain, strict string
	}{
		"pods": {nil, gpu.Use{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{
			{Namespace: "ns", Pod: "a", Container: "c", Replica: "0"},
			{Namespace: "ns", Pod: "b", Container: "c", Replica: "1", Labels: labels("pod_uid", "u")},
			{Labels: labels("hpc_job", "7")},
		}}, "", `,container="c",namespace="ns",pod="b",pod_uid="u"`},
		"containers": {
			labels("namespace", "ns", "pod", "a", "pod_uid", "u"),
			gpu.Use{Owners: []gpu.Owner{
				{Namespace: "ns", Pod: "a", Container: "c"}, {Namespace: "ns", Pod: "a", Container: "d"},
			}},
			`,namespace="ns",pod="a",pod_uid="u"`, `,container="d",namespace="ns",pod="a",pod_uid="u"`,
		},
	} {
		for strict, want := range map[bool]string{false: tt.plain, true: tt.strict} {
			s := world()
			s.Columns = s.Columns[:1]
			s.Owners = &gpu.Owners{Labels: [][]gpu.Label{tt.all}, Uses: []gpu.Use{tt.use}}
			got := samples(page(compat.Options{Strict: strict, Devices: both}, s))[0]
			if want = `DCGM_FI_DEV_GPU_TEMP{` + labels0 + want + `} 30`; got != want {
				t.Errorf("%s, strict %t: labels = %s, want %s", name, strict, got, want)
			}
		}
	}
}

// If requested, each of several jobs has its own copy of the series, in addition to the pod's labels.
func TestJobCopies(t *testing.T) {
	job := func(id string) gpu.Owner { return gpu.Owner{Labels: labels("hpc_job", id)} }
	s := world()
	s.Columns, s.Families = s.Columns[:1], s.Families[:2]
	s.Families[1].Series = s.Families[1].Series[:2]
	fault := gpu.Series{Row: rowGPU0, Labels: errorLabels("31", "GPU memory page fault"), Value: gpu.Int(31)}
	s.Families[0].Series = append([]gpu.Series{fault}, s.Families[0].Series...)
	s.Owners = &gpu.Owners{
		Labels: [][]gpu.Label{labels("container", "c", "pod", "p"), labels("hpc_job", "9")},
		Uses: []gpu.Use{
			{Owners: []gpu.Owner{{Pod: "p", Container: "c"}, job("7"), job("8")}}, {Owners: []gpu.Owner{job("9")}},
		},
	}
	const xid = `,err_code="31",err_msg="GPU memory page fault"`
	want := []string{
		`DCGM_FI_DEV_GPU_TEMP{` + labels0 + `,container="c",hpc_job="7",pod="p"} 30`,
		`DCGM_FI_DEV_GPU_TEMP{` + labels0 + `,container="c",hpc_job="8",pod="p"} 30`,
		`DCGM_FI_DEV_GPU_TEMP{` + labels1 + `,hpc_job="9"} 41`,
		`DCGM_FI_DEV_XID_ERRORS{` + labels0 + `,container="c",hpc_job="7",pod="p"` + xid + `} 31`,
		`DCGM_FI_DEV_XID_ERRORS{` + labels0 + `,container="c",hpc_job="8",pod="p"` + xid + `} 31`,
		`DCGM_FI_DEV_XID_ERRORS{` + labels1 + `,hpc_job="9",err_code="79",err_msg="GPU has fallen off the bus"} 79`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + `,container="c",hpc_job="7",pod="p"} 0`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + `,container="c",hpc_job="8",pod="p"} 0`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels1 + `,hpc_job="9",xid="79"} 2`,
	}
	if diff := cmp.Diff(want, samples(page(compat.Options{JobCopies: true}, s))); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	s.Owners = &gpu.Owners{
		Labels: s.Owners.Labels[:1],
		Uses:   []gpu.Use{{Owners: []gpu.Owner{{Pod: "p", Container: "c"}, job("7")}}},
	}
	one := `DCGM_FI_DEV_GPU_TEMP{` + labels0 + `,container="c",pod="p"} 30`
	if got := samples(page(compat.Options{JobCopies: true}, s)); got[0] != one {
		t.Errorf("with one job: sample = %s, want %s", got[0], one)
	}
	if got := samples(page(compat.Options{}, s)); len(got) != 6 {
		t.Errorf("samples without copies = %d, want 6:\n%s", len(got), strings.Join(got, "\n"))
	}
}

// Every series of a shared GPU is repeated for each replica that a pod holds. Families with per-owner values are not
// repeated; their values appear in addition to the device's. An unknown share is 0 in strict mode, and absent
// otherwise.
func TestVirtualGPUs(t *testing.T) {
	replica := func(pod, id string) gpu.Owner {
		uid := gpu.Label{Name: "pod_uid", Value: "u-" + pod}
		return gpu.Owner{Namespace: "ns", Pod: pod, Container: "c", Replica: id, Labels: []gpu.Label{uid}}
	}
	util := map[int]gpu.Value{rowGPU0: gpu.Int(60), rowGPU1: gpu.Int(70)}
	const (
		ofA = `,container="c",namespace="ns",pod="a",pod_uid="u-a",vgpu="0"`
		ofB = `,container="c",namespace="ns",pod="b",pod_uid="u-b",vgpu="1"`
	)
	for _, strict := range []bool{false, true} {
		s, a, b := world(), replica("a", "0"), replica("b", "1")
		s.Columns = []gpu.Column{s.Columns[0], column("DCGM_FI_DEV_GPU_UTIL", gpu.MetricGauge, false, util)}
		s.Families = []gpu.Family{s.Families[1], {
			Name: "DCGM_FI_DEV_GPU_UTIL", Type: gpu.MetricGauge, OwnersOnly: true, Series: []gpu.Series{
				{NoOwner: true, Owner: a.VirtualGPULabels(), Value: gpu.Int(10)},
				{NoOwner: true, Owner: b.VirtualGPULabels()},
			},
		}}
		s.Owners = &gpu.Owners{Uses: []gpu.Use{{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{a, b}}}}
		want := []string{
			`DCGM_FI_DEV_GPU_TEMP{` + labels0 + ofA + `} 30`, `DCGM_FI_DEV_GPU_TEMP{` + labels0 + ofB + `} 30`,
			`DCGM_FI_DEV_GPU_TEMP{` + labels1 + `} 41`,
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + `} 60`, `DCGM_FI_DEV_GPU_UTIL{` + labels1 + `} 70`,
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + ofA + `} 10`, `DCGM_FI_DEV_GPU_UTIL{` + labels0 + ofB + `} 0`,
			`DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + ofA + `} 0`, `DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + ofB + `} 0`,
			`DCGM_EXP_XID_ERRORS_COUNT{` + labels1 + `,xid="79"} 2`,
		}
		if !strict {
			unknown := `DCGM_FI_DEV_GPU_UTIL{` + labels0 + ofB + `} 0`
			want = slices.DeleteFunc(want, func(line string) bool { return line == unknown })
		}
		got := samples(page(compat.Options{VirtualGPUs: true, Strict: strict, Devices: both}, s))
		got = slices.DeleteFunc(got, func(line string) bool { return strings.Contains(line, "GPU_I_ID") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("strict %t: samples (-want +got):\n%s", strict, diff)
		}
	}
}

// If one pod is alone on a time-sliced GPU, its labels are on the copy and not on the device's own series.
func TestVirtualGPUOfOnePod(t *testing.T) {
	a := gpu.Owner{Namespace: "ns", Pod: "a", Container: "c", Replica: "0"}
	for _, strict := range []bool{false, true} {
		s := world()
		util := map[int]gpu.Value{rowGPU0: gpu.Int(60)}
		s.Columns = []gpu.Column{column("DCGM_FI_DEV_GPU_UTIL", gpu.MetricGauge, false, util)}
		share := gpu.Series{NoOwner: true, Owner: a.VirtualGPULabels(), Value: gpu.Int(60)}
		s.Families = []gpu.Family{
			{Name: "DCGM_FI_DEV_GPU_UTIL", Type: gpu.MetricGauge, OwnersOnly: true, Series: []gpu.Series{share}},
		}
		s.Owners = &gpu.Owners{
			Labels: [][]gpu.Label{a.PodLabels()},
			Uses:   []gpu.Use{{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{a}}},
		}
		want := []string{
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + `} 60`,
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + `,container="c",namespace="ns",pod="a",vgpu="0"} 60`,
		}
		got := samples(page(compat.Options{VirtualGPUs: true, Strict: strict, Devices: both}, s))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("strict %t: samples (-want +got):\n%s", strict, diff)
		}
	}
}

// A Rewriter does not change its input, returns the same owners as long as they do not change, and follows a new
// topology.
func TestRewriterIsReused(t *testing.T) {
	r := compat.New(compat.Options{Strict: true, Devices: flex})
	encoder := exposition.NewEncoder(exposition.Options{NoHealth: true, AppendFloat: compat.AppendFloat})
	encode := func(s *gpu.Snapshot) string { return string(encoder.Encode(r.Rewrite(s)).Bytes()) }
	partitioned := world()
	first := encode(partitioned)
	if diff := cmp.Diff(world().Columns, partitioned.Columns, values); diff != "" {
		t.Errorf("columns of the input (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(world().Families, partitioned.Families, values); diff != "" {
		t.Errorf("families of the input (-before +after):\n%s", diff)
	}
	owners := r.Rewrite(partitioned).Owners
	if r.Rewrite(partitioned).Owners != owners {
		t.Error("Rewrite of the same snapshot returns other owners, want the same")
	}
	whole := world()
	whole.Topology = gpu.NewTopology(whole.Topology.Devices[:rowInstance])
	whole.Families = whole.Families[1:]
	for i := range whole.Columns {
		whole.Columns[i].Values = whole.Columns[i].Values[:rowInstance]
	}
	const sample = "DCGM_FI_DEV_GPU_TEMP{" + labels1 + `,DCGM_FI_DRIVER_VERSION="570"} 41`
	if got := encode(whole); !strings.Contains(got, sample) {
		t.Errorf("page has no sample of GPU 1, which is no longer partitioned, want one:\n%s", got)
	}
	if diff := cmp.Diff(first, encode(world())); diff != "" {
		t.Errorf("page of the first topology (-first +later):\n%s", diff)
	}
}

// A page without data, such as that of a start, is rewritten too.
func TestSnapshotWithoutTopology(t *testing.T) {
	s := &gpu.Snapshot{Health: gpu.Health{Err: gpu.ErrOpening}}
	for _, opts := range []compat.Options{{Strict: true}, {JobCopies: true}, {VirtualGPUs: true}, {}} {
		if got := compat.New(opts).Rewrite(s); got.Health.Err != gpu.ErrOpening || got.Owners != nil {
			t.Errorf("%+v: snapshot = %+v, want gpu.ErrOpening and no owners", opts, got)
		}
	}
}

// Strict mode reads GPUs for their instances, and omits the families that NVIDIA's exporter does not have.
func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		devices, want gpu.Selector
	}{
		{flex, flex},
		{both, both},
		{
			gpu.Selector{Minor: true, MinorIDs: []uint32{3}},
			gpu.Selector{Major: true, Minor: true, MinorIDs: []uint32{3}},
		},
	} {
		if diff := cmp.Diff(tt.want, compat.Options{Strict: true, Devices: tt.devices}.Reads()); diff != "" {
			t.Errorf("%+v reads (-want +got):\n%s", tt.devices, diff)
		}
		if diff := cmp.Diff(tt.devices, compat.Options{Devices: tt.devices}.Reads()); diff != "" {
			t.Errorf("by default, %+v reads (-want +got):\n%s", tt.devices, diff)
		}
	}
	for name, omitted := range map[string]bool{catalog.NodeHealth: true, catalog.GPUHealthStatus: false} {
		family := catalog.FamilyNamed(name)
		if got := (compat.Options{Strict: true}).Omits(family); got != omitted {
			t.Errorf("strict mode omits %s: %t, want %t", name, got, omitted)
		}
		if (compat.Options{}).Omits(family) {
			t.Errorf("default mode omits %s: true, want false", name)
		}
	}
	if (compat.Options{Strict: true}).Omits(nil) {
		t.Error("strict mode omits a counter without a family: true, want false")
	}
}
