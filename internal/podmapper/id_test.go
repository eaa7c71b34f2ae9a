package podmapper_test

import (
	"strings"
	"testing"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/podmapper"
)

func TestParseID(t *testing.T) {
	for _, tt := range []struct {
		text string
		want podmapper.ID
	}{
		{gpu0, podmapper.ID{Form: podmapper.FormGPU, UUID: gpu0}},
		{"gpu-00000000-0000-4000-8000-00000000000A", podmapper.ID{Form: podmapper.FormGPU, UUID: "GPU-00000000-0000-4000-8000-00000000000a"}},
		{gpu0 + "::10", podmapper.ID{Form: podmapper.FormGPU, UUID: gpu0, Replica: "10"}},
		{migA + "::0", podmapper.ID{Form: podmapper.FormMIG, UUID: migA, Replica: "0"}},
		{"MIG-" + gpu0 + "/13/0", podmapper.ID{Form: podmapper.FormMIGPath, UUID: gpu0, Instance: 13}},
		{"nvidia12/gi3/vgpu4", podmapper.ID{Form: podmapper.FormInstance, Index: 12, Instance: 3, Replica: "4", VGPU: true}},
		{gpu0[4:], podmapper.ID{Form: podmapper.FormBare, UUID: gpu0[4:]}},
		{"gpu.nvidia.com/pool/of/node/gpu-0", podmapper.ID{Form: podmapper.FormClaim, Driver: "gpu.nvidia.com", Pool: "pool/of/node", Device: "gpu-0"}},
	} {
		want(t, tt.text, podmapper.ParseID(tt.text), tt.want)
	}
	for _, text := range []string{
		"", "GPU-", "MIG-", "nvidia", "nvidia-1", "nvidia01", "nvidia0/", "nvidia0/gi", "nvidia0/vgpu1/gi2", "nvidia0::1",
		gpu0 + "::", gpu0 + "::x", gpu0 + "::01", gpu0 + "::1::2", "MIG-" + gpu0, "MIG-" + gpu0 + "/1", "MIG-" + gpu0 + "/1/x",
		"nvidia99999999999", "00000000-0000-4000-8000-00000000000g", "0000:3b:00.0", "a/b/c", "/dev/nvidia0", "GPU-\xff",
	} {
		if id := podmapper.ParseID(text); id != (podmapper.ID{Form: podmapper.FormUnknown, Text: text}) {
			t.Errorf("%q reads as %+v", text, id)
		}
	}
}

// Where not everything is known or watched, an id finds its entity all the same,
// or none; never another.
func TestRowsOfPartlyKnownNodes(t *testing.T) {
	const x, y = "GPU-00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"
	whole := func(n uint32, uuid string) gpu.Device {
		return gpu.Device{Entity: gpu.Entity{Kind: gpu.KindGPU, ID: n}, GPU: n, NVMLIndex: n, UUID: uuid} // and no minor
	}
	instance := func(n, id uint32, parent, uuid string) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPUInstance, ID: 7*n + id, ParentKind: gpu.KindGPU, Parent: n},
			GPU:    n, NVMLIndex: n, UUID: parent, InstanceID: id, MIGUUID: uuid,
		}
	}
	for _, tt := range []struct {
		name    string
		devices []gpu.Device
		want    map[string][]int
	}{
		{"no minor numbers: NVML's indices", []gpu.Device{whole(0, x), whole(1, "GPU-"+y)}, map[string][]int{"nvidia0": {0}, "nvidia1": {1}, "nvidia2": nil}},
		{"one UUID behind two prefixes", []gpu.Device{whole(0, "GPU-"+y), instance(1, 3, x, "MIG-"+y)}, map[string][]int{y: nil, "GPU-" + y: {0}, "MIG-" + y: {1}}},
		{"instances alone", []gpu.Device{instance(2, 3, x, "MIG-a"), instance(2, 5, x, "MIG-b"), instance(4, 5, "GPU-z", "MIG-c")}, map[string][]int{
			"nvidia2/gi5": {1}, "nvidia4/gi5": {2}, "nvidia4/gi3": nil, "nvidia2": nil,
			"MIG-" + x + "/5/0": {1}, "MIG-GPU-z/5/0": {2}, "MIG-GPU-z/3/0": nil, "MIG-GPU-y/5/0": nil,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := podmapper.NewResolver(gpu.NewTopology(tt.devices))
			got := map[string][]int{}
			for id := range tt.want {
				got[id] = r.Rows(podmapper.ParseID(id))
			}
			want(t, "rows", got, tt.want)
		})
	}
}

// Whatever is read is written back as it was, but for the case of a UUID, and
// reads the same again.
func FuzzParseID(f *testing.F) {
	for _, seed := range []string{
		gpu0, gpu0 + "::2", migA, migA + "::0", "MIG-" + gpu3 + "/7/0", "nvidia0", "nvidia0/gi3", "nvidia0/vgpu1",
		"nvidia0/gi3/vgpu1", gpu0[4:], "gpu.nvidia.com/e2e-node/gpu-0", "GPU-x::1::2", "MIG-GPU-", "nvidia/gi", "::", "\xff",
	} {
		f.Add(seed)
	}
	topology := node()
	resolver := podmapper.NewResolver(topology)
	f.Fuzz(func(t *testing.T, text string) {
		id := podmapper.ParseID(text)
		written := id.String()
		if !strings.EqualFold(written, text) {
			t.Errorf("%q reads as %+v, which is written %q", text, id, written)
		}
		if again := podmapper.ParseID(written); again != id {
			t.Errorf("%q reads as %+v, and %q as %+v", text, id, written, again)
		}
		if id.Form == podmapper.FormUnknown && written != text {
			t.Errorf("%q is not kept: %q", text, written)
		}
		// What it names is what it says.
		for _, row := range resolver.Rows(id) {
			d := &topology.Devices[row]
			ok := false
			switch id.Form {
			case podmapper.FormGPU:
				ok = d.Entity.Kind == gpu.KindGPU && d.UUID == id.UUID
			case podmapper.FormMIG:
				ok = d.MIGUUID == id.UUID
			case podmapper.FormBare:
				ok = d.UUID == "GPU-"+id.UUID || d.MIGUUID == "MIG-"+id.UUID
			case podmapper.FormMIGPath:
				ok = d.UUID == id.UUID && d.InstanceID == id.Instance
			case podmapper.FormIndex:
				ok = d.Entity.Kind == gpu.KindGPU && d.Minor == id.Index
			case podmapper.FormInstance:
				ok = d.Entity.Kind == gpu.KindGPUInstance && d.Minor == id.Index && d.InstanceID == id.Instance
			}
			if !ok {
				t.Errorf("%q names %+v", text, d)
			}
		}
		if len(resolver.Explain(id)) < 2 {
			t.Errorf("%q is not explained", text)
		}
	})
}
