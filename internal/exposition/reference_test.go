package exposition_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// TestReferencePages rebuilds the worlds of the reference's pages by hand and compares the pages as
// parsed.
func TestReferencePages(t *testing.T) {
	tests := []struct {
		file string
		gpus int
		pods bool
	}{
		{"gpu1-default-nok8s.prom", 1, false},
		{"gpu8-default-k8s.prom", 8, true},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			want, err := parseExpfmt(t, material.Read(t, "data/reference-output/"+tt.file))
			if err != nil {
				t.Fatal(err)
			}
			p := exposition.NewEncoder(exposition.Options{Hostname: "vm"}).Encode(referenceWorld(tt.gpus, tt.pods, want))
			if diff := cmp.Diff(want, parse(t, p.Bytes())); diff != "" {
				t.Errorf("page (-theirs +ours):\n%s", diff)
			}
		})
	}
}

// referenceWorld returns the world of the reference's pages. Entities, owners and labels are ours;
// which families there are, with which type, help and number per GPU, comes from the page: it says
// nothing about labels.
func referenceWorld(gpus int, pods bool, page parsed) *gpu.Snapshot {
	uuids := []string{
		"614bc606-2078-5444-8c9c-4f8e98ae4dcc", "d76e7e7d-d80b-5cf9-af05-3054662d1df5",
		"ea7aec0a-f077-51a9-832a-abe633c111c3", "3e3838f9-29b7-5d8a-b630-332622b2210f",
		"d1044f5e-f6ab-5b2f-bad5-f810c762c9f0", "7d7f1ba9-6104-5bbc-b18e-7ca1a5875686",
		"bd4f589b-6864-59f8-9022-18efaabaee65", "8440d431-97cf-532f-b626-b30712e5b8c6",
	}
	s := &gpu.Snapshot{Owners: &gpu.Owners{}}
	var devices []gpu.Device
	for g := range uint32(gpus) {
		devices = append(devices, gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: g}, GPU: g, NVMLIndex: g, UUID: "GPU-" + uuids[g],
			PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x1b+0x11*g), Model: "NVIDIA H100 80GB HBM3",
		})
		if pods {
			s.Owners.Labels = append(s.Owners.Labels, []gpu.Label{
				{Name: "pod", Value: "train-" + strconv.Itoa(int(g))}, {Name: "namespace", Value: "team-a"}, {Name: "container", Value: "main"},
			})
		}
	}
	s.Topology = gpu.NewTopology(devices)
	types := map[string]gpu.MetricType{"gauge": gpu.MetricGauge, "counter": gpu.MetricCounter}
	for name, family := range page {
		c := gpu.Column{
			Counter: &gpu.Counter{Name: name, Type: types[family.Type], Help: family.Help, Scale: 1},
			Values:  make([]gpu.Value, gpus),
		}
		for labels, v := range family.Samples {
			for g := range gpus {
				if strings.Contains(labels, fmt.Sprintf("\x00gpu=%d\x00", g)) {
					c.Values[g] = gpu.Float(v)
				}
			}
		}
		if name == "DCGM_FI_DEV_XID_ERRORS" {
			gauge := gpu.Family{Name: name, Type: c.Counter.Type}
			for g := range gpus {
				gauge.Series = append(gauge.Series, gpu.Series{Row: g, Labels: errorLabels("0", "No Error"), Value: c.Values[g]})
			}
			s.Families = append(s.Families, gauge)
			c.Values = make([]gpu.Value, gpus)
		}
		s.Columns = append(s.Columns, c)
	}
	driver := gpu.Column{Counter: &gpu.Counter{Name: "DCGM_FI_DRIVER_VERSION", Type: gpu.MetricLabel}, Values: make([]gpu.Value, gpus)}
	for g := range gpus {
		driver.Values[g] = gpu.Text("570.124.06")
	}
	s.Columns = append(s.Columns, driver)
	return s
}
