package sim_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/sim"
	"github.com/gpu-telemetry/dcgm-exporter/tests/fake/simulated"
)

// shape lists the MIG rows of a topology by profile, and how instances are divided.
func shape(t *gpu.Topology) []string {
	var list []string
	for row := range t.Devices {
		d := &t.Devices[row]
		if d.Profile == "" {
			continue
		}
		name := d.Entity.Kind.String() + " " + d.Profile
		for i := range t.ComputeInstances {
			if t.ComputeInstances[i].Instance == row {
				name += " " + t.ComputeInstances[i].Profile
			}
		}
		list = append(list, name)
	}
	return list
}

// Compute instances have rows where they are selected and some field is theirs; how instances are
// divided is reported in any case.
func TestComputeInstances(t *testing.T) {
	instances := []string{
		"GPU instance 4g.20gb 1c.4g.20gb 1c.4g.20gb 2c.4g.20gb", "GPU instance 3g.20gb",
		"GPU instance 3g.20gb 1c.3g.20gb 2c.3g.20gb", "GPU instance 2g.10gb 1c.2g.10gb 1c.2g.10gb", "GPU instance 1g.5gb",
	}
	compute := []string{
		"compute instance 1c.4g.20gb", "compute instance 1c.4g.20gb", "compute instance 2c.4g.20gb",
		"compute instance 1c.3g.20gb", "compute instance 2c.3g.20gb", "compute instance 1c.2g.10gb", "compute instance 1c.2g.10gb",
	}
	for name, tt := range map[string]struct {
		sel   gpu.Selector
		field gpu.FieldID
		want  []string
	}{
		"f":                 {gpu.Selector{Flex: true}, graphics, instances},
		"f+c":               {gpu.Selector{Flex: true, Compute: true}, graphics, append(instances[:5:5], compute...)},
		"f+c, memory alone": {gpu.Selector{Flex: true, Compute: true}, fbUsed, instances},
		"i:2,19+c":          {gpu.Selector{Minor: true, MinorIDs: []uint32{2, 19}, Compute: true}, graphics, []string{instances[1], instances[3], compute[5], compute[6]}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := simulated.Plan(tt.field)
			plan.Devices = tt.sel
			top := play(t, sim.Options{Node: "divided"}, plan).s.Topology()
			if diff := cmp.Diff(tt.want, shape(top)); diff != "" {
				t.Errorf("instances (-want +got):\n%s", diff)
			}
			of := map[string]int{} // how many rows a UUID has
			for _, c := range top.ComputeInstances {
				of[c.UUID] = 0
			}
			for _, d := range top.Devices {
				if d.Entity.Kind != gpu.KindGPU {
					of[d.MIGUUID]++
				}
			}
			delete(of, "") // a divided instance has none
			for uuid, n := range of {
				if n > 1 || n == 0 && len(top.ComputeInstances) > 0 && len(tt.want) > 5 {
					t.Errorf("%d rows have the UUID %q", n, uuid)
				}
			}
		})
	}
}

// What a divided instance does is what its compute instances do.
func TestPartsAddUp(t *testing.T) {
	r := play(t, sim.Options{Node: "divided", Seed: 3}, simulated.Plan(graphics, fbUsed))
	busy := 0
	for range 60 {
		r.Clock.Pass(7 * time.Minute)
		v := r.read()
		top := r.s.Topology()
		sums := map[int]float64{}
		for i := range top.ComputeInstances {
			c := &top.ComputeInstances[i]
			for row := range top.Devices {
				if top.InstanceRow(row) == c.Instance && top.Devices[row].ComputeID == c.ID {
					sums[c.Instance] += top.Part(i) * v.num(row, graphics)
				}
			}
		}
		for row, sum := range sums {
			if got := v.num(row, graphics); math.Abs(got-sum) > 1e-9 {
				t.Fatalf("%v is %v active, its parts %v", top.Devices[row].Entity, got, sum)
			}
			if sum > 0.01 && v.num(row, fbUsed) > 0 {
				busy++
			}
		}
		if len(sums) != 3 {
			t.Fatalf("%d divided instances", len(sums))
		}
	}
	if busy < 60 {
		t.Errorf("busy %d times only", busy)
	}
}

// A repartition that divides an instance, and one that undoes it, each end the session; the next
// has the rows of then.
func TestRepartitionDivides(t *testing.T) {
	r := faults(t, "a100-mig", simulated.Plan(graphics), `
faults:
  - {fault: repartition, at: 20s, for: 20s, devices: ["2"], mig: [3g.20gb/1c+2c, 1g.5gb]}`)
	for _, tt := range []struct {
		at      time.Duration
		compute int
	}{{10 * time.Second, 0}, {25 * time.Second, 2}, {45 * time.Second, 0}} {
		r.Clock.At(tt.at)
		if tt.at > 10*time.Second {
			err := r.s.Read(context.Background(), &gpu.Batch{})
			if err == nil {
				err = r.s.Err()
			}
			if !errors.Is(err, gpu.ErrTopology) {
				t.Fatalf("at %v: %v, want %v", tt.at, err, gpu.ErrTopology)
			}
			r.s.Close()
			r.open()
		}
		v := r.read()
		rows := r.rows(gpu.KindComputeInstance)
		for _, row := range rows {
			v.num(row, graphics)
		}
		if len(rows) != tt.compute || len(r.s.Topology().ComputeInstances) != tt.compute {
			t.Errorf("at %v: %d compute instances, %d reported, want %d", tt.at, len(rows), len(r.s.Topology().ComputeInstances), tt.compute)
		}
	}
}

func TestBadDivisions(t *testing.T) {
	const cut = "name: x\ngpus:\n  - board: H100-SXM5-80GB\n    mig: [\"%\"]\n"
	const pod = "pods:\n  - {namespace: a, pod: b, container: c, workload: batch, devices: [%]}\n"
	for _, tt := range []struct{ mig, device, want string }{
		{"3g.40gb/1c", "", `node.yaml:3: 3g.40gb/1c is one compute instance, expected two or more, or none named`},
		{"3g.40gb/2c+2c", "", `node.yaml:3: "2c" of 3g.40gb/2c+2c, expected compute instances such as 1c+1c with 3 slices at most`},
		{"3g.40gb/1c+1", "", `node.yaml:3: "1" of 3g.40gb/1c+1, expected compute instances such as 1c+1c with 3 slices at most`},
		{"3g.40gb/1c+0c", "", `node.yaml:3: "0c" of 3g.40gb/1c+0c, expected compute instances such as 1c+1c with 3 slices at most`},
		{"3g.40gb/", "", `node.yaml:3: "" of 3g.40gb/, expected compute instances such as 1c+1c with 3 slices at most`},
		{"3g.40gb/1c+1c", "0/1", `node.yaml:6: pod b is on device 0/1, which the node does not have; GPU 0 has 0/1/0 (1c.3g.40gb) 0/1/1 (1c.3g.40gb)`},
		{"3g.40gb/1c+1c", "0/1/2", `node.yaml:6: pod b is on device 0/1/2, which the node does not have; GPU 0 has 0/1/0 (1c.3g.40gb) 0/1/1 (1c.3g.40gb)`},
		{"3g.40gb", "0/1/0", `node.yaml:6: pod b is on device 0/1/0, which the node does not have; GPU 0 has 0/1 (3g.40gb)`},
	} {
		text := strings.Replace(cut, "%", tt.mig, 1)
		if tt.device != "" {
			text += strings.Replace(pod, "%", tt.device, 1)
		}
		if _, err := sim.ParseNode(strings.NewReader(text), "node.yaml"); err == nil || err.Error() != tt.want {
			t.Errorf("%s with a pod on %q:\n got %v\nwant %s", tt.mig, tt.device, err, tt.want)
		}
	}
}

// Two pods in one divided instance share it, and each has its part alone.
func TestOwnersOfDividedInstances(t *testing.T) {
	for name, compute := range map[string]bool{"f": false, "f+c": true} {
		t.Run(name, func(t *testing.T) {
			plan := simulated.Plan(graphics)
			plan.Devices.Compute = compute
			r := play(t, sim.Options{Node: "divided"}, plan)
			owners, err := r.src.Attribute(t.Context(), r.s.Topology())
			if err != nil {
				t.Fatal(err)
			}
			got, held := map[string]string{}, map[string]float64{}
			for row, d := range r.s.Topology().Devices {
				for _, l := range owners.Of(row) {
					if l.Name == "pod" {
						got[d.Entity.String()] = l.Value
					}
				}
				for _, o := range owners.UseOf(row).Owners {
					if d.Entity.Kind == gpu.KindGPUInstance {
						held[o.Pod] += o.Part
					}
				}
			}
			want := map[string]string{"GPU instance 2 of GPU 0": "finetune-0", "GPU instance 15 of GPU 1": "etl-0", "GPU instance 19 of GPU 1": "ranker-0"}
			if compute {
				for entity, pod := range map[string]string{
					"compute instance 8 of GPU 0": "jupyter-a", "compute instance 10 of GPU 0": "embed-0",
					"compute instance 120 of GPU 1": "etl-0", "compute instance 121 of GPU 1": "etl-0", "compute instance 153 of GPU 1": "ranker-0",
				} {
					want[entity] = pod
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			parts := map[string]float64{"jupyter-a": 0.25, "embed-0": 0.5, "finetune-0": 0, "etl-0": 1, "ranker-0": 0.5}
			if diff := cmp.Diff(parts, held); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

// A pod whose instance is divided under it has lost its place: it is on none of the parts.
func TestPodOfAPartitionedInstance(t *testing.T) {
	r := faults(t, "a100-mig", simulated.Plan(graphics), `
faults:
  - {fault: repartition, at: 20s, devices: ["1"], mig: [3g.20gb, 3g.20gb/1c+2c]}`)
	for at, want := range map[time.Duration]int{10 * time.Second: 1, 30 * time.Second: 0} {
		r.Clock.At(at)
		r.s.Close()
		r.open()
		top := r.s.Topology()
		owners, err := r.src.Attribute(t.Context(), top)
		if err != nil {
			t.Fatal(err)
		}
		row, ok := -1, false
		for i := range top.Devices {
			if d := &top.Devices[i]; d.Entity.Kind == gpu.KindGPUInstance && d.GPU == 1 && d.InstanceID == 2 {
				row, ok = i, true
			}
		}
		if !ok {
			t.Fatalf("at %v: no instance 2", at)
		}
		b := gpu.Batch{RequestProcesses: make([]bool, len(top.Devices))}
		b.RequestProcesses[row] = true
		if err := r.s.Read(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if n := len(owners.UseOf(row).Owners); n != want || len(b.Processes) != want {
			t.Errorf("at %v: %d owners and %d processes, want %d of each", at, n, len(b.Processes), want)
		}
	}
}
