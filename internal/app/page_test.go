package app

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gpu-telemetry/dcgm-exporter/internal/collector"
	"github.com/gpu-telemetry/dcgm-exporter/internal/config"
	"github.com/gpu-telemetry/dcgm-exporter/internal/gpu"
)

// profiled is a session of a GPU whose profiling field has no value in the first Reads, because an engine computes it
// from two samples.
type profiled struct {
	plan     *gpu.Plan
	topology *gpu.Topology
	from     int // number of the first Read with a value
	reads    int
}

func (p *profiled) Topology() *gpu.Topology { return p.topology }
func (p *profiled) Done() <-chan struct{}   { return nil }
func (p *profiled) Err() error              { return nil }
func (p *profiled) Close() error            { return nil }
func (p *profiled) Read(_ context.Context, _ gpu.ReadRequest, b *gpu.Batch) error {
	p.reads++
	for i := range p.plan.Fields {
		for row := range p.topology.Devices { // the value of each link comes a Read later
			if !p.plan.Fields[i].Profiling || p.reads >= p.from+max(row-1, 0) {
				b.Add(row, i, gpu.Int(1), time.Now())
			}
		}
	}
	return nil
}

// The subcommand "once" prints the page that a scrape would get. It waits for profiling fields, which have no value at
// first. Without any data, the page still has the health series.
func TestPageOfOnce(t *testing.T) {
	const temp, prof = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
	counter := func(name string, field int) gpu.Counter {
		return gpu.Counter{Name: name, Type: gpu.MetricGauge, Field: field, Scale: 1}
	}
	field := func(id gpu.FieldID, profiling bool) gpu.Field {
		return gpu.Field{ID: id, Levels: gpu.KindsOf(gpu.KindGPU), Range: &gpu.Range{Max: 100}, Profiling: profiling}
	}
	planOf := func(fields ...gpu.Field) *gpu.Plan {
		return &gpu.Plan{
			Interval: 30 * time.Second, Devices: gpu.Selector{Flex: true}, Fields: fields,
			Counters: []gpu.Counter{counter(temp, 0), counter(prof, 1)}[:min(len(fields), 2)],
		}
	}
	links := gpu.KindsOf(gpu.KindNVLink)
	with, without := planOf(field(150, false), field(1001, true)), planOf(field(150, false))
	ofLinks := planOf(
		field(150, false), gpu.Field{ID: 1040, Levels: links, Profiling: true}, gpu.Field{ID: 1200, Levels: links},
	)
	const second = time.Second
	const success = "dcgm_exporter_collect_success "
	noData := `dcgm_exporter_field_unavailable{field="` + prof + `",reason="no_data"} 1`
	unavailable := `dcgm_exporter_collect_unavailable{reason="unavailable"} 1`
	for _, tt := range []struct {
		name string
		plan *gpu.Plan
		from int   // first Read with profiling
		err  error // error of Open
		took time.Duration
		want []string
	}{
		{"without profiling", without, 1, nil, 0, []string{temp + "{", success + "1"}},
		{"values in the first Read", with, 1, nil, 0, []string{temp + "{", prof + "{"}},
		{"values from the third Read on", with, 3, nil, 2 * second, []string{temp + "{", prof + "{", success + "1"}},
		{"two links, one per Read", ofLinks, 2, nil, 2 * second, []string{prof + `{nvlink="0"`, prof + `{nvlink="1"`}},
		{"no values", with, 100, nil, 4 * second, []string{temp + "{", noData}},
		{"engine unavailable", with, 1, gpu.ErrUnavailable, 0, []string{success + "0", unavailable}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := collector.SourceOf(func(_ context.Context, plan *gpu.Plan) (*profiled, error) {
					devices := []gpu.Device{{Entity: gpu.Entity{Kind: gpu.KindGPU}, UUID: "GPU-0"}}
					for link := range uint32(2) {
						e := gpu.Entity{Kind: gpu.KindNVLink, ID: link, ParentKind: gpu.KindGPU}
						devices = append(devices, gpu.Device{Entity: e, Link: link, UUID: "GPU-0"})
					}
					return &profiled{plan: plan, topology: gpu.NewTopology(devices), from: tt.from}, tt.err
				})
				cfg, err := config.Parse(nil, func(string) (string, bool) { return "", false }, nil)
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				body, err := collectPage(t.Context(), cfg, prometheus.NewRegistry(), Backend{Source: source}, tt.plan)
				if (err == nil) != (tt.err == nil) {
					t.Errorf("error = %v, want %v", err, tt.err)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
				for _, want := range tt.want {
					if !strings.Contains(string(body), "\n"+want) {
						t.Errorf("page does not contain %s:\n%s", want, body)
					}
				}
			})
		})
	}
}
