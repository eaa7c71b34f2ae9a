//go:build linux && cgo

package dcgm_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
)

var (
	onLinks    = gpu.KindsOf(gpu.KindNVLink)
	onSwitches = gpu.KindsOf(gpu.KindNVSwitch)
	onCPUs     = gpu.KindsOf(gpu.KindCPU)
	onCores    = gpu.KindsOf(gpu.KindCPUCore)
	onCards    = gpu.KindsOf(gpu.KindConnectX)
	onMachine  = gpu.KindsOf(gpu.KindNode)
)

// fabric returns a script of a node with every kind of entity: two GPUs with two links each, of which one is down and
// one does not exist; two switches; a CPU with three cores; and a ConnectX card.
func fabric(more ...string) []string {
	lines := world(slices.Concat([]string{
		"switch 0 links=2", "switch 1 links=1", "link switch:1:3 state=down", "link switch:1:4 state=disabled",
		"link gpu:0:0", "link gpu:0:1 state=down", "link gpu:1:2", "link gpu:1:3 state=none",
		"cpu 0 serial=0123ABCD cores=0-1,70", "connectx 5",
		"value switch:0 858 int 40", "value switch:1 858 int 50",
		"value link:* 780 int 7", "value link:switch:1:3 780 int 9", "value link:* 1525 int 3",
		"value link:gpu:1:2 1525 int 4",
		"value cpu:0 1110 double 61.5", "value any:* 1100 double 0.25", "value core:70 1100 double 0.75",
		"value connectx:5 1310 double 55",
	}, more)...)
	return lines
}

func fabricPlan() *gpu.Plan {
	plan := planOf(field(150, onGPU), field(858, onSwitches), field(780, onLinks), field(1525, onLinks),
		field(1110, onCPUs), field(1100, onCPUs|onCores), field(1310, onCards))
	plan.Switches, plan.CPUs = gpu.Selector{Flex: true}, gpu.Selector{Flex: true}
	return plan
}

// A link has the identity of its GPU, and a core that of its CPU.
func TestDevicesOfEveryKind(t *testing.T) {
	r := start(t, fabricPlan(), dcgm.Options{}, fabric()...)
	got := map[string]gpu.Device{}
	for _, d := range r.Topology().Devices {
		got[d.Entity.String()] = d
	}
	if len(got) != len(r.Topology().Devices) {
		t.Errorf("%d distinct names for %d devices, want one for each", len(got), len(r.Topology().Devices))
	}
	link := gpu.Device{
		Entity: gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindGPU, Parent: 1, ID: 2}, Link: 2,
		GPU: 1, UUID: "GPU-1", PCIBusID: "00000000:2C:00.0", NVMLIndex: 2, Minor: 3, Model: "NVIDIA H100 80GB HBM3",
	}
	instance := link
	instance.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7}
	instance.Link, instance.InstanceID, instance.Profile, instance.MIGUUID = 0, 1, "3g.40gb", "MIG-aaaa"
	for name, want := range map[string]gpu.Device{
		"GPU instance 7 of GPU 1": instance,
		"NVLink 2 of GPU 1":       link,
		"NVLink 3 of NVSwitch 1": {
			Entity: gpu.Entity{Kind: gpu.KindNVLink, ParentKind: gpu.KindNVSwitch, Parent: 1, ID: 3}, Link: 3},
		"CPU 0": {Entity: gpu.Entity{Kind: gpu.KindCPU}, Serial: "0123ABCD"},
		"CPU core 70 of CPU 0": {
			Entity: gpu.Entity{Kind: gpu.KindCPUCore, ParentKind: gpu.KindCPU, ID: 70}, Serial: "0123ABCD"},
		"ConnectX 5": {Entity: gpu.Entity{Kind: gpu.KindConnectX, ID: 5}},
	} {
		checkEqual(t, name, want, got[name])
	}
}

func TestSelectorsOfSwitchesAndCPUs(t *testing.T) {
	flex, major, minor := gpu.Selector{Flex: true}, gpu.Selector{Major: true}, gpu.Selector{Minor: true}
	for name, tt := range map[string]struct {
		devices, switches, cpus gpu.Selector
		want                    string
	}{
		"f": {flex, flex, flex, "CPU:1 CPU core:3 ConnectX:1 GPU:2 GPU instance:2 NVLink of GPU:3 " +
			"NVLink of NVSwitch:4 NVSwitch:2"},
		"g": {major, major, major, "CPU:1 ConnectX:1 GPU:2 NVLink of GPU:3 NVSwitch:2"},
		"i": {minor, minor, minor, "CPU core:3 ConnectX:1 GPU instance:2 NVLink of NVSwitch:4"},
		"some": {
			gpu.Selector{Major: true, MajorIDs: []uint32{0}},
			gpu.Selector{Major: true, MajorIDs: []uint32{1}, Minor: true, MinorIDs: []uint32{0}},
			gpu.Selector{Minor: true, MinorIDs: []uint32{1, 70}},
			"CPU core:2 ConnectX:1 GPU:1 NVLink of GPU:2 NVLink of NVSwitch:2 NVSwitch:1"},
		"fewer": {
			gpu.Selector{}, gpu.Selector{Minor: true, MinorIDs: []uint32{3}}, gpu.Selector{},
			"ConnectX:1 NVLink of NVSwitch:1"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := fabricPlan()
			plan.Devices, plan.Switches, plan.CPUs = tt.devices, tt.switches, tt.cpus
			rows := map[string]int{}
			for _, d := range start(t, plan, dcgm.Options{}, fabric()...).Topology().Devices {
				kind := d.Entity.Kind.String()
				if d.Entity.Kind == gpu.KindNVLink {
					kind += " of " + d.Entity.ParentKind.String()
				}
				rows[kind]++
			}
			checkEqual(t, "rows", "map["+tt.want+"]", fmt.Sprint(rows))
		})
	}
}

// If the engine lacks a module, the kinds of that module are missing and their fields have faults. Everything else is
// served.
func TestMissingModules(t *testing.T) {
	all := onGPU | onSwitches | onLinks | onCPUs | onCores | onCards
	for line, tt := range map[string]struct {
		faults []string
		served gpu.Kinds
	}{
		"without switch": {[]string{"all #1 not_supported"}, all &^ onSwitches},
		"without link":   {[]string{"all #2 not_supported", "all #3 not_supported"}, all &^ onLinks},
		"without cpu": {
			[]string{"all #4 not_supported", "all #5 not_supported"}, all &^ (onCPUs | onCores)},
		"without connectx": {[]string{"all #6 not_supported"}, all &^ onCards},
		"fail dcgmGetNvLinkLinkStatus -17": {
			[]string{"all #2 permission", "all #3 permission"}, all &^ onLinks},
	} {
		t.Run(line, func(t *testing.T) {
			r := start(t, fabricPlan(), dcgm.Options{}, fabric(line)...)
			b := r.read()
			isOfRow := func(line string) bool { return !strings.HasPrefix(line, "all ") }
			checkEqual(t, "faults", tt.faults, slices.DeleteFunc(r.shown(b), isOfRow))
			var served gpu.Kinds
			for _, x := range b.Samples {
				served |= gpu.KindsOf(r.Topology().Devices[x.Row].Entity.Kind)
			}
			checkEqual(t, "kinds with samples", tt.served.List(), served.List())
			r.lives()
			r.e.Remove(line)
			r.ends(gpu.ErrTopology)
		})
	}
}

// A link that goes down only changes a value. The session ends if entities are added or removed, or if instances are
// repartitioned under the same ID. Samples of such instances are not served.
func TestEntityChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		add, remove    string
		ends, isOfMIGs bool
	}{
		"link down":        {"link gpu:0:0 state=down", "", false, false},
		"link gone":        {"link gpu:0:0 state=none", "", true, false},
		"a switch's link":  {"link switch:0:7 state=up", "", true, false},
		"another switch":   {"switch 4 links=0", "", true, false},
		"another card":     {"connectx 6", "", true, false},
		"compute instance": {"compute 9 instance=8 nvml=0", "", true, true},
		"not requested":    {"path 0 1 pix", "", false, false},
		"GPU added":        {gpuLine(2, ""), "", true, false},
		"GPU removed":      {"", "gpu 0 ", true, false},
		"instance added":   {"instance 9 gpu=1 nvml=3 profile=1g.10gb", "", true, true},
		"instance removed": {"", "instance 8 ", true, true},
		"repartitioned":    {"instance 8 gpu=1 nvml=9 profile=4g.40gb", "instance 8 ", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			plan := fabricPlan()
			plan.Fields = append(plan.Fields, field(155, onBoth))
			r := start(t, plan, dcgm.Options{}, fabric()...)
			r.read()
			if tt.remove != "" {
				r.e.Remove(tt.remove)
			}
			if tt.add != "" {
				r.e.Add(tt.add)
			}
			b := r.read()
			if err := r.Err(); errors.Is(err, gpu.ErrTopology) != tt.ends {
				t.Errorf("Err = %v, want the session to end: %t", err, tt.ends)
			}
			for _, x := range b.Samples {
				if d := r.Topology().Devices[x.Row]; tt.isOfMIGs && d.Entity.Kind == gpu.KindGPUInstance {
					t.Errorf("%v has a sample after the repartition, want none", d.Entity)
				}
			}
		})
	}
}

// A GPU instance with several compute instances has no UUID. A change of its compute instances changes the topology.
func TestDividedInstances(t *testing.T) {
	instance := func(id, nvml uint32, profile, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, ID: id}, NVMLIndex: 1, Minor: 2,
			UUID: "GPU-0", PCIBusID: "00000000:1B:00.0", Model: "NVIDIA H100 80GB HBM3",
			InstanceID: nvml, Profile: profile, MIGUUID: uuid,
		}
	}
	plan := planOf(profiling(1001))
	plan.Devices = gpu.Selector{Minor: true}
	// The first instance has two compute instances, the second one, and the third none. For the first, the engine
	// reports the identity of one of its compute instances.
	r := start(t, plan, dcgm.Options{}, slices.Concat(versions, []string{
		gpuLine(0, "prof=1001-1012"),
		"instance 1 gpu=0 nvml=2 profile=1c.3g.40gb uuid=MIG-part-0",
		"instance 2 gpu=0 nvml=5 profile=2g.20gb uuid=MIG-whole",
		"instance 3 gpu=0 nvml=6 profile=1g.10gb",
		"compute 12 instance=1 nvml=0", "compute 11 instance=1 nvml=1", "compute 13 instance=2 nvml=0",
	})...)
	want := []gpu.Device{instance(1, 2, "3g.40gb", ""), instance(2, 5, "2g.20gb", "MIG-whole"),
		instance(3, 6, "1g.10gb", "")}
	checkEqual(t, "devices", want, r.Topology().Devices)
	r.read()
	r.lives()
	r.e.Remove("compute 11")
	if d := r.follow(plan).Topology().Devices[0]; d.MIGUUID != "MIG-part-0" {
		t.Errorf("one compute instance left: MIG UUID = %q, want MIG-part-0", d.MIGUUID)
	}
}

// Devices with a placement have their NUMA node and CPUs in the topology. Pairs refer to rows, and only join GPUs.
func TestPlacement(t *testing.T) {
	const (
		// two GPUs on NUMA node 0, connected by NVLink, and one on node 1
		wide   = "0-1 PHB 18; 0-2 SYS 0; 1-2 SYS 36"
		narrow = "0-1 PHB 18; 0-2 SYS 0; 1-2 SYS 0" // 36 links need the newer structure

		places   = "GPU 0: 0 0-31,64-95; GPU 1: 0 0-31,64-95; GPU 2: 1 32-63,96,510-511"
		nodeless = "GPU 0: -1 0-31,64-95; GPU 1: -1 0-31,64-95; GPU 2: -1 32-63,96,510-511"
	)
	all, some := gpu.Selector{Flex: true}, func(ids ...uint32) gpu.Selector {
		return gpu.Selector{Major: true, MajorIDs: ids}
	}
	for name, tt := range map[string]struct {
		selector      gpu.Selector
		pairs, places string
		more          []string
	}{
		"whole":      {all, wide, places, nil},
		"old engine": {all, narrow, places, []string{"old"}},
		"several NUMA nodes, or none": {all, wide, nodeless,
			[]string{"value gpu:0 86 int 3", "value gpu:1 86 unsupported", "value gpu:2 87 int 1"}},
		"no topology": {all, "", "GPU 0: 0 0-3,64; GPU 1: 0 ; GPU 2: 1 ", []string{"fail dcgmGetDeviceTopology -6"}},
		"one GPU without a topology": {all, wide,
			"GPU 0: 0 0-3,64; GPU 1: 0 0-31,64-95; GPU 2: 1 32-63,96,510-511",
			[]string{"fail dcgmGetDeviceTopology -3 1"}},
		"no fields": {all, wide, nodeless, []string{"unknown 86"}},
		"no fields and no topology": {all, "", "",
			[]string{"unknown 86", "fail dcgmGetDeviceTopology -3"}},
		"two GPUs": {some(1, 2), "0-1 SYS 36", "GPU 1: 0 0-31,64-95; GPU 2: 1 32-63,96,510-511", nil},
		"one GPU":  {some(2), "", "GPU 2: 1 32-63,96,510-511", nil},
		"instances": {gpu.Selector{Minor: true}, "", "",
			[]string{"instance 3 gpu=0 nvml=1 profile=1g.10gb", "value instance:* 155 int 45"}},
		"an instance between the GPUs": {all, "0-2 PHB 18; 0-3 SYS 0; 2-3 SYS 36", places,
			[]string{"instance 3 gpu=0 nvml=1 profile=1g.10gb"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := planOf(field(150, onGPU), field(155, onBoth))
			plan.Placement, plan.Devices = true, tt.selector
			r := start(t, plan, dcgm.Options{}, slices.Concat(versions, []string{
				gpuLine(0, "cpus=0-31,64-95"), gpuLine(1, "cpus=0-31,64-95"), gpuLine(2, "cpus=32-63,96,510-511"),
				"path 0 1 phb nvlinks=18", "path 0 2 sys", "path 1 2 sys nvlinks=36",
				"value gpu:* 150 int 45", "value gpu:* 70-73 int 0", "value gpu:* 86-89 int 0",
				"value gpu:0 86 int 1", "value gpu:1 86 int 1", "value gpu:2 86 int 2",
				"value gpu:0 70 int 15", "value gpu:0 71 int 1",
			}, tt.more)...)
			top := r.Topology()
			var pairs, places []string
			for _, p := range top.Pairs {
				pairs = append(pairs, fmt.Sprintf("%d-%d %v %d", p.A, p.B, p.Path, p.NVLinks))
			}
			for _, d := range top.Devices {
				if d.Place != nil {
					places = append(places, fmt.Sprintf("%v: %d %s", d.Entity, d.Place.NUMANode, d.Place.CPUs))
				}
			}
			checkEqual(t, "pairs", tt.pairs, strings.Join(pairs, "; "))
			checkEqual(t, "places", tt.places, strings.Join(places, "; "))
			if len(r.read().Samples) == 0 {
				t.Error("batch has no samples, want some")
			}
			if n := r.e.Count("live.reads"); n != 0 {
				t.Errorf("live reads = %d, want 0", n)
			}
		})
	}
}
