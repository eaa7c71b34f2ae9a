package exposition_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// The rows of world's topology.
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
	rowCount
)

// world returns a topology with an entity of every kind.
func world() *gpu.Topology {
	board := func(id uint32) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, NVMLIndex: id,
			UUID: fmt.Sprintf("GPU-%d", id), PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x1b+id), Model: "NVIDIA H100  80GB",
		}
	}
	instance := board(1)
	instance.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7}
	instance.InstanceID, instance.Profile = 2, "1g.10gb"
	link := board(0)
	link.Entity = gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindGPU, Parent: 0, ID: 4}
	link.Link = 4
	return gpu.NewTopology([]gpu.Device{
		rowNode:       {Entity: gpu.Entity{Kind: gpu.KindNode}},
		rowGPU0:       board(0),
		rowGPU1:       board(1),
		rowInstance:   instance,
		rowSwitch:     {Entity: gpu.Entity{Kind: gpu.KindNVSwitch, ID: 3}},
		rowLink:       link,
		rowSwitchLink: {Entity: gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindNVSwitch, Parent: 3, ID: 4}, Link: 4},
		rowCPU:        {Entity: gpu.Entity{Kind: gpu.KindCPU, ID: 1}, Serial: "0x1234"},
		rowCore:       {Entity: gpu.Entity{Kind: gpu.KindCPUCore, ParentKind: gpu.KindCPU, Parent: 1, ID: 72}},
	})
}

// column returns a column with the given values, by row.
func column(name string, typ gpu.MetricType, values map[int]gpu.Value) gpu.Column {
	c := gpu.Column{Counter: &gpu.Counter{Name: name, Type: typ, Help: "Help of " + name + "."}, Values: make([]gpu.Value, rowCount)}
	for row, v := range values {
		c.Values[row] = v
	}
	return c
}

// everywhere returns a value for every row.
func everywhere(v gpu.Value) map[int]gpu.Value {
	values := map[int]gpu.Value{}
	for row := range rowCount {
		values[row] = v
	}
	return values
}

// encode returns the page of one snapshot by an encoder of its own, after both
// parsers have read it.
func encode(t *testing.T, opts exposition.Options, s *gpu.Snapshot) string {
	t.Helper()
	p := exposition.NewEncoder(opts).Encode(s)
	defer p.Release()
	parse(t, p.Bytes())
	return string(p.Bytes())
}

// samples returns the lines of a page that are no comments.
func samples(page string) []string {
	lines := []string{}
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

func TestLabelsOfEveryKind(t *testing.T) {
	tests := []struct {
		name string
		opts exposition.Options
		host string
		want []string
	}{
		{
			name: "plain",
			want: []string{
				`M 1`,
				`M{gpu="0",UUID="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100  80GB"} 1`,
				`M{gpu="1",UUID="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA H100  80GB"} 1`,
				`M{gpu="1",UUID="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA H100  80GB",GPU_I_PROFILE="1g.10gb",GPU_I_ID="2"} 1`,
				`M{nvswitch="nvswitch3"} 1`,
				`M{nvlink="4",gpu="0",gpu_uuid="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",model_name="NVIDIA H100  80GB"} 1`,
				`M{nvlink="4",nvswitch="nvswitch3"} 1`,
				`M{cpu="1",cpu_serial="0x1234"} 1`,
				`M{cpucore="72",cpu="1"} 1`,
			},
		},
		{
			name: "old namespace, dashes, both host labels, remote engine",
			opts: exposition.Options{
				Hostname: "here", EngineHost: true, HostnameLabel: exposition.HostnameBoth,
				OldNamespace: true, ReplaceBlanksInModelName: true,
			},
			host: "engine",
			want: []string{
				`M{hostname="engine",Hostname="engine"} 1`,
				`M{gpu="0",uuid="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA-H100-80GB",hostname="engine",Hostname="engine"} 1`,
				`M{gpu="1",uuid="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA-H100-80GB",hostname="engine",Hostname="engine"} 1`,
				`M{gpu="1",uuid="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA-H100-80GB",GPU_I_PROFILE="1g.10gb",GPU_I_ID="2",hostname="engine",Hostname="engine"} 1`,
				`M{nvswitch="nvswitch3",hostname="engine",Hostname="engine"} 1`,
				`M{nvlink="4",gpu="0",gpu_uuid="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",model_name="NVIDIA H100  80GB",hostname="engine",Hostname="engine"} 1`,
				`M{nvlink="4",nvswitch="nvswitch3",hostname="engine",Hostname="engine"} 1`,
				`M{cpu="1",cpu_serial="0x1234",hostname="engine",Hostname="engine"} 1`,
				`M{cpucore="72",cpu="1",hostname="engine",Hostname="engine"} 1`,
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			topology := world()
			topology.Host = tt.host
			page := encode(t, tt.opts, &gpu.Snapshot{
				Topology: topology,
				Columns:  []gpu.Column{column("M", gpu.MetricGauge, everywhere(gpu.Int(1)))},
			})
			if diff := cmp.Diff(tt.want, samples(page)); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostnameLabel(t *testing.T) {
	for label, want := range map[exposition.HostnameLabel]string{
		"":                       `M{nvswitch="nvswitch3",hostname="h"} 1`,
		exposition.HostnameLower: `M{nvswitch="nvswitch3",hostname="h"} 1`,
		exposition.HostnameUpper: `M{nvswitch="nvswitch3",Hostname="h"} 1`,
		exposition.HostnameNone:  `M{nvswitch="nvswitch3"} 1`,
	} {
		topology := world()
		topology.Host = "engine" // not asked for
		page := encode(t, exposition.Options{Hostname: "h", HostnameLabel: label}, &gpu.Snapshot{
			Topology: topology,
			Columns:  []gpu.Column{column("M", gpu.MetricGauge, map[int]gpu.Value{rowSwitch: gpu.Int(1)})},
		})
		if diff := cmp.Diff([]string{want}, samples(page)); diff != "" {
			t.Errorf("label %q (-want +got):\n%s", label, diff)
		}
	}
}

// Label-typed counters apply to an entity, to its instances, and from the node
// to everything; the nearest one counts.
func TestLabelTypedCounters(t *testing.T) {
	page := encode(t, exposition.Options{}, &gpu.Snapshot{
		Topology: world(),
		Columns: []gpu.Column{
			column("Z", gpu.MetricLabel, map[int]gpu.Value{rowNode: gpu.Text("node"), rowGPU1: gpu.Text("board"), rowSwitch: gpu.Int(5)}),
			column("A", gpu.MetricLabel, map[int]gpu.Value{rowGPU0: gpu.Text("x"), rowInstance: gpu.Text("y")}),
			column("gpu", gpu.MetricLabel, map[int]gpu.Value{rowGPU0: gpu.Text("not the id")}),
			column("M", gpu.MetricGauge, everywhere(gpu.Int(1))),
		},
	})
	want := []string{
		`M{Z="node"} 1`,
		`M{gpu="0",UUID="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",modelName="NVIDIA H100  80GB",A="x",Z="node"} 1`,
		`M{gpu="1",UUID="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA H100  80GB",Z="board"} 1`,
		`M{gpu="1",UUID="GPU-1",pci_bus_id="00000000:1C:00.0",device="nvidia1",modelName="NVIDIA H100  80GB",GPU_I_PROFILE="1g.10gb",GPU_I_ID="2",A="y",Z="board"} 1`,
		`M{nvswitch="nvswitch3",Z="5"} 1`,
		`M{nvlink="4",gpu="0",gpu_uuid="GPU-0",pci_bus_id="00000000:1B:00.0",device="nvidia0",model_name="NVIDIA H100  80GB",Z="node"} 1`,
		`M{nvlink="4",nvswitch="nvswitch3",Z="node"} 1`,
		`M{cpu="1",cpu_serial="0x1234",Z="node"} 1`,
		`M{cpucore="72",cpu="1",Z="node"} 1`,
	}
	if diff := cmp.Diff(want, samples(page)); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestOwnerLabels(t *testing.T) {
	owner := []gpu.Label{
		{Name: "pod", Value: "train-0"}, {Name: "namespace", Value: "team-a"}, {Name: "container", Value: "main"},
		{Name: "app.kubernetes.io/name", Value: "x"}, {Name: "app_kubernetes_io_name", Value: "second"},
		{Name: "modelName", Value: "mine"}, {Name: "empty", Value: ""}, {Name: "1st", Value: "d"}, {Name: "__name__", Value: "u"},
	}
	owners := &gpu.Owners{Labels: make([][]gpu.Label, rowCount)}
	for row := range rowCount {
		owners.Labels[row] = owner
	}
	topology := gpu.NewTopology([]gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}}, {Entity: gpu.Entity{Kind: gpu.KindNVSwitch}}, {Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1}})
	owners.Labels = owners.Labels[:2] // the last row has no entry at all
	tests := map[bool][]string{
		false: {
			`M{gpu="0",device="nvidia0",_1st="d",_name__="u",app_kubernetes_io_name="x",container="main",namespace="team-a",pod="train-0"} 1`,
			`M{nvswitch="nvswitch0"} 1`,
			`M{gpu="1",device="nvidia0"} 1`,
		},
		true: {
			`M{gpu="0",device="nvidia0",_1st="d",_name__="u",app_kubernetes_io_name="x",container_name="main",pod_name="train-0",pod_namespace="team-a"} 1`,
			`M{nvswitch="nvswitch0"} 1`,
			`M{gpu="1",device="nvidia0"} 1`,
		},
	}
	for old, want := range tests {
		e := exposition.NewEncoder(exposition.Options{OldNamespace: old})
		p := e.Encode(&gpu.Snapshot{
			Topology: topology, Owners: owners,
			Columns: []gpu.Column{column("M", gpu.MetricGauge, everywhere(gpu.Int(1)))},
		})
		parse(t, p.Bytes())
		if diff := cmp.Diff(want, samples(string(p.Bytes()))); diff != "" {
			t.Errorf("old namespace %v (-want +got):\n%s", old, diff)
		}
		if got := e.LabelsDropped(); got != 2 {
			t.Errorf("LabelsDropped = %d, want 2 (a second key and modelName)", got)
		}
	}
}
