package exposition_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// These are the labels of GPU 0 of world, of GPU 1, which has an instance, and of the instance.
const (
	labels0 = `gpu="0",UUID="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100  80GB"`
	labels1 = `gpu="1",UUID="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA H100  80GB"`
	labelsI = labels1 + `,GPU_I_PROFILE="2g.20gb",GPU_I_ID="2"`
)

// strictWorld returns a snapshot of a GPU, a GPU with an instance, and the instance, which a pod owns.
func strictWorld() *gpu.Snapshot {
	devices := world().Devices
	s := &gpu.Snapshot{
		Topology: gpu.NewTopology(slices.Clone(devices[rowGPU0 : rowInstance+1])),
		Owners:   &gpu.Owners{Labels: [][]gpu.Label{2: {{Name: "pod", Value: "p"}}}},
	}
	const g0, g1, in = 0, 1, 2
	add := func(name string, typ gpu.MetricType, values map[int]gpu.Value) {
		c := column(name, typ, values)
		c.Values = c.Values[:3]
		s.Columns = append(s.Columns, c)
	}
	add("DCGM_FI_DEV_GPU_TEMP", gpu.MetricGauge, map[int]gpu.Value{g0: gpu.Int(30), g1: gpu.Int(41)})
	add("DCGM_FI_DEV_POWER_USAGE", gpu.MetricGauge, map[int]gpu.Value{g1: gpu.Float(100.5), g0: gpu.Float(1e9 / 3)})
	add("DCGM_FI_DEV_FB_USED", gpu.MetricGauge, map[int]gpu.Value{g1: gpu.Int(8000), in: gpu.Int(500)})
	add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu.MetricGauge, map[int]gpu.Value{g1: gpu.Float(0.5)}) // not a field of instances
	s.Columns[0].Counter.OfGPUs, s.Columns[1].Counter.OfGPUs = true, true
	add("DCGM_FI_DRIVER_VERSION", gpu.MetricLabel, map[int]gpu.Value{g0: gpu.Text("570"), g1: gpu.Text("570")})
	s.Families = []gpu.Family{
		{Name: "DCGM_FI_DEV_XID_ERRORS", Type: gpu.MetricGauge, Unrepeated: true, Series: []gpu.Series{
			{Row: g1, Labels: []gpu.Label{{Name: "err_code", Value: "79"}, {Name: "err_msg", Value: "GPU has fallen off the bus"}}, Value: gpu.Int(79)},
		}},
		{Name: "DCGM_EXP_XID_ERRORS_COUNT", Type: gpu.MetricGauge, OfGPUs: true, Series: []gpu.Series{
			{Row: g0, Value: gpu.Int(0)}, {Row: g1, Labels: []gpu.Label{{Name: "xid", Value: "79"}}, Value: gpu.Int(2)},
			{Row: g1, Labels: []gpu.Label{{Name: "GPU_I_ID", Value: "2"}, {Name: "xid", Value: "43"}}, Value: gpu.Int(1)},
			{Row: g1, Labels: []gpu.Label{{Name: "GPU_I_ID", Value: "9"}, {Name: "xid", Value: "13"}}, Value: gpu.Int(1)},
		}},
		{Name: "DCGM_EXP_GPU_HEALTH_STATUS", Type: gpu.MetricGauge, Series: []gpu.Series{{Row: g1, Value: gpu.Int(20)}}},
		{Name: "own", Type: gpu.MetricGauge, Series: []gpu.Series{{Row: gpu.AllRows, Value: gpu.Int(1)}}},
	}
	s.Health.Entities = make([]gpu.EntityHealth, 3)
	return s
}

// TestStrict checks the quirks of NVIDIA's exporter, with each way of selecting GPUs.
func TestStrict(t *testing.T) {
	const driver, pod = `,DCGM_FI_DRIVER_VERSION="570"`, `,pod="p"`
	whole := []string{
		`DCGM_FI_DEV_GPU_TEMP{` + labels0 + driver + `} 30`,
		`DCGM_FI_DEV_POWER_USAGE{` + labels0 + driver + `} 333333333.333333`,
		`DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + driver + `} 0`,
	}
	cut := []string{
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
	always := []string{`DCGM_EXP_GPU_HEALTH_STATUS{` + labels1 + driver + `} 20`}
	tests := []struct {
		name   string
		strict exposition.Strict
		want   []string
	}{
		{"f", exposition.Strict{On: true, HidePartitioned: true}, slices.Concat(whole, instance, events, always)},
		{"g+i", exposition.Strict{On: true}, slices.Concat(whole, cut, instance, events, always)},
		{"i", exposition.Strict{On: true, HideGPUs: true}, slices.Concat(instance, events, always)},
	}
	w := strictWorld()
	w.Families[0].Series = append(w.Families[0].Series, gpu.Series{
		Row: 2, Labels: []gpu.Label{{Name: "err_code", Value: "43"}, {Name: "err_msg", Value: "GPU stopped processing"}}, Value: gpu.Int(43),
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			page := encode(t, exposition.Options{
				NoHealth: true, Without: func(name string) bool { return name == "own" }, Strict: tt.strict,
			}, w)
			got := samples(page)
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
			if !strings.Contains(page, "# HELP DCGM_EXP_XID_ERRORS_COUNT \n") {
				t.Error("no HELP line for an empty help text")
			}
		})
	}
}

// TestWithoutStrict checks that these quirks do not exist by default.
func TestWithoutStrict(t *testing.T) {
	page := encode(t, exposition.Options{}, strictWorld())
	got := strings.Join(samples(page), "\n")
	for _, s := range []string{
		`DCGM_FI_DEV_GPU_TEMP{` + labels1 + `,DCGM_FI_DRIVER_VERSION="570"} 41`,
		`DCGM_FI_DEV_POWER_USAGE{` + labels1 + `,DCGM_FI_DRIVER_VERSION="570"} 100.5`,
		`own 1`, `dcgm_exporter_entity_up{gpu="1",UUID="GPU-1"} 1`,
	} {
		if !strings.Contains(got+"\n", s+"\n") {
			t.Errorf("page does not contain %s", s)
		}
	}
	if strings.Contains(got, `DCGM_FI_DEV_GPU_TEMP{`+labelsI) || strings.Contains(page, "# HELP DCGM_EXP_XID_ERRORS_COUNT") {
		t.Errorf("page has quirks of strict mode:\n%s", page)
	}
}

// TestOneOfSeveralOwners checks that in strict mode, shared series have the labels of one of several pods, or of one of
// several containers. By default they do not.
func TestOneOfSeveralOwners(t *testing.T) {
	for name, tt := range map[string]struct {
		labels        []gpu.Label // of all owners
		use           gpu.Use
		plain, strict string
	}{
		"pods": {nil, gpu.Use{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{
			{Namespace: "ns", Pod: "a", Container: "c", Replica: "0"},
			{Namespace: "ns", Pod: "b", Container: "c", Replica: "1", Labels: []gpu.Label{{Name: "pod_uid", Value: "u"}}},
			{Labels: []gpu.Label{{Name: "hpc_job", Value: "7"}}},
		}}, "", `,container="c",namespace="ns",pod="b",pod_uid="u"`},
		"containers": {
			[]gpu.Label{{Name: "namespace", Value: "ns"}, {Name: "pod", Value: "a"}, {Name: "pod_uid", Value: "u"}},
			gpu.Use{Owners: []gpu.Owner{{Namespace: "ns", Pod: "a", Container: "c"}, {Namespace: "ns", Pod: "a", Container: "d"}}},
			`,namespace="ns",pod="a",pod_uid="u"`, `,container="d",namespace="ns",pod="a",pod_uid="u"`,
		},
	} {
		for strict, want := range map[bool]string{false: tt.plain, true: tt.strict} {
			s := strictWorld()
			s.Columns = s.Columns[:1]
			s.Owners = &gpu.Owners{Labels: [][]gpu.Label{tt.labels}, Uses: []gpu.Use{tt.use}}
			got := samples(encode(t, exposition.Options{Strict: exposition.Strict{On: strict}}, s))[0]
			if want = `DCGM_FI_DEV_GPU_TEMP{` + labels0 + want + `} 30`; got != want {
				t.Errorf("%s, strict %t: labels = %s, want %s", name, strict, got, want)
			}
		}
	}
}

// TestJobCopies checks that, if requested, each of several jobs has its own copy of the series, in addition to the
// pod's labels.
func TestJobCopies(t *testing.T) {
	job := func(id string) gpu.Owner { return gpu.Owner{Labels: []gpu.Label{{Name: "hpc_job", Value: id}}} }
	s := strictWorld()
	s.Columns, s.Families = s.Columns[:1], s.Families[:2]
	s.Families[1].Series = s.Families[1].Series[:2]
	s.Families[0].Series = append([]gpu.Series{{Labels: errorLabels("31", "GPU memory page fault"), Value: gpu.Int(31)}}, s.Families[0].Series...)
	s.Owners = &gpu.Owners{
		Labels: [][]gpu.Label{{{Name: "container", Value: "c"}, {Name: "pod", Value: "p"}}, {{Name: "hpc_job", Value: "9"}}},
		Uses:   []gpu.Use{{Owners: []gpu.Owner{{Pod: "p", Container: "c"}, job("7"), job("8")}}, {Owners: []gpu.Owner{job("9")}}},
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
	page := encode(t, exposition.Options{JobCopies: true, NoHealth: true}, s)
	if diff := cmp.Diff(want, samples(page)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	page = encode(t, exposition.Options{NoHealth: true}, s)
	if n := len(samples(page)); n != 6 {
		t.Errorf("samples without copies = %d, want 6:\n%s", n, page)
	}
}

// TestVirtualGPUs checks that every series of a shared GPU is repeated for each replica that a pod holds. Families with
// per-owner values are not repeated; their values appear in addition to the device's.
func TestVirtualGPUs(t *testing.T) {
	replica := func(pod, id string) gpu.Owner {
		return gpu.Owner{Namespace: "ns", Pod: pod, Container: "c", Replica: id, Labels: []gpu.Label{{Name: "pod_uid", Value: "u-" + pod}}}
	}
	for _, strict := range []bool{false, true} {
		s := strictWorld()
		s.Columns = []gpu.Column{s.Columns[0], column("DCGM_FI_DEV_GPU_UTIL", gpu.MetricGauge, map[int]gpu.Value{0: gpu.Int(60), 1: gpu.Int(70)})}
		s.Families = s.Families[1:2]
		a, b := replica("a", "0"), replica("b", "1")
		s.Families = append(s.Families, gpu.Family{Name: "DCGM_FI_DEV_GPU_UTIL", Type: gpu.MetricGauge, OwnersOnly: true, Series: []gpu.Series{
			{NoOwner: true, Owner: a.VirtualGPULabels(), Value: gpu.Int(10)},
		}})
		s.Owners = &gpu.Owners{Uses: []gpu.Use{{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{a, b}}}}
		const ofA, ofB = `,container="c",namespace="ns",pod="a",pod_uid="u-a",vgpu="0"`, `,container="c",namespace="ns",pod="b",pod_uid="u-b",vgpu="1"`
		want := []string{
			`DCGM_FI_DEV_GPU_TEMP{` + labels0 + ofA + `} 30`, `DCGM_FI_DEV_GPU_TEMP{` + labels0 + ofB + `} 30`,
			`DCGM_FI_DEV_GPU_TEMP{` + labels1 + `} 41`,
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + `} 60`, `DCGM_FI_DEV_GPU_UTIL{` + labels1 + `} 70`,
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + ofA + `} 10`,
			`DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + ofA + `} 0`, `DCGM_EXP_XID_ERRORS_COUNT{` + labels0 + ofB + `} 0`,
			`DCGM_EXP_XID_ERRORS_COUNT{` + labels1 + `,xid="79"} 2`,
		}
		page := encode(t, exposition.Options{VirtualGPUs: true, NoHealth: true, Strict: exposition.Strict{On: strict}}, s)
		got := slices.DeleteFunc(samples(page), func(line string) bool { return strings.Contains(line, "GPU_I_ID") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("strict %t: samples (-want +got):\n%s", strict, diff)
		}
	}
}

// TestVirtualGPUOfOnePod tests that the only pod on a time-sliced GPU is on the copy and not on the device's own series.
func TestVirtualGPUOfOnePod(t *testing.T) {
	a := gpu.Owner{Namespace: "ns", Pod: "a", Container: "c", Replica: "0"}
	for _, strict := range []bool{false, true} {
		s := strictWorld()
		s.Columns = []gpu.Column{column("DCGM_FI_DEV_GPU_UTIL", gpu.MetricGauge, map[int]gpu.Value{0: gpu.Int(60)})}
		s.Families = []gpu.Family{{Name: "DCGM_FI_DEV_GPU_UTIL", Type: gpu.MetricGauge, OwnersOnly: true, Series: []gpu.Series{
			{NoOwner: true, Owner: a.VirtualGPULabels(), Value: gpu.Int(60)},
		}}}
		s.Owners = &gpu.Owners{
			Labels: [][]gpu.Label{a.PodLabels()},
			Uses:   []gpu.Use{{Sharing: gpu.SharingTimeSlicing, Owners: []gpu.Owner{a}}},
		}
		want := []string{
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + `} 60`,
			`DCGM_FI_DEV_GPU_UTIL{` + labels0 + `,container="c",namespace="ns",pod="a",vgpu="0"} 60`,
		}
		page := encode(t, exposition.Options{VirtualGPUs: true, NoHealth: true, Strict: exposition.Strict{On: strict}}, s)
		got := slices.DeleteFunc(samples(page), func(line string) bool { return strings.Contains(line, "GPU_I_ID") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("strict %t: samples (-want +got):\n%s", strict, diff)
		}
	}
}

// TestMachineFieldsOnEveryEntity checks that machine-wide values read for any GPU, such as the driver version, also
// appear on switches, links, CPUs and cores, as in NVIDIA's exporter. Values of the GPU itself do not.
func TestMachineFieldsOnEveryEntity(t *testing.T) {
	machine := column("DCGM_FI_DRIVER_VERSION", gpu.MetricLabel, map[int]gpu.Value{rowGPU1: gpu.Text("570")})
	machine.Counter.OfMachine = true
	page := encode(t, exposition.Options{}, &gpu.Snapshot{Topology: world(), Columns: []gpu.Column{
		column("M", gpu.MetricGauge, map[int]gpu.Value{
			rowSwitch: gpu.Int(1), rowLink: gpu.Int(1), rowSwitchLink: gpu.Int(1), rowCPU: gpu.Int(1), rowCore: gpu.Int(1),
		}),
		machine,
		column("DCGM_FI_DEV_SERIAL", gpu.MetricLabel, map[int]gpu.Value{rowGPU0: gpu.Text("1"), rowGPU1: gpu.Text("2")}),
	}})
	const driver = `DCGM_FI_DRIVER_VERSION="570"} 1`
	want := []string{
		`M{nvswitch="nvswitch3",` + driver,
		`M{nvlink="4",gpu="0",gpu_uuid="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",model_name="NVIDIA H100  80GB",` + driver,
		`M{nvlink="4",nvswitch="nvswitch3",` + driver,
		`M{cpu="1",cpu_serial="0x1234",` + driver,
		`M{cpucore="72",cpu="1",` + driver,
	}
	if diff := cmp.Diff(want, samples(page)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}
