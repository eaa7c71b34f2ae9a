//go:build linux && cgo

package nvml_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
	"github.com/gpu-telemetry/dcgm-exporter/internal/source/nvml"
	fakenvml "github.com/gpu-telemetry/dcgm-exporter/tests/fake/nvml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A process can load only one libnvidia-ml, because go-nvml's calls stay bound to the first one. Tests of other builds
// of the library run this binary again.
const childEnv = "NVML_TEST_LIBRARY"

var buildLibrary func() (path string, err error)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		child(path)
		return
	}
	dir, err := os.MkdirTemp("", "fakenvml")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	buildLibrary = sync.OnceValues(func() (string, error) { return fakenvml.Build(dir) })
	m.Run()
}

var (
	onGPU       = gpu.KindsOf(gpu.KindGPU)
	onInstances = gpu.KindsOf(gpu.KindGPUInstance)
	onLinks     = gpu.KindsOf(gpu.KindNVLink)
)

// cut is a script of three GPUs. The second one has MIG instances.
var cut = []string{
	"gpus 3",
	"gpu 1 instance 9 0 1g.10gb 9984",
	"gpu 1 instance 2 0 1c.3g.40gb 40448",
	"gpu 1 instance 2 1 1c.3g.40gb 40448",
}

// source returns a source with a library that runs the script.
func source(t testing.TB, script ...string) (*nvml.Source, *fakenvml.World) {
	t.Helper()
	path, err := buildLibrary()
	fakenvml.Need(t, err)
	world := fakenvml.NewWorld(t, script...)
	return nvml.New(path), world
}

// planOf returns a plan of catalog fields for all GPUs and instances.
func planOf(ids ...gpu.FieldID) *gpu.Plan {
	plan := &gpu.Plan{Interval: time.Second, Devices: gpu.Selector{Flex: true}}
	for _, id := range ids {
		entry, ok := catalog.ByID(id)
		if !ok {
			panic(fmt.Sprintf("field %d is not in the catalog", id))
		}
		f := entry.Field()
		if f.Levels.Has(gpu.KindNode) {
			f.Levels = onGPU | onInstances
		}
		plan.Fields = append(plan.Fields, f)
	}
	return plan
}

// A rig is an open session of a library that runs a script.
type rig struct {
	*nvml.Session
	t      testing.TB
	world  *fakenvml.World
	plan   *gpu.Plan
	script []string
}

// start opens a session of a library that runs the script, and closes it at the end of the test.
func start(t testing.TB, plan *gpu.Plan, script ...string) *rig {
	t.Helper()
	src, world := source(t, script...)
	return &rig{open(t, src, plan), t, world, plan, script}
}

func open(t testing.TB, src *nvml.Source, plan *gpu.Plan) *nvml.Session {
	t.Helper()
	s, err := src.Open(t.Context(), plan)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// play replaces the script.
func (r *rig) play(script ...string) { r.world.Play(r.t, script...) }

// with runs the first script with additional lines.
func (r *rig) with(lines ...string) { r.play(slices.Concat(r.script, lines)...) }

// read reads once and returns the results.
func (r *rig) read() map[string]string {
	r.t.Helper()
	var b gpu.Batch
	if err := r.Read(r.t.Context(), gpu.ReadRequest{}, &b); err != nil {
		r.t.Fatalf("Read: %v", err)
	}
	return results(r.Topology(), r.plan, &b)
}

// want reads once and compares the results with lines of an entity, a short field name, and a value or "fault:" and the
// reason.
func (r *rig) want(when string, want ...string) {
	r.t.Helper()
	short := strings.NewReplacer("DCGM_FI_DEV_", "", "DCGM_FI_PROF_", "", "DCGM_FI_", "")
	var got []string
	for key, value := range r.read() {
		got = append(got, short.Replace(key)+" "+value)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// results returns the result of each entity's fields: the value, or "fault:" and the reason.
func results(top *gpu.Topology, plan *gpu.Plan, b *gpu.Batch) map[string]string {
	found := map[string]string{}
	for _, x := range b.Samples {
		found[top.Devices[x.Row].Entity.String()+" "+plan.Fields[x.Field].Name] = x.Value.String()
	}
	for _, x := range b.XIDs {
		key, code := top.Devices[x.Row].Entity.String()+" XID", fmt.Sprint(x.Code)
		if x.OnInstance {
			code += fmt.Sprint(" of instance ", x.InstanceID)
		}
		found[key] = strings.TrimPrefix(found[key]+","+code, ",")
	}
	for _, x := range b.Peers {
		found[top.Devices[x.Row].Entity.String()+" to "+top.Devices[x.Peer].Entity.String()] = x.Status
	}
	for _, x := range b.Faults {
		key := "all"
		if x.Row != gpu.AllRows {
			key = top.Devices[x.Row].Entity.String()
		}
		switch x.Part {
		case gpu.PartEntity:
		case gpu.PartHealthChecks:
			key += " health"
		case gpu.PartPeerStates:
			key += " peers"
		default:
			key += " " + plan.Fields[x.Field].Name
		}
		found[key] = "fault:" + gpu.Reason(x.Err)
	}
	return found
}

// shippedFields returns the IDs of all fields in the CSV files of etc, including commented-out ones, in the order of
// their first occurrence.
func shippedFields(t testing.TB) (ids []gpu.FieldID) {
	t.Helper()
	files, err := filepath.Glob("../../../etc/*.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			name, _, _ := strings.Cut(strings.TrimLeft(line, "# "), ",")
			named, ok := catalog.Lookup(strings.TrimSpace(name))
			if ok && !slices.Contains(ids, named.Entry.ID) {
				ids = append(ids, named.Entry.ID)
			}
		}
	}
	if len(ids) < 50 {
		t.Fatalf("fields = %d in %v, want at least 50", len(ids), files)
	}
	return ids
}
