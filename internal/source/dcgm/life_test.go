//go:build linux && cgo

package dcgm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/dcgm"
	fakedcgm "github.com/gpu-telemetry/dcgm-exporter/tests/fake/dcgm"
)

// follow reads until the session ends for another topology, and opens the next session, as the
// collector does.
func follow(t *testing.T, e *fakedcgm.Engine, s *dcgm.Session, plan *gpu.Plan) *dcgm.Session {
	t.Helper()
	readUntil(t, s, "the end", func(*gpu.Batch, error) bool { return s.Err() != nil })
	if !errors.Is(s.Err(), gpu.ErrTopology) {
		t.Fatalf("Err = %v, want %v", s.Err(), gpu.ErrTopology)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, e, plan, dcgm.Options{})
}

func rowsOf(s *dcgm.Session) (rows []string) {
	for _, d := range s.Topology().Devices {
		rows = append(rows, d.Entity.String()+" "+d.Profile)
	}
	return rows
}

// MIG mode was just turned on and no instance is made yet: the GPU stays, with what it can still
// report, and the first instance shows in the next session.
func TestMIGWithoutInstances(t *testing.T) {
	lines := slices.DeleteFunc(world("value gpu:1 67 int 1", "value gpu:0 67 int 0", "value gpu:* 203 int 30", "value gpu:1 203 unsupported"),
		func(line string) bool {
			return strings.HasPrefix(line, "instance ") || strings.HasPrefix(line, "compute ")
		})
	e := fakedcgm.New(t, lines...)
	plan := planOf(field(150, onGPU), field(67, onGPU), field(203, onGPU), field(155, onBoth))
	s := open(t, e, plan, dcgm.Options{})
	want := []string{"GPU 0 #0 45", "GPU 0 #1 0", "GPU 0 #2 30", "GPU 0 #3 71.5", "GPU 1 #0 45", "GPU 1 #1 1", "GPU 1 #2 not_supported", "GPU 1 #3 71.5"}
	for range 2 {
		if diff := cmp.Diff(want, shown(s, read(t, s))); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
	}
	if err := s.Err(); err != nil {
		t.Fatalf("the session ended: %v", err)
	}
	e.Add("instance 7 gpu=1 nvml=1 profile=3g.40gb")
	s = follow(t, e, s, plan)
	if diff := cmp.Diff([]string{"GPU 0 ", "GPU 1 ", "GPU instance 7 of GPU 1 3g.40gb"}, rowsOf(s)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// A GPU is cut again and again while it is read: the rows follow within one Read, the GPUs are
// served throughout, and nothing is left at the engine.
func TestRepartitionUnderLoad(t *testing.T) {
	e := fakedcgm.New(t, world()...)
	plan := planOf(field(150, onGPU), field(155, onBoth), profiling(1001))
	s := open(t, e, plan, dcgm.Options{})
	for round := range 8 {
		e.Remove("instance ")
		e.Remove("compute ")
		want := []string{"GPU 0 ", "GPU 1 "}
		for i := range round % 4 {
			profile := fmt.Sprintf("%dg.10gb", 1+round)
			e.Add(fmt.Sprintf("instance %d gpu=1 nvml=%d profile=%s", 7+i, round+i+3, profile))
			want = append(want, fmt.Sprintf("GPU instance %d of GPU 1 %s", 7+i, profile))
		}
		s = follow(t, e, s, plan)
		if diff := cmp.Diff(want, rowsOf(s)); diff != "" {
			t.Fatalf("round %d: rows (-want +got):\n%s", round, diff)
		}
		served := map[int]bool{}
		for _, x := range read(t, s).Samples {
			served[x.Row] = true
		}
		if len(served) != len(want) {
			t.Errorf("round %d: %d of %d rows are served", round, len(served), len(want))
		}
		if open := e.Open(); open["groups"] > 2 || open["watches"] > 6 {
			t.Fatalf("round %d: open at the engine: %v", round, open)
		}
	}
}

// GPUs are unbound from the driver one by one and bound again.
func TestBoundAndUnbound(t *testing.T) {
	e := fakedcgm.New(t, fabric()...)
	plan := planOf(field(150, onGPU), field(1525, onLinks))
	s := open(t, e, plan, dcgm.Options{})
	e.Remove("gpu 0 ")
	s = follow(t, e, s, plan)
	want := []string{"GPU 1 #0 45", "NVLink 2 of GPU 1 #1 4"}
	instances := func(l string) bool { return strings.HasPrefix(l, "GPU instance") }
	if diff := cmp.Diff(want, slices.DeleteFunc(shown(s, read(t, s)), instances)); diff != "" {
		t.Errorf("without GPU 0 (-want +got):\n%s", diff)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	e.Replace("gpu 1 uuid", "unbound 1 uuid")
	for _, prefix := range []string{"instance ", "compute "} {
		e.Remove(prefix)
	}
	mentions(t, failsToOpen(t, e, plan, dcgm.Options{}, gpu.ErrUnavailable), "sees no GPU")
	e.Replace("unbound 1 uuid", "gpu 1 uuid")
	s = open(t, e, plan, dcgm.Options{})
	e.Add(gpuLine(0, "links=2"))
	s = follow(t, e, s, plan)
	got := shown(s, read(t, s))
	if !slices.Contains(got, "GPU 0 #0 45") || !slices.Contains(got, "NVLink 1 of GPU 0 #1 3") {
		t.Errorf("GPU 0 is bound again, and not served: %v", got)
	}
}

// Whatever call for switches, links, CPUs, cards and places fails, the GPUs are served, unless the
// engine is gone.
func TestEveryCallForEntitiesCanFail(t *testing.T) {
	plan := fabricPlan()
	plan.Placement = true
	for _, function := range []string{"dcgmGetNvLinkLinkStatus", "dcgmGetCpuHierarchy_v2", "dcgmGetDeviceTopology", "dcgmGetEntityGroupEntities"} {
		for _, code := range []int{-1, -3, -6, -12, -17, -20, -33, -21} {
			t.Run(fmt.Sprint(function, code), func(t *testing.T) {
				times := fmt.Sprintf("fail %s %d", function, code)
				if function == "dcgmGetEntityGroupEntities" {
					times += " -1 1" // the first call is for the GPUs
				}
				e := fakedcgm.New(t, fabric(times)...)
				s, err := dcgm.New(dcgm.Options{}).Open(context.Background(), plan)
				if code == -21 {
					if !errors.Is(err, gpu.ErrLost) {
						t.Errorf("Open: %v, want %v", err, gpu.ErrLost)
					}
					checkClosed(t, e)
					return
				}
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				var b gpu.Batch
				if err := s.Read(context.Background(), &b); err != nil {
					t.Errorf("Read: %v", err)
				}
				if got := shown(s, &b); !slices.Contains(got, "GPU 0 #0 45") || !slices.Contains(got, "GPU 1 #0 45") {
					t.Errorf("the GPUs are not served: %v", got)
				}
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				checkClosed(t, e)
			})
		}
	}
}
