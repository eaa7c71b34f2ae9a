package exposition_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/gpu-telemetry/dcgm-exporter/internal/exposition"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// node returns a snapshot of gpus boards, each cut into instances by MIG (none for 0), with a pod
// on each entity, and fields columns beside the driver version. Its values come from a fixed seed.
func node(gpus, instances, fields int) *gpu.Snapshot {
	var devices []gpu.Device
	for g := range uint32(gpus) {
		board := gpu.Device{
			Entity: gpu.Entity{Kind: gpu.KindGPU, ID: g}, GPU: g, NVMLIndex: g, Model: "NVIDIA H100 80GB HBM3",
			UUID:     fmt.Sprintf("GPU-%08x-2078-5444-8c9c-4f8e98ae4dcc", 0x614bc606+g),
			PCIBusID: fmt.Sprintf("00000000:%02X:00.0", 0x1b+g),
		}
		devices = append(devices, board)
		for i := range uint32(instances) {
			d := board
			d.Entity = gpu.Entity{Kind: gpu.KindGPUInstance, ParentKind: gpu.KindGPU, Parent: g, ID: 7*g + i}
			d.InstanceID, d.Profile = 7+i, "1g.10gb"
			devices = append(devices, d)
		}
	}
	s := &gpu.Snapshot{
		Time:     time.Unix(1_700_000_000, 0),
		Topology: gpu.NewTopology(devices),
		Owners:   &gpu.Owners{},
		Health:   gpu.Health{Entities: make([]gpu.EntityHealth, len(devices))},
	}
	monitored := func(row int) bool { return instances == 0 || devices[row].Entity.Kind == gpu.KindGPUInstance }
	for row := range devices {
		var owner []gpu.Label
		if monitored(row) {
			owner = []gpu.Label{
				{Name: "container", Value: "main"}, {Name: "namespace", Value: "team-a"},
				{Name: "pod", Value: fmt.Sprintf("train-%d-7f9c6d5b8-xk2lp", row)},
			}
			s.Health.Entities[row].OldestSample = s.Time.Add(-time.Duration(row) * time.Millisecond).UnixNano()
		}
		s.Owners.Labels = append(s.Owners.Labels, owner)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for f := range fields {
		c := gpu.Column{
			Counter: &gpu.Counter{Name: fmt.Sprintf("DCGM_FI_DEV_SOME_FIELD_%d", f), Type: gpu.MetricGauge, Help: "A field of the catalog (in MiB).", Scale: 1},
			Values:  make([]gpu.Value, len(devices)),
		}
		for row := range devices {
			switch {
			case !monitored(row):
			case f%2 == 0:
				c.Values[row] = gpu.Int(random.Int64N(100_000))
			default:
				c.Values[row] = gpu.Float(float64(random.Int64N(1_000_000)) / 1e6)
			}
		}
		s.Columns = append(s.Columns, c)
	}
	driver := gpu.Column{
		Counter: &gpu.Counter{Name: "DCGM_FI_DRIVER_VERSION", Type: gpu.MetricLabel},
		Values:  slices.Repeat([]gpu.Value{gpu.Text("570.124.06")}, len(devices)),
	}
	s.Columns = append(s.Columns, driver)
	return s
}

// The shape of the largest node: 8 GPUs cut in 7, 100 fields.
func largest() *gpu.Snapshot { return node(8, 7, 100) }

// reference is the same page the customary way: const metrics, a registry and expfmt.
type reference struct {
	s     *gpu.Snapshot
	descs []*prometheus.Desc
	// values of the labels, per row
	labels [][]string
}

func newReference(s *gpu.Snapshot) *reference {
	r := &reference{s: s}
	names := []string{
		"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "hostname",
		"DCGM_FI_DRIVER_VERSION", "container", "namespace", "pod",
	}
	for i := range s.Columns {
		if c := s.Columns[i].Counter; c.Type != gpu.MetricLabel {
			r.descs = append(r.descs, prometheus.NewDesc(c.Name, c.Help, names, nil))
		}
	}
	for row := range s.Topology.Devices {
		d := &s.Topology.Devices[row]
		owner := s.Owners.Of(row)
		if owner == nil {
			r.labels = append(r.labels, nil)
			continue
		}
		r.labels = append(r.labels, []string{
			fmt.Sprint(d.GPU), d.UUID, d.PCIBusID, fmt.Sprintf("nvidia%d", d.NVMLIndex), d.Model, d.Profile, fmt.Sprint(d.InstanceID),
			"node-17", "570.124.06", owner[0].Value, owner[1].Value, owner[2].Value,
		})
	}
	return r
}

func (r *reference) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range r.descs {
		ch <- d
	}
}

func (r *reference) Collect(ch chan<- prometheus.Metric) {
	for f, desc := range r.descs {
		for row, v := range r.s.Columns[f].Values {
			if n, ok := v.Number(); ok {
				ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, n, r.labels[row]...)
			}
		}
	}
}

func (r *reference) write(t testing.TB, registry *prometheus.Registry, b *bytes.Buffer) {
	b.Reset()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	enc := expfmt.NewEncoder(b, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, mf := range families {
		if err := enc.Encode(mf); err != nil {
			t.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	s := largest()
	e := exposition.NewEncoder(exposition.Options{Hostname: "node-17"})
	e.Encode(s)
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		p := e.Encode(s)
		size = len(p.Bytes())
	}
	b.ReportMetric(float64(size), "page-bytes")
}

// BenchmarkEncodeRatio runs both ways in turns on the same data and reports how many times faster
// ours is.
func BenchmarkEncodeRatio(b *testing.B) {
	s := largest()
	e := exposition.NewEncoder(exposition.Options{Hostname: "node-17"})
	r := newReference(s)
	registry := prometheus.NewRegistry()
	registry.MustRegister(r)
	var buf bytes.Buffer
	var ours, theirs []time.Duration
	for b.Loop() {
		start := time.Now()
		e.Encode(s)
		ours = append(ours, time.Since(start))
		start = time.Now()
		r.write(b, registry, &buf)
		theirs = append(theirs, time.Since(start))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	// Medians: whatever else the machine does shows in the means.
	b.ReportMetric(float64(theirs[len(theirs)/2])/float64(ours[len(ours)/2]), "times-faster")
}

func BenchmarkGzip(b *testing.B) {
	s := largest()
	e := exposition.NewEncoder(exposition.Options{Hostname: "node-17"})
	in, out := 0, 0
	b.ReportAllocs()
	for b.Loop() {
		p := e.Encode(s)
		in, out = len(p.Bytes()), len(p.Gzip())
	}
	b.ReportMetric(float64(in)/float64(out), "times-smaller")
}
