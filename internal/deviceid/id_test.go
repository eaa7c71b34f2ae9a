package deviceid_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/deviceid"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

const (
	gpu0 = "GPU-00000000-0000-4000-8000-000000000000"
	gpu3 = "GPU-30000000-0000-4000-8000-000000000003"
	migA = "MIG-a0000000-0000-5000-8000-000000000001"
	migB = "MIG-a0000000-0000-5000-8000-000000000002"
)

// node returns five GPUs with minor numbers in reverse order, of which the fourth has two instances, and a switch.
func node() *gpu.Topology {
	var devices []gpu.Device
	for i := range uint32(5) {
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: i}, GPU: i, NVMLIndex: i, Minor: 4 - i,
			UUID:     fmt.Sprintf("GPU-%d0000000-0000-4000-8000-00000000000%d", i, i),
			PCIBusID: fmt.Sprintf("00000000:%dB:00.0", i+1),
		})
	}
	for i, uuid := range []string{migA, migB} {
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 42 + uint32(i), ParentKind: gpu.KindGPU, Parent: 3},
			GPU:    3, NVMLIndex: 3, Minor: 1, UUID: gpu3, InstanceID: 7 + uint32(i), Profile: "1g.10gb", MIGUUID: uuid,
		})
	}
	return gpu.NewTopology(append(devices, gpu.Device{Entity: gpu.Entity{Kind: gpu.KindNVSwitch}}))
}

func want[T any](t testing.TB, what string, got, expected T) {
	t.Helper()
	if diff := cmp.Diff(expected, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		want deviceid.ID
	}{
		{gpu0, deviceid.ID{Form: deviceid.FormGPU, UUID: gpu0}},
		{strings.ToLower(gpu0), deviceid.ID{Form: deviceid.FormGPU, UUID: gpu0}},
		{strings.ToUpper(migA), deviceid.ID{Form: deviceid.FormMIG, UUID: migA}},
		{gpu0 + "::10", deviceid.ID{Form: deviceid.FormGPU, UUID: gpu0, Replica: "10"}},
		{migA + "::0", deviceid.ID{Form: deviceid.FormMIG, UUID: migA, Replica: "0"}},
		{"MIG-" + gpu0 + "/13/0", deviceid.ID{Form: deviceid.FormMIGPath, UUID: gpu0, Instance: 13}},
		{"nvidia12/gi3/vgpu4", deviceid.ID{Form: deviceid.FormInstance, Index: 12, Instance: 3, Replica: "4"}},
		{gpu0[4:], deviceid.ID{Form: deviceid.FormBare, UUID: gpu0[4:]}},
	} {
		want(t, tt.text, deviceid.Parse(tt.text), tt.want)
	}
	for _, text := range []string{
		"", "GPU-", "MIG-", "nvidia", "nvidia-1", "nvidia01", "nvidia0/", "nvidia0/gi", "nvidia0/vgpu1/gi2",
		"nvidia0/vgpu", "nvidia0/vgpux", "nvidia0::1", gpu0 + "::", gpu0 + "::x", gpu0 + "::01", gpu0 + "::1::2",
		"MIG-" + gpu0, "MIG-" + gpu0 + "/1", "MIG-" + gpu0 + "/1/x", "nvidia99999999999",
		"00000000-0000-4000-8000-00000000000g", "0000:3b:00.0", "a/b/c", "gpu.nvidia.com/pool/of/node/gpu-0",
		"/dev/nvidia0", "GPU-\xff",
	} {
		if id := deviceid.Parse(text); id != (deviceid.ID{Form: deviceid.FormUnknown, Text: text}) {
			t.Errorf("Parse(%q) = %+v, want FormUnknown with the text", text, id)
		}
	}
}

// If a node is only partly known or watched, an ID names its entity or nothing, but never another entity.
func TestRowsOfPartlyKnownNodes(t *testing.T) {
	const x, y = "GPU-00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	whole := func(n uint32, uuid string) gpu.Device { // without a minor number
		return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: n}, GPU: n, NVMLIndex: n, UUID: uuid}
	}
	instance := func(n, id uint32, parent, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7*n + id, ParentKind: gpu.KindGPU, Parent: n},
			GPU:    n, NVMLIndex: n, UUID: parent, InstanceID: id, MIGUUID: uuid,
		}
	}
	type list []gpu.Device
	for _, tt := range []struct {
		name    string
		devices list
		want    map[string][]int
	}{
		{
			"no minor numbers: NVML's indices", list{whole(0, x), whole(1, "GPU-"+y)},
			map[string][]int{
				"nvidia0": {0}, "nvidia1": {1}, "nvidia2": nil,
				"/dev/nvidia0": {0}, "/dev/nvidia1": {1}, "/dev/nvidia2": nil,
			},
		},
		{
			"one UUID behind two prefixes", list{whole(0, "GPU-"+y), instance(1, 3, x, "MIG-"+y)},
			map[string][]int{y: nil, "GPU-" + y: {0}, "MIG-" + y: {1}},
		},
		{
			"a GPU with ID 0 and minor number 3",
			list{{Entity: gpu.Entity{Kind: gpu.KindGPU}, Minor: 3, UUID: x}, instance(0, 5, x, "MIG-a")},
			map[string][]int{"nvidia3": {0}, "nvidia3/gi5": {1}, "nvidia0": nil, "nvidia0/gi5": nil},
		},
		{
			"GPU instances without their GPUs",
			list{instance(2, 3, x, "MIG-a"), instance(2, 5, x, "MIG-b"), instance(4, 5, "GPU-z", "MIG-c")},
			map[string][]int{
				"nvidia2/gi5": {1}, "nvidia4/gi5": {2}, "nvidia4/gi3": nil, "nvidia2": nil,
				"MIG-" + x + "/5/0": {1}, "MIG-GPU-z/5/0": {2}, "MIG-GPU-z/3/0": nil, "MIG-GPU-y/5/0": nil,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := deviceid.NewResolver(gpu.NewTopology(tt.devices))
			got := map[string][]int{}
			for id := range tt.want {
				parse := deviceid.Parse
				if strings.HasPrefix(id, "/dev/") {
					parse = deviceid.ParseVisible
				}
				got[id] = r.Rows(parse(id))
			}
			want(t, "rows", got, tt.want)
		})
	}
}

// A GPU instance is found by its placement, if the driver reports placements.
func TestPlaced(t *testing.T) {
	first, third := uint32(0), uint32(3)
	devices := slices.Clone(node().Devices)
	r := deviceid.NewResolver(gpu.NewTopology(devices))
	id := deviceid.Placed(gpu3, "1g.10gb", 3)
	want(t, "of unknown places", r.Rows(id), nil)
	if why := id.Missing(); !strings.Contains(why, "no GPU instance 1g.10gb at memory slice 3 yet") {
		t.Error(why)
	}
	for row, start := range map[int]*uint32{5: &first, 6: &third} {
		devices[row].Start, devices[row].Profile = start, "1g.10gb"
	}
	r = deviceid.NewResolver(gpu.NewTopology(devices))
	for id, rows := range map[deviceid.ID][]int{
		deviceid.Placed(gpu3, "1g.10gb", 0): {5}, deviceid.Placed(strings.ToUpper(gpu3), "1g.10gb", 3): {6},
		deviceid.Placed(gpu3, "2g.20gb", 3): nil, deviceid.Placed(gpu3, "1g.10gb", 1): nil,
		deviceid.Placed(gpu0, "1g.10gb", 0): nil,
	} {
		want(t, fmt.Sprint(id), r.Rows(id), rows)
	}
}

// Missing returns why an ID names nothing, and whether the ID itself shows that it is NVIDIA's.
func TestMissing(t *testing.T) {
	const x, y = "GPU-00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	r := deviceid.NewResolver(gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-" + y},
		{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 9, ParentKind: gpu.KindGPU, Parent: 1},
			UUID:   x, InstanceID: 3, MIGUUID: "MIG-" + y,
		},
	}))
	for id, tt := range map[string]struct {
		ours bool
		why  string
	}{
		y:                   {false, "The GPU is excluded"}, // two entities have this UUID
		gpu0[4:]:            {false, "The GPU is excluded"},
		"MIG-" + x + "/4/0": {true, "The GPU instance may have been destroyed"},
		"MIG-GPU-z/3/0":     {true, "The GPU instance may have been destroyed"},
		"nvidia7/gi3":       {true, "The GPU instance may have been destroyed"},
		"nvidia7":           {true, "The GPU is excluded"},
		migA:                {true, "The GPU instance may have been destroyed"},
		gpu0:                {true, "The GPU is excluded"},
		"unit-7":            {false, "Unknown form"},
	} {
		parsed := deviceid.Parse(id)
		if why := parsed.Missing(); !strings.HasPrefix(why, tt.why) || r.Rows(parsed) != nil {
			t.Errorf("%q: rows = %v, reason = %q; want no row and the reason %q", id, r.Rows(parsed), why, tt.why)
		}
		want(t, id+" is NVIDIA's", parsed.OfNVIDIA(), tt.ours)
	}
}

// written returns the texts that parse as id. A replica has two forms.
func written(id deviceid.ID) []string {
	s := map[deviceid.Form]string{
		deviceid.FormGPU: id.UUID, deviceid.FormMIG: id.UUID, deviceid.FormBare: id.UUID,
		deviceid.FormMIGPath: fmt.Sprintf("MIG-%s/%d/%d", id.UUID, id.Instance, id.Compute),
		deviceid.FormIndex:   fmt.Sprint("nvidia", id.Index), deviceid.FormNode: fmt.Sprint("/dev/nvidia", id.Index),
		deviceid.FormInstance:  fmt.Sprintf("nvidia%d/gi%d", id.Index, id.Instance),
		deviceid.FormMIGIndex:  fmt.Sprintf("%d:%d", id.Index, id.Instance),
		deviceid.FormNVMLIndex: fmt.Sprint(id.Index),
		deviceid.FormAll:       "all", deviceid.FormBusID: id.BusID, deviceid.FormUnknown: id.Text,
	}[id.Form]
	if id.Replica == "" {
		return []string{s}
	}
	return []string{s + "::" + id.Replica, s + "/vgpu" + id.Replica}
}

// Parsing loses nothing except the case of a UUID, and parsing the written form returns the same ID.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		gpu0, gpu0 + "::2", migA, migA + "::0", "MIG-" + gpu3 + "/7/0", "nvidia0", "nvidia0/gi3", "nvidia0/vgpu1",
		"nvidia0/gi3/vgpu1", gpu0[4:], "gpu.nvidia.com/e2e-node/gpu-0", "GPU-x::1::2", "MIG-GPU-", "nvidia/gi", "::",
		"\xff",
	} {
		f.Add(seed)
	}
	topology := node()
	resolver := deviceid.NewResolver(topology)
	f.Fuzz(func(t *testing.T, text string) {
		id := deviceid.Parse(text)
		all := written(id)
		at := slices.IndexFunc(all, func(s string) bool { return strings.EqualFold(s, text) })
		if at < 0 {
			t.Errorf("Parse(%q) = %+v with the written forms %q; want the input, ignoring case", text, id, all)
		} else if again := deviceid.Parse(all[at]); again != id {
			t.Errorf("Parse(%q) = %+v, and of its written form %q %+v; want the same", text, id, all[at], again)
		}
		if id.Form == deviceid.FormUnknown && id.Text != text {
			t.Errorf("Text of %q = %q, want it unchanged", text, id.Text)
		}
		// An ID names only entities that match it.
		for _, row := range resolver.Rows(id) {
			d := &topology.Devices[row]
			whole := d.Entity.Kind == gpu.KindGPU
			ok := map[deviceid.Form]bool{
				deviceid.FormGPU:      whole && d.UUID == id.UUID,
				deviceid.FormMIG:      d.MIGUUID == id.UUID,
				deviceid.FormBare:     d.UUID == "GPU-"+id.UUID || d.MIGUUID == "MIG-"+id.UUID,
				deviceid.FormMIGPath:  d.UUID == id.UUID && d.InstanceID == id.Instance,
				deviceid.FormIndex:    whole && d.Minor == id.Index,
				deviceid.FormInstance: !whole && d.Minor == id.Index && d.InstanceID == id.Instance,
			}
			if !ok[id.Form] {
				t.Errorf("%q names %+v, want only the device with this ID", text, d)
			}
		}
		if resolver.Rows(id) == nil && id.Missing() == "" {
			t.Errorf("%q names no device and Missing = \"\", want a reason", text)
		}
	})
}

// ParseVisible parses the words of container runtimes, and the resolver finds the rows of node.
func TestParseVisible(t *testing.T) {
	all := []int{0, 1, 2, 3, 4, 5, 6}
	r := deviceid.NewResolver(node())
	for _, tt := range []struct {
		word string
		form deviceid.Form
		rows []int
	}{
		{"all", deviceid.FormAll, all},
		{"nvidia.com/gpu=ALL", deviceid.FormAll, all},
		{" 0 ", deviceid.FormNVMLIndex, []int{0}},
		{"nvidia.com/gpu=1", deviceid.FormNVMLIndex, []int{1}},
		{"runtime.nvidia.com/gpu=gpu1", deviceid.FormNVMLIndex, []int{1}},
		{"3", deviceid.FormNVMLIndex, []int{3}}, // useless for the container without an instance
		{"9", deviceid.FormNVMLIndex, nil},
		{gpu0, deviceid.FormGPU, []int{0}},
		{strings.ToUpper(gpu3), deviceid.FormGPU, []int{3}},
		{"GPU-ffff", deviceid.FormGPU, nil},
		{"0000:1b:00.0", deviceid.FormBusID, []int{0}},
		{"00000000:2B:00.0", deviceid.FormBusID, []int{1}},
		{"0000:99:00.0", deviceid.FormBusID, nil},
		{migB, deviceid.FormMIG, []int{6}},
		{"nvidia.com/gpu=" + migA, deviceid.FormMIG, []int{5}},
		{"MIG-" + gpu3 + "/8/0", deviceid.FormMIGPath, []int{6}},
		{"MIG-" + gpu3 + "/9/0", deviceid.FormMIGPath, nil},
		{"3:0", deviceid.FormMIGIndex, nil},
		{"nvidia.com/gpu=mig3:0", deviceid.FormMIGIndex, nil},
		{"/dev/nvidia0", deviceid.FormNode, []int{4}},
		{"/dev/nvidia4", deviceid.FormNode, []int{0}},
		{"/dev/nvidia1", deviceid.FormNode, nil}, // unknown which of its instances belongs to the container
		{"/dev/nvidiactl", deviceid.FormUnknown, nil},
		{"vendor.com/gpu=0", deviceid.FormUnknown, nil},
		{"nvidia0/gi7", deviceid.FormUnknown, nil},
		{gpu0 + "::1", deviceid.FormUnknown, nil},
		{gpu0[4:], deviceid.FormUnknown, nil},
		{"mig0", deviceid.FormUnknown, nil},
		{"3:x", deviceid.FormUnknown, nil},
		{"x:0", deviceid.FormUnknown, nil},
		{"0000:1b:00", deviceid.FormUnknown, nil},
		{"1.b:0:0", deviceid.FormUnknown, nil},
		{"nonsense", deviceid.FormUnknown, nil},
		{"-1", deviceid.FormUnknown, nil},
		{"", deviceid.FormUnknown, nil},
	} {
		id := deviceid.ParseVisible(tt.word)
		if id.Form != tt.form {
			t.Errorf("form of %q = %s, want %s", tt.word, id.Form, tt.form)
		}
		want(t, tt.word, r.Rows(id), tt.rows)
	}
}

// FuzzParseVisible checks that a parsed word has one written form with the same meaning, that a word has the same
// meaning in a CDI name, and that only "all" names more than one GPU or instance.
func FuzzParseVisible(f *testing.F) {
	for _, word := range []string{
		"all", "gpu1", "mig2:0", "MIG-" + gpu3 + "/7/0", "/dev/nvidia1", "0:1b:00.0", gpu0, "nvidia.com/gpu=0",
		"0000:1b:00.0",
	} {
		f.Add(word)
	}
	topology := node()
	r := deviceid.NewResolver(topology)
	f.Fuzz(func(t *testing.T, word string) {
		id := deviceid.ParseVisible(word)
		if id.Form == deviceid.FormUnknown {
			if id.Text != word {
				t.Errorf("Text of %q = %q, want it unchanged", word, id.Text)
			}
			return
		}
		if again := deviceid.ParseVisible(written(id)[0]); again != id {
			t.Errorf("ParseVisible(%q) = %+v, and of its written form %+v, want the same", word, id, again)
		}
		if again := deviceid.ParseVisible("nvidia.com/gpu=" + written(id)[0]); again != id {
			t.Errorf("ParseVisible(%q) = %+v, and in a CDI name %+v, want the same", word, id, again)
		}
		rows := r.Rows(id)
		if len(rows) > 1 && id.Form != deviceid.FormAll {
			t.Errorf("%q names rows %v with form %s, want at most one", word, rows, id.Form)
		}
		for _, row := range rows {
			if k := topology.Devices[row].Entity.Kind; k != gpu.KindGPU && k != gpu.KindGPUInstance {
				t.Errorf("%q names a %s, want a GPU or GPU instance", word, k)
			}
		}
	})
}
