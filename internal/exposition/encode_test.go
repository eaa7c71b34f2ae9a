package exposition_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// rows of the topology returned by world
const (
	rowNode = iota
	rowGPU0
	rowGPU1
	rowInstance
	rowSwitch
	rowLink
	rowSwitchLink
	rowCPU
	rowCore
	rowCard
	rowCount
)

// world returns a topology with an entity of every kind.
func world() *gpu.Topology {
	board := func(id uint32) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, NVMLIndex: id,
			UUID: fmt.Sprintf("GPU-%d", id), PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x1b+id),
			Model: "NVIDIA H100  80GB",
		}
	}
	instance := board(1)
	instance.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7}
	instance.InstanceID, instance.Profile = 2, "2g.20gb"
	link := board(0)
	link.Entity = gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindGPU, Parent: 0, ID: 4}
	link.Link = 4
	return gpu.NewTopology([]gpu.Device{
		rowNode:     {Entity: gpu.Entity{Kind: gpu.KindNode}},
		rowGPU0:     board(0),
		rowGPU1:     board(1),
		rowInstance: instance,
		rowSwitch:   {Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 3}},
		rowLink:     link,
		rowSwitchLink: {
			Entity: gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindNVSwitch, Parent: 3, ID: 4}, Link: 4,
		},
		rowCPU:  {Entity: gpu.Entity{Kind: gpu.KindCPU, ID: 1}, Serial: "0x1234"},
		rowCore: {Entity: gpu.Entity{Kind: gpu.KindCPUCore, ParentKind: gpu.KindCPU, Parent: 1, ID: 72}},
		rowCard: {Entity: gpu.Entity{Kind: gpu.KindConnectX, ID: 2}, PCIBusID: "00000000:A0:00.0"},
	})
}

// Labels of some entities of world.
const (
	labels0     = `gpu="0",UUID="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100  80GB"`
	labels1     = `gpu="1",UUID="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA H100  80GB"`
	labelsOfMIG = labels1 + `,GPU_I_PROFILE="2g.20gb",GPU_I_ID="2"`
	labelsLink  = `nvlink="4",gpu="0",gpu_uuid="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",` +
		`model_name="NVIDIA H100  80GB"`
)

// column returns a column with the given values, by row.
func column(name string, typ gpu.MetricType, values map[int]gpu.Value) gpu.Column {
	c := gpu.Column{
		Counter: &gpu.Counter{Name: name, Type: typ, Help: "Help of " + name + "."},
		Values:  make([]gpu.Value, rowCount),
	}
	for row, v := range values {
		c.Values[row] = v
	}
	return c
}

// labelsOf returns labels from alternating names and values.
func labelsOf(pairs ...string) []gpu.Label {
	var list []gpu.Label
	for pair := range slices.Chunk(pairs, 2) {
		list = append(list, gpu.Label{Name: pair[0], Value: pair[1]})
	}
	return list
}

// everywhere returns a value for every row.
func everywhere(v gpu.Value) map[int]gpu.Value {
	values := map[int]gpu.Value{}
	for row := range rowCount {
		values[row] = v
	}
	return values
}

// encode returns the page of a snapshot from a new encoder. Both of Prometheus' parsers must accept it.
func encode(t *testing.T, opts exposition.Options, s *gpu.Snapshot) string {
	t.Helper()
	p := exposition.NewEncoder(opts).Encode(s)
	parse(t, p.Bytes())
	return string(p.Bytes())
}

// checkSamples checks the sample lines of a page, which both of Prometheus' parsers must accept.
func checkSamples(t *testing.T, what string, p *exposition.Page, want ...string) {
	t.Helper()
	parse(t, p.Bytes())
	if diff := cmp.Diff(want, samples(string(p.Bytes()))); diff != "" {
		t.Errorf("%s: samples (-want +got):\n%s", what, diff)
	}
}

// counted returns the values of a metric about pages, in the order of its labels.
func counted(t *testing.T, registry *prometheus.Registry, name string) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var values []any
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				values = append(values, m.GetGauge().GetValue()+m.GetCounter().GetValue())
			}
		}
	}
	return strings.TrimSpace(fmt.Sprintln(values...))
}

// samples returns the sample lines of a page.
func samples(page string) (lines []string) {
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// The engine's host is only used if the option is set.
func TestLabelsOfEveryKind(t *testing.T) {
	plain := []string{
		`M 1`, `M{` + labels0 + `} 1`, `M{` + labels1 + `} 1`, `M{` + labelsOfMIG + `} 1`, `M{nvswitch="nvswitch3"} 1`,
		`M{` + labelsLink + `} 1`, `M{nvlink="4",nvswitch="nvswitch3"} 1`, `M{cpu="1",cpu_serial="0x1234"} 1`,
		`M{cpucore="72",cpu="1"} 1`, `M{connectx="2",pci_bus_id="00000000:A0:00.0"} 1`,
	}
	withHost := func(line, host string) string {
		line = strings.Replace(strings.Replace(line, "M 1", "M{} 1", 1), "}", ","+host+"}", 1)
		return strings.Replace(line, "{,", "{", 1)
	}
	var named, changed []string
	for _, line := range plain {
		named = append(named, withHost(line, `Hostname="h"`))
		line = strings.Replace(line, "UUID=", "uuid=", 1)
		line = strings.Replace(line, `modelName="NVIDIA H100  80GB"`, `modelName="NVIDIA-H100-80GB"`, 1)
		changed = append(changed, withHost(line, `hostname="engine",Hostname="engine"`))
	}
	s := &gpu.Snapshot{
		Topology: world(), Columns: []gpu.Column{column("M", gpu.MetricGauge, everywhere(gpu.Int(1)))},
	}
	s.Topology.Host = "engine"
	checkSamples(t, "plain", exposition.NewEncoder(exposition.Options{}).Encode(s), plain...)
	host := exposition.Options{Hostname: "h", HostLabels: []string{"Hostname"}}
	checkSamples(t, "another name of the host label", exposition.NewEncoder(host).Encode(s), named...)
	all := exposition.Options{
		HostLabels: []string{"hostname", "Hostname"}, Hostname: "here", EngineHost: true,
		OldNamespace: true, ReplaceBlanksInModelName: true,
	}
	checkSamples(t, "every option", exposition.NewEncoder(all).Encode(s), changed...)
}

// Label-type counters apply to an entity and its instances. Those of the node apply to everything. The closest one
// wins.
func TestLabelTypedCounters(t *testing.T) {
	z := map[int]gpu.Value{rowNode: gpu.Text("node"), rowGPU1: gpu.Text("board"), rowSwitch: gpu.Int(5)}
	page := exposition.NewEncoder(exposition.Options{}).Encode(&gpu.Snapshot{
		Topology: world(),
		Columns: []gpu.Column{
			column("Z", gpu.MetricLabel, z),
			column("A", gpu.MetricLabel, map[int]gpu.Value{rowGPU0: gpu.Text("x"), rowInstance: gpu.Text("y")}),
			column("gpu", gpu.MetricLabel, map[int]gpu.Value{rowGPU0: gpu.Text("not the id")}),
			column("M", gpu.MetricGauge, everywhere(gpu.Int(1))),
		},
	})
	checkSamples(t, "page", page,
		`M{Z="node"} 1`,
		`M{`+labels0+`,A="x",Z="node"} 1`,
		`M{`+labels1+`,Z="board"} 1`,
		`M{`+labelsOfMIG+`,A="y",Z="board"} 1`,
		`M{nvswitch="nvswitch3",Z="5"} 1`,
		`M{`+labelsLink+`,Z="node"} 1`,
		`M{nvlink="4",nvswitch="nvswitch3",Z="node"} 1`,
		`M{cpu="1",cpu_serial="0x1234",Z="node"} 1`,
		`M{cpucore="72",cpu="1",Z="node"} 1`,
		`M{connectx="2",pci_bus_id="00000000:A0:00.0",Z="node"} 1`,
	)

	// Machine-wide values that are read for any GPU, such as the driver version, also appear on switches, links, CPUs
	// and cores, as in NVIDIA's exporter. Values of the GPU itself do not.
	machine := column("DCGM_FI_DRIVER_VERSION", gpu.MetricLabel, map[int]gpu.Value{rowGPU1: gpu.Text("570")})
	machine.Counter.OfMachine = true
	m, one := map[int]gpu.Value{}, gpu.Int(1)
	for _, row := range []int{rowSwitch, rowLink, rowSwitchLink, rowCPU, rowCore} {
		m[row] = one
	}
	page = exposition.NewEncoder(exposition.Options{}).Encode(&gpu.Snapshot{Topology: world(), Columns: []gpu.Column{
		column("M", gpu.MetricGauge, m),
		machine,
		column("DCGM_FI_DEV_SERIAL", gpu.MetricLabel, map[int]gpu.Value{rowGPU0: one, rowGPU1: gpu.Int(2)}),
	}})
	const driver = `DCGM_FI_DRIVER_VERSION="570"} 1`
	checkSamples(t, "machine", page,
		`M{nvswitch="nvswitch3",`+driver,
		`M{`+labelsLink+`,`+driver,
		`M{nvlink="4",nvswitch="nvswitch3",`+driver,
		`M{cpu="1",cpu_serial="0x1234",`+driver,
		`M{cpucore="72",cpu="1",`+driver,
	)
}

func TestOwnerLabels(t *testing.T) {
	owner := labelsOf(
		"pod", "train-0", "namespace", "team-a", "container", "main", "app.kubernetes.io/name", "x",
		"app_kubernetes_io_name", "second", "modelName", "mine", "empty", "", "1st", "d", "__name__", "u",
	)
	owners := &gpu.Owners{Labels: [][]gpu.Label{owner, owner}} // the last row has no entry
	topology := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}, Model: "T4"},
		{Entity: gpu.Entity{Kind: gpu.KindNVSwitch}},
		{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1},
	})
	const own = `M{gpu="0",device="nvidia0",modelName="T4",_1st="d",_name__="u",app_kubernetes_io_name="x",`
	for old, want := range map[bool]string{
		false: own + `container="main",namespace="team-a",pod="train-0"} 1`,
		true:  own + `container_name="main",pod_name="train-0",pod_namespace="team-a"} 1`,
	} {
		registry := prometheus.NewRegistry()
		e := exposition.NewEncoder(exposition.Options{OldNamespace: old, Registerer: registry})
		p := e.Encode(&gpu.Snapshot{
			Topology: topology, Owners: owners,
			Columns: []gpu.Column{column("M", gpu.MetricGauge, everywhere(gpu.Int(1)))},
		})
		checkSamples(t, fmt.Sprintf("old namespace %v", old), p, want, `M{nvswitch="nvswitch0"} 1`,
			`M{gpu="1",device="nvidia0"} 1`)
		if got := counted(t, registry, "dcgm_exporter_labels_dropped_total"); got != "2" {
			t.Errorf("labels dropped = %s, want 2 (a second key and modelName)", got)
		}
	}
}

// Integers stay integers, and floats have their shortest form. Values that are not numbers have no sample.
func TestValues(t *testing.T) {
	for value, want := range map[gpu.Value]string{ // "" for no sample
		{}: "", gpu.Text("on"): "",
		gpu.Int(0):             "0",
		gpu.Int(math.MaxInt64): "9223372036854775807",
		gpu.Int(math.MinInt64): "-9223372036854775808",
		gpu.Float(100.5):       "100.5",
		gpu.Float(0.1):         "0.1",
		gpu.Float(1e-7):        "1e-07",
		gpu.Float(42):          "42",
		gpu.Float(-3):          "-3",
		gpu.Float(999_999):     "999999",
		gpu.Float(1e6):         "1e+06",
		gpu.Float(1 << 62):     "4.611686018427388e+18",

		gpu.Float(math.MaxFloat64):      "1.7976931348623157e+308",
		gpu.Float(math.Copysign(0, -1)): "-0",
		gpu.Float(math.Inf(1)):          "+Inf",
		gpu.Float(math.Inf(-1)):         "-Inf",
	} {
		page := encode(t, exposition.Options{}, &gpu.Snapshot{
			Topology: world(),
			Columns:  []gpu.Column{column("M", gpu.MetricUntyped, map[int]gpu.Value{rowNode: value})},
		})
		if want != "" {
			want = "# HELP M Help of M.\n# TYPE M untyped\nM " + want + "\n"
		}
		if page != want {
			t.Errorf("%v: page = %q, want %q", value, page, want)
		}
	}
}

// FuzzNumber checks that floats are formatted like strconv's shortest form. Whole numbers below a million have no
// exponent.
func FuzzNumber(f *testing.F) {
	for _, x := range []float64{
		0.1, 0.35, 71.234567, 999999.999999, 0.000123, 1.0000005, 0.30000000000000004, -12.5, 1e-5, 123456.7890125,
	} {
		f.Add(x)
	}
	s := &gpu.Snapshot{Topology: world(), Columns: []gpu.Column{column("M", gpu.MetricUntyped, nil)}}
	f.Fuzz(func(t *testing.T, x float64) {
		for _, n := range []float64{x, math.Round(math.Mod(x, 1e6)*1e3) / 1e3, math.Round(math.Mod(x, 1e6)*1e6) / 1e6} {
			if math.IsNaN(n) {
				continue
			}
			s.Columns[0].Values[rowNode] = gpu.Float(n)
			p := exposition.NewEncoder(exposition.Options{}).Encode(s)
			_, got, _ := strings.Cut(string(p.Bytes()), "\nM ")
			got, _, _ = strings.Cut(got, "\n")
			if want := strconv.FormatFloat(n, 'g', -1, 64); got != want {
				t.Errorf("%v is formatted as %s, want %s", n, got, want)
			}
		}
	})
}

// Two boards that an engine cannot distinguish are served once in every family, and the second one is counted.
func TestEqualEntities(t *testing.T) {
	twin := gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"}
	other := twin
	other.Entity.ID = 1
	registry := prometheus.NewRegistry()
	e := exposition.NewEncoder(exposition.Options{Registerer: registry})
	s := &gpu.Snapshot{
		Topology: gpu.NewTopology([]gpu.Device{twin, other}),
		Columns: []gpu.Column{
			column("A", gpu.MetricGauge, map[int]gpu.Value{0: gpu.Int(1), 1: gpu.Int(2)}),
			column("B", gpu.MetricGauge, map[int]gpu.Value{1: gpu.Int(3)}),
		},
		Families: []gpu.Family{{Name: "C", Type: gpu.MetricCounter, Series: []gpu.Series{
			{Row: 0, Labels: labelsOf("x", "1", "y", "2"), Value: gpu.Int(4)},
			{Row: 1, Labels: labelsOf("y", "2", "x", "1"), Value: gpu.Int(5)},
			{Row: 1, Labels: labelsOf("y", "1", "x", "2"), Value: gpu.Int(6)},
		}}},
		Health: gpu.Health{Entities: make([]gpu.EntityHealth, 2)},
	}
	for cycle := 1; cycle <= 2; cycle++ {
		checkSamples(t, "page", e.Encode(s),
			`A{gpu="0",UUID="GPU-0",device="nvidia0"} 1`,
			`B{gpu="0",UUID="GPU-0",device="nvidia0"} 3`,
			`C{gpu="0",UUID="GPU-0",device="nvidia0",x="1",y="2"} 4`,
			`C{gpu="0",UUID="GPU-0",device="nvidia0",y="1",x="2"} 6`,
			`dcgm_exporter_entity_up{gpu="0",UUID="GPU-0"} 1`,
		)
		const name = "dcgm_exporter_duplicate_samples_dropped_total"
		if got := counted(t, registry, name); got != fmt.Sprint(3*cycle) {
			t.Errorf("duplicates dropped = %s after %d cycles, want %d", got, cycle, 3*cycle)
		}
	}
}

// Columns, families and the trailer may have the same name. It is one family with one header.
func TestOneFamilyOfSeveralSources(t *testing.T) {
	trailer := func(dst []byte) []byte { return append(dst, "# TYPE up gauge\nup 1"...) }
	page := encode(t, exposition.Options{Trailer: trailer}, &gpu.Snapshot{
		Topology: world(),
		Columns: []gpu.Column{
			column("M", gpu.MetricGauge, map[int]gpu.Value{rowNode: gpu.Int(1)}),
			column("N", gpu.MetricGauge, nil),
			column("M", gpu.MetricCounter, map[int]gpu.Value{rowNode: gpu.Int(2), rowSwitch: gpu.Int(3)}),
			column("O.P", gpu.MetricCounter, map[int]gpu.Value{rowSwitch: gpu.Int(4)}),
		},
		Families: []gpu.Family{
			{Name: "N", Help: "another", Series: []gpu.Series{{Row: gpu.AllRows, Value: gpu.Int(5)}}},
			{Name: "M", Series: []gpu.Series{{Row: gpu.AllRows, Labels: labelsOf("x", "1"), Value: gpu.Int(6)}}},
		},
	})
	want := `# HELP M Help of M.
# TYPE M gauge
M 1
M{nvswitch="nvswitch3"} 3
M{x="1"} 6
# HELP N Help of N.
# TYPE N gauge
N 5
# HELP O_P Help of O.P.
# TYPE O_P counter
O_P{nvswitch="nvswitch3"} 4
# TYPE up gauge
up 1
`
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}

// The labels of a derived series do not replace labels that identify its entity. They replace all other labels.
func TestDerivedLabels(t *testing.T) {
	registry := prometheus.NewRegistry()
	e := exposition.NewEncoder(exposition.Options{Hostname: "h", Registerer: registry})
	own := labelsOf("xid", "62", "gpu", "9", "xid", "63", "DRIVER", "2")
	p := e.Encode(&gpu.Snapshot{
		Topology: world(),
		Owners:   &gpu.Owners{Labels: [][]gpu.Label{rowGPU0: labelsOf("pod", "p", "xid", "pod's own")}},
		Columns:  []gpu.Column{column("DRIVER", gpu.MetricLabel, everywhere(gpu.Text("1")))},
		Families: []gpu.Family{{Name: "F", Series: []gpu.Series{
			{Row: rowGPU0, Labels: own, Value: gpu.Int(1)},
			{Row: rowSwitch, Labels: labelsOf("gpu", "9", "blank", ""), Value: gpu.Int(2)},
			{Row: gpu.AllRows, Labels: labelsOf("gpu", "9"), Value: gpu.Int(3)},
			{Row: rowCount, Value: gpu.Int(4)}, // no such entity
			{Row: rowGPU1, Value: gpu.Text("no number")},
		}}, {Name: "G", OfNode: true, Series: []gpu.Series{
			{Row: gpu.AllRows, Labels: labelsOf("x", "y"), Value: gpu.Int(5)},
		}}},
	})
	checkSamples(t, "page", p,
		`F{`+labels0+`,hostname="h",pod="p",xid="62",DRIVER="2"} 1`,
		`F{nvswitch="nvswitch3",hostname="h",DRIVER="1",gpu="9"} 2`,
		`F{gpu="9"} 3`,
		`G{x="y",hostname="h"} 5`,
	)
	if got := counted(t, registry, "dcgm_exporter_labels_dropped_total"); got != "4" {
		t.Errorf("labels dropped = %s, want 4 (gpu, the second xid, the pod's xid, DRIVER)", got)
	}
}

// Labels change with the topology, the owners and the label-type counters.
func TestLabelsFollow(t *testing.T) {
	e := exposition.NewEncoder(exposition.Options{})
	s := &gpu.Snapshot{
		Topology: gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}}}),
		Columns: []gpu.Column{
			column("M", gpu.MetricGauge, everywhere(gpu.Int(1))),
			column("L", gpu.MetricLabel, map[int]gpu.Value{0: gpu.Text("1")}),
		},
	}
	owner := func(pod string) *gpu.Owners {
		return &gpu.Owners{Labels: [][]gpu.Label{{{Name: "pod", Value: pod}}}}
	}
	family := func(x string) []gpu.Family {
		series := gpu.Series{Row: gpu.AllRows, Labels: labelsOf("x", x), Value: gpu.Int(1)}
		return []gpu.Family{{Name: "F", Series: []gpu.Series{series}}}
	}
	const m = `M{gpu="0",device="nvidia0"`
	steps := []struct {
		name   string
		change func()
		want   []string
	}{
		{"first", func() {}, []string{m + `,L="1"} 1`}},
		{"owner", func() { s.Owners = owner("a") }, []string{m + `,L="1",pod="a"} 1`}},
		{"other owner", func() { s.Owners = owner("b") }, []string{m + `,L="1",pod="b"} 1`}},
		{"label value", func() { s.Columns[1].Values[0] = gpu.Text("2") }, []string{m + `,L="2",pod="b"} 1`}},
		{"label gone", func() { s.Columns = s.Columns[:1] }, []string{m + `,pod="b"} 1`}},
		{"a series without an entity", func() { s.Families = family("1") }, []string{m + `,pod="b"} 1`, `F{x="1"} 1`}},
		{"another one", func() { s.Families = family("2") }, []string{m + `,pod="b"} 1`, `F{x="2"} 1`}},
		{"no owner", func() { s.Owners, s.Families = nil, nil }, []string{m + `} 1`}},
		{"session lost", func() { s.Topology = nil }, nil},
		{"new topology", func() {
			s.Topology = gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 2}}})
		}, []string{`M{nvswitch="nvswitch2"} 1`}},
	}
	for _, step := range steps {
		step.change()
		checkSamples(t, step.name, e.Encode(s), step.want...)
	}
}

// Failures are served as series, even if there is nothing else. Ages are never negative.
func TestHealth(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	unavailable := []gpu.FieldHealth{
		{Field: "a \"b\"", Row: gpu.AllRows, Reason: "unavailable"}, {Field: "M", Row: 2, Reason: "lost"},
	}
	health := func(age time.Duration, err error) gpu.EntityHealth {
		return gpu.EntityHealth{Err: err, OldestSample: now.Add(-age).UnixNano()}
	}
	s := &gpu.Snapshot{
		Time: now, Topology: gpu.NewTopology(world().Devices[:rowSwitch+1]),
		Health: gpu.Health{Unavailable: unavailable, Entities: []gpu.EntityHealth{
			health(time.Hour, nil), health(1500*time.Millisecond, nil),
			{Err: fmt.Errorf("read: %w", gpu.ErrLost)}, health(-time.Second, nil), {},
		}},
	}
	const gpu0, gpu1, nvswitch = `gpu="0",UUID="GPU-0"`, `gpu="1",UUID="GPU-1"`, `nvswitch="nvswitch3"`
	const instance = gpu1 + `,GPU_I_ID="2"`
	want := []string{
		`dcgm_exporter_entity_up{` + gpu0 + `} 1`, `dcgm_exporter_entity_up{` + gpu1 + `,reason="lost"} 0`,
		`dcgm_exporter_entity_up{` + instance + `} 1`, `dcgm_exporter_entity_up{` + nvswitch + `} 1`,
		`dcgm_exporter_field_unavailable{field="a \"b\"",reason="unavailable"} 1`,
		`dcgm_exporter_field_unavailable{` + gpu1 + `,field="M",reason="lost"} 1`,
		`dcgm_exporter_sample_age_seconds{` + gpu0 + `} 1.5`, `dcgm_exporter_sample_age_seconds{` + instance + `} 0`,
	}
	e := exposition.NewEncoder(exposition.Options{Hostname: "h"})
	checkSamples(t, "page", e.Encode(s), want...)
	checkSamples(t, "without a topology", e.Encode(&gpu.Snapshot{
		Columns: []gpu.Column{column("M", gpu.MetricGauge, everywhere(gpu.Int(1)))},
		Health:  gpu.Health{Err: gpu.ErrUnavailable, Entities: make([]gpu.EntityHealth, 3), Unavailable: unavailable},
	}), want[4])
}

// An encoder writes a copy of the series for each set of owner labels, except of families that are split by owner. It
// formats floats and empty help texts as its options say.
func TestCopiesAndFormats(t *testing.T) {
	a, b := labelsOf("pod", "a"), labelsOf("pod", "b")
	format := func(dst []byte, v float64) []byte { return strconv.AppendFloat(dst, v, 'f', 3, 64) }
	split := column("SPLIT", gpu.MetricGauge, map[int]gpu.Value{rowGPU0: gpu.Int(3)})
	split.Counter.Help = ""
	owners := &gpu.Owners{Labels: make([][]gpu.Label, rowCount), Copies: make([][][]gpu.Label, rowSwitch)}
	owners.Copies[rowGPU0] = [][]gpu.Label{a, b}
	owners.Labels[rowGPU1] = labelsOf("pod", "c")
	s := &gpu.Snapshot{
		Topology: world(), Owners: owners,
		Columns: []gpu.Column{
			column("A", gpu.MetricGauge, map[int]gpu.Value{rowGPU0: gpu.Float(0.5), rowGPU1: gpu.Int(1)}), split,
		},
		Families: []gpu.Family{{Name: "SPLIT", OwnersOnly: true, Series: []gpu.Series{
			{Row: rowGPU0, NoOwner: true, Owner: a, Value: gpu.Int(2)}, {Row: rowGPU0, NoOwner: true, Owner: b},
		}}},
	}
	page := encode(t, exposition.Options{EmptyHelp: true, AppendFloat: format}, s)
	want := []string{
		"# HELP A Help of A.", "# TYPE A gauge",
		`A{` + labels0 + `,pod="a"} 0.500`, `A{` + labels0 + `,pod="b"} 0.500`, `A{` + labels1 + `,pod="c"} 1`,
		"# HELP SPLIT ", "# TYPE SPLIT gauge",
		`SPLIT{` + labels0 + `} 3`, `SPLIT{` + labels0 + `,pod="a"} 2`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(page, "\n"), "\n")); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}

// A series can have the owner at the time of an event, or none, instead of the current one.
func TestSeriesWithOwnOwner(t *testing.T) {
	xid, now, then := labelsOf("xid", "79"), labelsOf("pod", "now"), labelsOf("namespace", "a", "pod", "then")
	s := &gpu.Snapshot{
		Topology: world(), Owners: &gpu.Owners{Labels: [][]gpu.Label{rowGPU0: now}},
		Families: []gpu.Family{{Name: "E", Series: []gpu.Series{
			{Row: rowGPU0, Labels: xid, Value: gpu.Int(1)},
			{Row: rowGPU0, Labels: xid, NoOwner: true, Value: gpu.Int(2)},
			{Row: rowGPU0, Labels: xid, NoOwner: true, Owner: then, Value: gpu.Int(3)},
			{Row: rowGPU0, Labels: xid, NoOwner: true, Owner: now, Value: gpu.Int(4)}, // duplicate of the first
		}}},
	}
	want := []string{
		`E{` + labels0 + `,pod="now",xid="79"} 1`, `E{` + labels0 + `,xid="79"} 2`,
		`E{` + labels0 + `,namespace="a",pod="then",xid="79"} 3`,
	}
	checkSamples(t, "new names", exposition.NewEncoder(exposition.Options{}).Encode(s), want...)
	oldNames := strings.NewReplacer("UUID", "uuid", "pod=", "pod_name=", "namespace=", "pod_namespace=")
	for i := range want {
		want[i] = oldNames.Replace(want[i])
	}
	checkSamples(t, "old names", exposition.NewEncoder(exposition.Options{OldNamespace: true}).Encode(s), want...)
}
