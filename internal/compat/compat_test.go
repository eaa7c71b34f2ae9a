package compat_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpu-telemetry/dcgm-exporter/internal/catalog"
	"github.com/gpu-telemetry/dcgm-exporter/internal/compat"
	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// Rows of the topology of world.
const (
	rowGPU0 = iota
	rowGPU1 // partitioned by MIG
	rowInstance
	rowCount
)

// Ways of selecting GPUs and instances.
var (
	flex      = gpu.Selector{Flex: true}
	both      = gpu.Selector{Major: true, Minor: true}
	instances = gpu.Selector{Minor: true}
)

// column returns a column with the given values, by row.
func column(name string, typ gpu.MetricType, ofGPUs bool, values map[int]gpu.Value) gpu.Column {
	c := gpu.Column{Counter: &gpu.Counter{Name: name, Type: typ, OfGPUs: ofGPUs}, Values: make([]gpu.Value, rowCount)}
	for row, v := range values {
		c.Values[row] = v
	}
	return c
}

// world returns a snapshot of a GPU, a GPU with an instance, and the instance, which a pod owns.
func world() *gpu.Snapshot {
	board := func(id uint32) gpu.Device {
		return gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: id}, GPU: id, NVMLIndex: id,
			UUID: fmt.Sprint("GPU-", id), Model: "H100",
		}
	}
	instance := board(1)
	instance.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: 1, ID: 7}
	instance.InstanceID, instance.Profile = 2, "2g.20gb"
	type values = map[int]gpu.Value
	power := values{rowGPU0: gpu.Float(1e9 / 3), rowGPU1: gpu.Float(100.5), rowInstance: gpu.Float(35)}
	memory := values{rowGPU1: gpu.Int(8000), rowInstance: gpu.Int(500)}
	driver := values{rowGPU0: gpu.Text("570"), rowGPU1: gpu.Text("570")}
	return &gpu.Snapshot{
		Topology: gpu.NewTopology([]gpu.Device{board(0), board(1), instance}),
		Owners:   &gpu.Owners{Labels: [][]gpu.Label{rowInstance: {{Name: "pod", Value: "p"}}}},
		Columns: []gpu.Column{
			column("DCGM_FI_DEV_GPU_TEMP", gpu.MetricGauge, true, values{rowGPU0: gpu.Int(30), rowGPU1: gpu.Int(41)}),
			column("DCGM_FI_DEV_POWER_USAGE", gpu.MetricGauge, true, power),
			column("DCGM_FI_DEV_FB_USED", gpu.MetricGauge, false, memory),
			column("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu.MetricGauge, false, values{rowGPU1: gpu.Float(0.5)}),
			column("DCGM_FI_DRIVER_VERSION", gpu.MetricLabel, true, driver),
		},
		Families: []gpu.Family{
			{Name: "DCGM_FI_DEV_XID_ERRORS", Type: gpu.MetricGauge, LikeField: true, Series: []gpu.Series{
				{Row: rowGPU1, Labels: gpu.Labels("err_code", "79", "err_msg", "off the bus"), Value: gpu.Int(79)},
				{Row: rowInstance, Labels: gpu.Labels("err_code", "43", "err_msg", "stopped"), Value: gpu.Int(43)},
			}},
			{Name: "DCGM_EXP_XID_ERRORS_COUNT", Type: gpu.MetricGauge, OfGPUs: true, Series: []gpu.Series{
				{Row: rowGPU0, Value: gpu.Int(0)},
				{Row: rowGPU1, Labels: gpu.Labels("xid", "79"), Value: gpu.Int(2)},
				{Row: rowGPU1, Labels: gpu.Labels("GPU_I_ID", "2", "xid", "43"), Value: gpu.Int(1)},
				{Row: rowGPU1, Labels: gpu.Labels("GPU_I_ID", "9", "xid", "13"), Value: gpu.Int(1)},
			}},
			{Name: "DCGM_EXP_GPU_HEALTH_STATUS", Type: gpu.MetricGauge, Series: []gpu.Series{
				{Row: rowGPU1, Value: gpu.Int(20)},
			}},
			{Name: "own", Type: gpu.MetricGauge, Series: []gpu.Series{{Row: gpu.AllRows, Value: gpu.Int(1)}}},
		},
		Health: gpu.Health{Entities: make([]gpu.EntityHealth, rowCount)},
	}
}

// encode returns the page of a snapshot, without health series.
func encode(r *compat.Rewriter, strict bool, s *gpu.Snapshot) string {
	format := exposition.Options{NoHealth: true, EmptyHelp: strict}
	if strict {
		format.AppendFloat = compat.AppendFloat
	}
	return string(exposition.NewEncoder(format).Encode(r.Rewrite(s)).Bytes())
}

// TestPages compares the page of each case with a file in testdata.
func TestPages(t *testing.T) {
	pod := func(name, container, replica string, labels ...string) gpu.Owner {
		return gpu.Owner{
			Namespace: "ns", Pod: name, Container: container, Replica: replica, Labels: gpu.Labels(labels...),
		}
	}
	job := func(id string) gpu.Owner { return gpu.Owner{Labels: gpu.Labels("hpc_job", id)} }
	a, b := pod("a", "c", "0", "pod_uid", "u-a"), pod("b", "c", "1", "pod_uid", "u-b")
	// owned sets the owners of GPU 0, and the labels of GPUs 0 and 1, and leaves a column and a family.
	owned := func(s *gpu.Snapshot, owners []gpu.Owner, labels ...[]gpu.Label) {
		s.Owners = &gpu.Owners{Labels: labels, Uses: []gpu.Use{{Sharing: gpu.SharingTimeSlicing, Owners: owners}}}
		s.Columns, s.Families = s.Columns[:1], s.Families[1:2]
	}
	podsOfOne := func(s *gpu.Snapshot) { owned(s, []gpu.Owner{a, b, job("7")}) }
	containers := func(s *gpu.Snapshot) {
		shared := gpu.Labels("namespace", "ns", "pod", "a", "pod_uid", "u")
		owned(s, []gpu.Owner{pod("a", "c", ""), pod("a", "d", "")}, shared)
	}
	jobs := func(ids ...string) func(*gpu.Snapshot) {
		return func(s *gpu.Snapshot) {
			owners := []gpu.Owner{pod("p", "c", "")}
			for _, id := range ids {
				owners = append(owners, job(id))
			}
			owned(s, owners, owners[0].PodLabels(), gpu.Labels("hpc_job", "9"))
			s.Owners.Uses = append(s.Owners.Uses, gpu.Use{Owners: []gpu.Owner{job("9")}})
		}
	}
	// virtual adds the shares of GPU 0's owners. That of b is unknown.
	virtual := func(owners ...gpu.Owner) func(*gpu.Snapshot) {
		return func(s *gpu.Snapshot) {
			owned(s, owners, owners[0].PodLabels())
			f := gpu.Family{Name: s.Columns[0].Counter.Name, Type: gpu.MetricGauge, OwnersOnly: true}
			for i, o := range owners {
				share := gpu.Series{NoOwner: true, Owner: o.VirtualGPULabels()}
				if i == 0 {
					share.Value = gpu.Int(10)
				}
				f.Series = append(f.Series, share)
			}
			s.Families = append(s.Families, f)
		}
	}
	type options = compat.Options
	for name, tt := range map[string]struct {
		opts   options
		change func(*gpu.Snapshot)
	}{
		"default":           {opts: options{Devices: flex}},
		"strict-f":          {opts: options{Strict: true, Devices: flex}},
		"strict-g-i":        {opts: options{Strict: true, Devices: both}},
		"strict-i":          {opts: options{Strict: true, Devices: instances}},
		"pods":              {options{JobCopies: true, Devices: both}, podsOfOne},
		"pods-strict":       {options{Strict: true, Devices: both}, podsOfOne},
		"containers":        {options{JobCopies: true, Devices: both}, containers},
		"containers-strict": {options{Strict: true, Devices: both}, containers},
		// Each of several jobs has its own copy of the series, in addition to the pod's labels.
		"jobs-one":     {options{JobCopies: true}, jobs("7")},
		"jobs-two":     {options{JobCopies: true}, jobs("7", "8")},
		"jobs-virtual": {options{VirtualGPUs: true}, jobs("7", "8")},
		// Every series of a shared GPU is repeated for each replica that a pod holds. Families with per-owner values
		// are not repeated; their values appear in addition to the device's. An unknown share is 0 in strict mode, and
		// absent otherwise. The labels of a single pod are on the copy and not on the device's own series.
		"virtual":            {options{VirtualGPUs: true, Devices: both}, virtual(a, b)},
		"virtual-strict":     {options{VirtualGPUs: true, Strict: true, Devices: both}, virtual(a, b)},
		"virtual-one":        {options{VirtualGPUs: true, Devices: both}, virtual(a)},
		"virtual-one-strict": {options{VirtualGPUs: true, Strict: true, Devices: both}, virtual(a)},
	} {
		t.Run(name, func(t *testing.T) {
			s := world()
			if tt.change != nil {
				tt.change(s)
			}
			want, err := os.ReadFile(filepath.Join("testdata", name+".prom"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), encode(compat.New(tt.opts), tt.opts.Strict, s)); diff != "" {
				t.Errorf("page (-want +got):\n%s", diff)
			}
		})
	}
}

// A Rewriter does not change its input, returns the same owners as long as they do not change, and follows a new
// topology.
func TestRewriterIsReused(t *testing.T) {
	r := compat.New(compat.Options{Strict: true, Devices: flex})
	partitioned := world()
	first := encode(r, true, partitioned)
	values := cmp.Comparer(func(a, b gpu.Value) bool { return a == b }) // they have no exported fields
	if diff := cmp.Diff(world().Columns, partitioned.Columns, values); diff != "" {
		t.Errorf("columns of the input (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(world().Families, partitioned.Families, values); diff != "" {
		t.Errorf("families of the input (-before +after):\n%s", diff)
	}
	owners := r.Rewrite(partitioned).Owners
	if r.Rewrite(partitioned).Owners != owners {
		t.Error("Rewrite of the same snapshot returns other owners, want the same")
	}
	whole := world()
	whole.Topology = gpu.NewTopology(whole.Topology.Devices[:rowInstance])
	whole.Families = whole.Families[1:]
	for i := range whole.Columns {
		whole.Columns[i].Values = whole.Columns[i].Values[:rowInstance]
	}
	if got := encode(r, true, whole); !strings.Contains(got, `DCGM_FI_DEV_GPU_TEMP{gpu="1",`) {
		t.Errorf("page has no sample of GPU 1, which is no longer partitioned, want one:\n%s", got)
	}
	if diff := cmp.Diff(first, encode(r, true, world())); diff != "" {
		t.Errorf("page of the first topology (-first +later):\n%s", diff)
	}
}

// A page without data, such as that of a start, is rewritten too.
func TestSnapshotWithoutTopology(t *testing.T) {
	s := &gpu.Snapshot{Health: gpu.Health{Err: gpu.ErrOpening}}
	for _, opts := range []compat.Options{{Strict: true}, {JobCopies: true}, {VirtualGPUs: true}, {}} {
		if got := compat.New(opts).Rewrite(s); got.Health.Err != gpu.ErrOpening || got.Owners != nil {
			t.Errorf("%+v: snapshot = %+v, want gpu.ErrOpening and no owners", opts, got)
		}
	}
}

// Strict mode reads GPUs for their instances, and omits the families that NVIDIA's exporter does not have.
func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		devices, want gpu.Selector
	}{
		{flex, flex},
		{both, both},
		{
			gpu.Selector{Minor: true, MinorIDs: []uint32{3}},
			gpu.Selector{Major: true, Minor: true, MinorIDs: []uint32{3}},
		},
	} {
		if diff := cmp.Diff(tt.want, compat.Options{Strict: true, Devices: tt.devices}.Reads()); diff != "" {
			t.Errorf("%+v reads (-want +got):\n%s", tt.devices, diff)
		}
		if diff := cmp.Diff(tt.devices, compat.Options{Devices: tt.devices}.Reads()); diff != "" {
			t.Errorf("by default, %+v reads (-want +got):\n%s", tt.devices, diff)
		}
	}
	for name, omitted := range map[string]bool{catalog.NodeHealth: true, catalog.GPUHealthStatus: false, "field": false} {
		family := catalog.FamilyNamed(name)
		strict, plain := compat.Options{Strict: true}.Omits(family), compat.Options{}.Omits(family)
		if strict != omitted || plain {
			t.Errorf("%s is omitted: %t in strict mode, %t by default; want %t and false", name, strict, plain, omitted)
		}
	}
}
