package gpu_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Fields of GPU instances are not served for a GPU with instances, except strings.
func TestServes(t *testing.T) {
	instance := gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7}
	other := instance
	other.ID = 8
	top := gpu.NewTopology([]gpu.Device{
		{Entity: gpu.Entity{Kind: gpu.KindGPU}}, {Entity: gpu.Entity{Kind: gpu.KindGPU, ID: 1}, GPU: 1},
		{Entity: instance, GPU: 1}, {Entity: other, GPU: 1},
	})
	const g, i = 1 << gpu.KindGPU, 1 << gpu.KindGPUInstance
	for name, tt := range map[string]struct {
		field gpu.Field
		want  []bool
	}{
		"a field of GPUs":               {gpu.Field{Levels: g}, []bool{true, true, false, false}},
		"a field of GPUs and instances": {gpu.Field{Levels: g | i}, []bool{true, false, true, true}},
		"a text field":                  {gpu.Field{Levels: g | i, Text: true}, []bool{true, true, true, true}},
	} {
		var got []bool
		for row := range top.Devices {
			got = append(got, top.Serves(&tt.field, row))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseBusID(t *testing.T) {
	for address, want := range map[string]string{
		"0000:1b:00.0":     "00000000:1B:00.0",
		"00000000:1B:00.0": "00000000:1B:00.0",
		"10000:3b:1f.7":    "00010000:3B:1F.7",
	} {
		if id, ok := gpu.ParseBusID(address); !ok || id != want {
			t.Errorf("ParseBusID(%q) = %q, %t; want %q, true", address, id, ok, want)
		}
	}
	for _, address := range []string{
		"", "1b:00.0", "0000:1b:00", "0000:1b:00.8", "0000:1b:20.0", "0000:1bb:00.0", "100000000:1b:00.0",
		"0000:1b:00.0.0", "0000:1b:00:0", "0000:1g:00.0", "0000:-1:00.0", " 0000:1b:00.0",
	} {
		if id, ok := gpu.ParseBusID(address); ok {
			t.Errorf("ParseBusID(%q) = %q, want none", address, id)
		}
	}
}

func TestInstanceProfile(t *testing.T) {
	for profile, want := range map[string]string{
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb":        "1g.10gb",
		"NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb":     "3g.20gb",
		"NVIDIA H100 80GB HBM3 MIG 2c.4g.40gb+gfx": "4g.40gb+gfx",
		"MIG 7g.79gb":  "7g.79gb",
		" 1g.10gb+me ": "1g.10gb+me",
		"1c.3g.20gb":   "3g.20gb", "3g.20gb": "3g.20gb", "2c.2g.10gb+me": "2g.10gb+me", "": "",
	} {
		if got := gpu.InstanceProfile(profile); got != want {
			t.Errorf("InstanceProfile(%q) = %q, want %q", profile, got, want)
		}
	}
}
