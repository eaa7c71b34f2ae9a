package sim

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/material"
)

// The figures of the embedded data make sense together; the model relies on it.
func TestPartsMakeSense(t *testing.T) {
	p, err := loadParts()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range p.Boards {
		th := b.Temperature
		for what, ok := range map[string]bool{
			"power":        0 < b.Power.Idle && b.Power.Idle < b.Power.Min && b.Power.Min <= b.Power.Limit && b.Power.Limit <= b.Power.Max,
			"temperatures": th.Ambient < th.Load && th.Load < th.Operating && th.Operating < th.Slowdown && th.Slowdown < th.Shutdown,
			"clocks":       b.Clocks.SMIdle < b.Clocks.SM && b.Clocks.MemoryIdle <= b.Clocks.Memory && b.Clocks.Video > 0,
			"memory":       0 < b.Reserved && b.Reserved < b.Memory && b.BAR1 > 0,
			"links":        b.NVLink.Links <= 18 && (b.NVLink.Links == 0) == (b.NVLink.Rate == 0) && b.PCIe.Width > 0,
			"names":        b.Model != "" && b.Brand != "" && b.VBIOS != "" && (b.Serial == "" || len(b.Serial) > 3),
		} {
			if !ok {
				t.Errorf("board %s: %s", b.Name, what)
			}
		}
		if b.MIG == nil {
			continue
		}
		for _, m := range b.MIG.Profiles {
			for i, at := range m.placements() {
				if fmt.Sprintf("%d:%d", at[0], at[1]) != m.Placements[i] || at[1] < 1 || at[0]+at[1] > b.MIG.MemorySlices {
					t.Errorf("board %s: placement %q of %s", b.Name, m.Placements[i], m.Name)
				}
				if share := b.Memory * int64(at[1]) / int64(b.MIG.MemorySlices); m.Memory > share {
					t.Errorf("board %s: %s has %d MiB, its slices %d", b.Name, m.Name, m.Memory, share)
				}
			}
		}
	}
	for _, w := range p.Workloads {
		r := w.Ratios
		for what, ok := range map[string]bool{
			"shape":  w.Shape == "idle" || w.Shape == "diurnal" || (w.Shape == "steady" || w.Shape == "burst") && w.Period > 0,
			"levels": 0 <= w.Low && w.Low <= w.High && w.High <= 1 && w.Jitter >= 0,
			"ratios": r.Occupancy <= r.SM && r.Tensor <= r.SM && r.SM <= 1,
			"memory": w.Memory.Base+w.Memory.Active <= 1,
		} {
			if !ok {
				t.Errorf("workload %s: %s", w.Name, what)
			}
		}
	}
}

// The MIG profiles are those of the table that the project's tools use, which lies beside the
// repository where it is developed.
func TestProfilesAgreeWithTheGeometryTable(t *testing.T) {
	raw := material.Read(t, "data/mig-geometry.json")
	type profile struct {
		Compute    int      `json:"compute"`
		Placements [][2]int `json:"placements"`
	}
	var table []struct {
		Board    string             `json:"board"`
		Profiles map[string]profile `json:"profiles"`
	}
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{
		"A100-PCIE-40GB": "A100/A800-40GB", "A100-SXM4-80GB": "A100/A800-80GB",
		"H100-SXM5-80GB": "H100/H800-80GB", "GH200-96GB": "H100-96GB/GH200-96/H20/PG506",
	}
	p, err := loadParts()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range p.Boards {
		if b.MIG == nil {
			continue
		}
		got, want := map[string]profile{}, map[string]profile(nil)
		for _, m := range b.MIG.Profiles {
			got[m.Name] = profile{m.Compute, m.placements()}
		}
		for _, row := range table {
			if row.Board == names[b.Name] {
				want = row.Profiles
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("board %s (-table +ours):\n%s", b.Name, diff)
		}
	}
}
